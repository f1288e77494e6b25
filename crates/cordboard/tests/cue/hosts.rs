//! A host that forks, closes all descriptors, or uses many at once.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use cordboard::cue::{Command, Cue, Record, State};
use cordboard::{Ended, Errno, Side};
use testkit::child;
use testkit::fuse::{Served, with_file};
use testkit::locked::{Locked, held_up};
use testkit::pattern::noise;

use super::common::{alone, watchdog};
use super::steps::{bytes_of, done, file_with, next, send, status};

/// A file is moved to a pipe by a new control descriptor.
pub fn works() -> bool {
    let source = file_with(b"number, please");
    let (mut end, sink) = std::io::pipe().unwrap();
    let mut cue = Cue::new(&source, &sink).unwrap();
    drop(sink);
    send(&cue, &[Command::WriteToEnd]);
    let written = done(&mut cue).written;
    drop(cue);
    let mut text = String::new();
    end.read_to_string(&mut text).unwrap();
    written == 14 && text == "number, please"
}

#[test]
fn a_child_has_a_service_of_its_own() {
    let _dog = watchdog("a_child_has_a_service_of_its_own");
    if !alone!() {
        return;
    }
    assert!(works());
    let source = file_with(&noise(100));
    let sink = file_with(b"");
    let mut cue = Cue::new(&source, &sink).unwrap();
    send(&cue, &[Command::Pause, Command::Write(50)]);
    assert_eq!(status(&mut cue).state, State::Paused);
    assert!(child::in_a_child(|| works() && works()));
    // The parent's transfer goes on.
    send(&cue, &[Command::Resume]);
    assert_eq!(done(&mut cue).written, 50);
}

/// A thread with its own descriptor table has other files under the same numbers.
#[test]
fn a_thread_with_other_descriptors_is_refused() {
    let _dog = watchdog("a_thread_with_other_descriptors_is_refused");
    if !alone!() {
        return;
    }
    let (source, sink) = (file_with(b"number, please"), file_with(b""));
    // The first one is made by such a thread: the others have a service all the same.
    for _ in 0..2 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                child::own_descriptors();
                let refused = Cue::new(&source, &sink).err();
                assert_eq!(refused, Some(Errno::EBADF));
            });
        });
        assert!(works());
    }
}

/// A child that has a copy of the service's end does not keep the last reader from the end
/// of the records.
#[test]
fn a_child_keeps_no_reader_from_the_end() {
    let _dog = watchdog("a_child_keeps_no_reader_from_the_end");
    if !alone!() {
        return;
    }
    let mut cue = Cue::new(file_with(b"number, please"), file_with(b"")).unwrap();
    assert_eq!(status(&mut cue).state, State::Idle);
    let heir = child::Heir::fork();
    send(&cue, &[Command::WriteToEnd]);
    rustix::net::shutdown(&cue, rustix::net::Shutdown::Write).unwrap();
    assert_eq!(done(&mut cue).written, 14);
    assert_eq!(cue.receive(), Ok(None));
    drop(heir);
}

/// The host closes everything above standard error, and opens other files: the old
/// service touches none of them, and a new one works.
#[test]
fn a_host_that_closes_everything_keeps_its_own_files() {
    let _dog = watchdog("a_host_that_closes_everything_keeps_its_own_files");
    if !alone!() {
        return;
    }
    let fine = child::in_a_child(|| {
        assert!(works());
        let (source, feed) = std::io::pipe().unwrap();
        let (end, sink) = std::io::pipe().unwrap();
        let mut cue = Cue::new(&source, &sink).unwrap();
        send(&cue, &[Command::WriteToEnd]);
        while status(&mut cue).path.is_none() {}
        // The numbers are closed below.
        std::mem::forget((source, feed, end, sink, cue));
        child::close_from(3);
        let files: Vec<_> = (0..40).map(|n| file_with(&[n; 100])).collect();
        let worked = works() && works();
        worked
            && files.iter().zip(0u8..).all(|(file, n)| {
                let mut bytes = [0; 101];
                rustix::io::pread(file, &mut bytes, 0) == Ok(100) && bytes[..100] == [n; 100]
            })
    });
    assert!(fine);
}

/// The same just while the thread of the control descriptors closes some of them.
#[test]
fn a_host_that_closes_everything_while_a_service_ends() {
    let _dog = watchdog("a_host_that_closes_everything_while_a_service_ends");
    if !alone!() {
        return;
    }
    for _ in 0..200 {
        let fine = child::in_a_child(|| {
            assert!(works());
            child::close_from(3);
            works()
        });
        assert!(fine);
    }
}

/// Many threads make, use and close control descriptors at once.
#[test]
fn many_threads_use_their_own() {
    let _dog = watchdog("many_threads_use_their_own");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..50).for_each(|_| assert!(works())));
        }
    });
}

/// Some are closed at once, with or without a command.
#[test]
fn those_that_are_closed_at_once_harm_no_other() {
    let _dog = watchdog("those_that_are_closed_at_once_harm_no_other");
    let source = file_with(&noise(1000));
    for n in 0..500 {
        let sink = std::fs::File::options().write(true).open("/dev/null");
        let cue = Cue::new(&source, sink.unwrap()).unwrap();
        if n % 2 == 0 {
            send(&cue, &[Command::SourceOffset(0), Command::Write(n)]);
        }
    }
    assert!(works());
}

/// A pipe whose lock another process holds: the close of its last reader waits.
#[test]
fn a_close_that_waits_holds_up_no_other() {
    let name = "a_close_that_waits_holds_up_no_other";
    let _dog = watchdog(name);
    // Splicing holds the lock.
    if !alone!() || testkit::needs::missing(name, &[testkit::needs::Need::Splice]) {
        return;
    }
    let (reader, writer) = std::io::pipe().unwrap();
    let own = std::fs::File::open(format!("/proc/self/fd/{}", reader.as_raw_fd())).unwrap();
    let mut cue = Cue::new(&own, file_with(b"")).unwrap();
    drop(own);
    assert_eq!(status(&mut cue).state, State::Idle);
    let locked = Locked::of(reader, writer);
    drop(cue);
    let waits = |name| held_up(name) > 0;
    while !waits("cordboard-work") && !waits("cordboard-cue") {
        std::thread::yield_now();
    }
    assert!(works());
    locked.release();
}

/// A file on a server that does not answer: the queries before a transfer wait.
#[test]
fn a_silent_server_holds_up_no_other() {
    let _dog = watchdog("a_silent_server_holds_up_no_other");
    let mute = AtomicBool::new(false);
    let served = Served {
        holds: b"number, please",
        claims: 14,
        mute: Some(&mute),
        ..Served::default()
    };
    let mounted = with_file(served, |path| {
        let source = std::fs::File::open(path).unwrap();
        let (mut end, sink) = std::io::pipe().unwrap();
        let mut cue = Cue::new(&source, &sink).unwrap();
        drop(sink);
        mute.store(true, Ordering::Relaxed);
        send(&cue, &[Command::Write(14)]);
        assert_eq!(next(&mut cue), Record::Started(1));
        let now = status(&mut cue);
        assert_eq!((now.state, now.path), (State::Running, None));
        assert!(works());
        send(&cue, &[Command::Cancel]);
        status(&mut cue);
        mute.store(false, Ordering::Relaxed);
        assert_eq!(done(&mut cue).ended, Ended::Cancelled);
        send(&cue, &[Command::Write(6)]);
        assert_eq!(done(&mut cue).written, 6);
        drop(cue);
        let mut text = String::new();
        end.read_to_string(&mut text).unwrap();
        assert_eq!(text, "number");
    });
    if !mounted {
        testkit::skip::here("no FUSE here");
    }
}

/// The source of a link is a file on such a server. It could not be answered.
#[test]
fn a_link_from_a_file_is_refused() {
    let _dog = watchdog("a_link_from_a_file_is_refused");
    let mute = AtomicBool::new(false);
    let commands = bytes_of(&[Command::Write(1)]);
    let served = Served {
        holds: b"number, please",
        claims: 14,
        mute: Some(&mute),
        ..Served::default()
    };
    let refuses = |file: &std::fs::File| {
        let target = Cue::new(file_with(b"number, please"), file_with(b"")).unwrap();
        let mut link = Cue::new(file, &target).unwrap();
        mute.store(true, Ordering::Relaxed);
        send(&link, &[Command::WriteToEnd]);
        let Record::Done(done) = next(&mut link) else {
            panic!("it has started");
        };
        assert_eq!(
            (done.ended, done.errno),
            (Ended::Error, Some(Errno::EINVAL))
        );
        assert_eq!(done.failed, Some(Side::Source));
        assert!(works());
        mute.store(false, Ordering::Relaxed);
    };
    refuses(&file_with(&commands));
    if !with_file(served, |path| refuses(&std::fs::File::open(path).unwrap())) {
        testkit::skip::here("no FUSE here");
    }
}
