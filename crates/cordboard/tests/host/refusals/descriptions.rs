//! A kernel before Linux 6.10 under a filter that refuses `kcmp(2)` cannot tell whether two
//! descriptors share one position.

use std::os::fd::{AsFd, AsRawFd};

use super::*;
use cordboard::cue::{Command, Cue, Record};
use cordboard::{Failure, Size};

const F_DUPFD_QUERY: u32 = 1024 + 3;

fn refuse_comparisons() {
    testkit::refuse::refuse_where(testkit::refuse::FCNTL, 1, F_DUPFD_QUERY, libc::EINVAL);
    refuse(&[libc::SYS_kcmp], Errno::EPERM);
}

fn open(name: &std::path::Path, append: bool) -> File {
    let mut options = File::options();
    options.read(true).write(true).append(append);
    options.open(name).unwrap()
}

fn refusal<T>(done: Result<T, Failure>) -> Option<Refusal> {
    done.err().and_then(|failure| failure.refusal)
}

/// Each write would move the position of the next read. With an append and a size, each read
/// would find the end.
#[test]
fn one_position_on_both_sides_is_refused_although_nothing_can_be_compared() {
    let _dog = watchdog("one_position_on_both_sides_is_refused_although_nothing_can_be_compared");
    let data = pattern(SIZE);
    for append in [false, true] {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, &data).unwrap();
        let request = Request {
            size: Size::Bytes(SIZE as u64),
            ..any()
        };
        apart(|| {
            refuse_comparisons();
            let both = open(file.path(), append);
            let copy = both.try_clone().unwrap();
            let shared = Some(Refusal::SharedPosition);
            for other in [&both, &copy] {
                let started = cordboard::start(&both, other, request.clone());
                assert_eq!(refusal(started), shared, "{append}");
                let (from, to) = (both.as_fd(), other.as_fd());
                let made = Transfer::duplicating(from, to, request.clone());
                assert_eq!(refusal(made), shared, "{append}");
                let made = Transfer::new(from, to, request.clone());
                assert_eq!(refusal(made), shared, "{append}");
            }
        });
        assert!(std::fs::read(&file).unwrap() == data, "{append}");
    }
}

/// Two descriptions of one file have positions of their own. If those differ, or one of the two
/// can only be read or written, the transfer takes place.
#[test]
fn two_positions_in_one_file_are_used_although_nothing_can_be_compared() {
    let _dog = watchdog("two_positions_in_one_file_are_used_although_nothing_can_be_compared");
    let data = pattern(SIZE);
    let file = common::file_with(&data);
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    apart(|| {
        refuse_comparisons();
        let read = File::open(&name).unwrap();
        let report = run(&read, open(name.as_ref(), false), any()).report;
        assert_eq!(report.written, SIZE as u64, "{report:?}");
        let (from, to) = (open(name.as_ref(), false), open(name.as_ref(), false));
        rustix::fs::seek(&from, rustix::fs::SeekFrom::Start(1000)).unwrap();
        let report = run(&from, &to, any()).report;
        assert_eq!(report.written, SIZE as u64 - 1000, "{report:?}");
    });
    let all = content(&file);
    assert!(all[..SIZE - 1000] == data[1000..] && all[SIZE - 1000..] == data[SIZE - 1000..]);
}

/// It has a duplicate of each. Its thread has the filter of the thread that starts it.
#[test]
fn a_control_descriptor_refuses_one_position_although_nothing_can_be_compared() {
    let name = "a_control_descriptor_refuses_one_position_although_nothing_can_be_compared";
    let _dog = watchdog(name);
    if !common::alone!() {
        return;
    }
    let data = pattern(SIZE);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, &data).unwrap();
    apart(|| {
        refuse_comparisons();
        let both = open(file.path(), false);
        let mut cue = Cue::new(&both, &both).unwrap();
        cue.send(Command::Write(1000)).unwrap();
        let done = loop {
            if let Record::Done(done) = cue.receive().unwrap().expect("no more records") {
                break done;
            }
        };
        assert_eq!(
            (done.errno, done.read),
            (Some(Errno::EINVAL), 0),
            "{done:?}"
        );
    });
    assert!(std::fs::read(&file).unwrap() == data);
}

/// `kcmp(2)` compares numbers of the thread that it is given.
#[test]
fn one_position_is_found_in_a_thread_with_descriptors_of_its_own() {
    let _dog = watchdog("one_position_is_found_in_a_thread_with_descriptors_of_its_own");
    let data = pattern(SIZE);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, &data).unwrap();
    // In the other threads, these numbers are two files.
    let [from, to] = [(); 2].map(|()| common::file_with(b""));
    apart(|| {
        testkit::child::own_descriptors();
        testkit::refuse::refuse_where(testkit::refuse::FCNTL, 1, F_DUPFD_QUERY, libc::EINVAL);
        let both = open(file.path(), false);
        for number in [&from, &to] {
            // SAFETY: takes integers; this number is a file of this test.
            let done = unsafe { libc::dup2(both.as_raw_fd(), number.as_raw_fd()) };
            assert_eq!(done, number.as_raw_fd());
        }
        let made = Transfer::new(from.as_fd(), to.as_fd(), any());
        assert_eq!(refusal(made), Some(Refusal::SharedPosition));
    });
    assert!(std::fs::read(&file).unwrap() == data);
}

/// Another process may move the position between the queries of the two sides. One number is
/// one description nevertheless, also if the transfer has duplicates of it.
#[test]
fn one_number_is_one_position_whatever_moves_it() {
    let name = "one_number_is_one_position_whatever_moves_it";
    let _dog = watchdog(name);
    let data = pattern(SIZE);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, &data).unwrap();
    let both = open(file.path(), false);
    let mut refused = None;
    let body = || {
        refuse_comparisons();
        refused = Some(refusal(cordboard::start(&both, &both, any())));
    };
    let moves = || {
        rustix::fs::seek(&both, rustix::fs::SeekFrom::Current(1)).unwrap();
    };
    match testkit::midst::at_each(&[testkit::refuse::SEEK], body, moves) {
        None => return testkit::skip::report(name, "no seccomp_unotify(2) here"),
        Some(moved) => assert!(moved > 1, "{moved}"),
    }
    assert_eq!(refused, Some(Some(Refusal::SharedPosition)));
    assert!(std::fs::read(&file).unwrap() == data);
}
