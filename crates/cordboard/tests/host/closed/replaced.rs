//! A host that puts another file in the place of a descriptor of the transfer.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use cordboard::{DataPath, Ended, Engine, Errno, Observer, Progress, Transfer};
use testkit::child;

use crate::common::{self, any, watchdog};

/// The host closes a descriptor and opens its own file under that number while the
/// transfer's descriptors are being closed. That file stays open.
#[test]
fn what_was_opened_while_the_account_is_closed_stays_open() {
    let name = "what_was_opened_while_the_account_is_closed_stays_open";
    let _dog = watchdog(name);
    if !common::alone!() {
        return;
    }
    let make = || rustix::fs::memfd_create("", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let inode = |fd: &OwnedFd| rustix::fs::fstat(fd).unwrap().st_ino;
    let (source, sink, own) = (make(), make(), make());
    rustix::io::pwrite(&source, b"number, please", 0).unwrap();
    let (number, before, after) = (source.as_raw_fd(), inode(&source), inode(&own));
    let held = testkit::midst::at_each(
        &[libc::SYS_fsync],
        || {
            // Made here, so that the calls of its threads are held too.
            let engine = Engine::new(Default::default()).unwrap();
            let request = cordboard::Request {
                sync: true,
                ..any()
            };
            let transfer = Transfer::owning(source, sink, request).unwrap();
            let report = engine.start(transfer).unwrap().wait().report;
            assert_eq!(
                (report.ended, report.written),
                (Ended::Eof, 14),
                "{report:?}"
            );
        },
        || {
            assert_eq!(child::inode(number), Some(before));
            child::copy_to(own.as_raw_fd(), number, true);
        },
    );
    match held {
        Some(calls) => {
            assert_eq!(calls, 1);
            assert_eq!(child::inode(number), Some(after), "closed");
        }
        None => testkit::skip::here("no seccomp_unotify(2) here"),
    }
}

/// The same at the close of any descriptor. A close of that number which has begun
/// cannot be undone, but the transfer must not close that number after another.
#[test]
fn what_was_opened_while_others_are_closed_stays_open() {
    let name = "what_was_opened_while_others_are_closed_stays_open";
    let _dog = watchdog(name);
    if !common::alone!() {
        return;
    }
    let make = || rustix::fs::memfd_create("", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let own = make();
    let after = rustix::fs::fstat(&own).unwrap().st_ino;
    let mut lost = 0;
    for at in 0.. {
        let (source, sink) = (make(), make());
        rustix::io::pwrite(&source, b"number, please", 0).unwrap();
        let (number, mut calls) = (sink.as_raw_fd(), 0);
        // Whether the test knows the number yet.
        let known = std::sync::atomic::AtomicBool::new(false);
        let held = testkit::midst::at_each(
            &[libc::SYS_close],
            || {
                let engine = Engine::new(Default::default()).unwrap();
                let transfer = Transfer::owning(source, sink, any()).unwrap();
                known.store(true, std::sync::atomic::Ordering::Release);
                engine.start(transfer).unwrap().wait();
            },
            || {
                if known.load(std::sync::atomic::Ordering::Acquire) {
                    if calls == at {
                        child::copy_to(own.as_raw_fd(), number, true);
                    }
                    calls += 1;
                }
            },
        );
        if held.is_none() {
            return testkit::skip::here("no seccomp_unotify(2) here");
        }
        if at >= calls {
            break;
        }
        match child::inode(number) == Some(after) {
            true => child::close(number),
            false => lost += 1,
        }
    }
    assert_eq!(lost, 1, "its own close");
}

/// Replaces a transfer's source with another file, once.
struct Replaces {
    number: i32,
    by: Option<std::fs::File>,
    /// `RWF_NOWAIT` finds no end of it (Linux 5.10).
    is_endless: bool,
}

impl Observer for Replaces {
    fn progress(&mut self, _: &Progress) {
        if let Some(file) = self.by.take() {
            // SAFETY: the transfer still has the number.
            let number = unsafe { BorrowedFd::borrow_raw(self.number) };
            child::replace(number, file.as_fd());
            use libc::{SYS_preadv2, SYS_read, SYS_splice, SYS_tee};
            for call in [SYS_preadv2, SYS_read, SYS_splice, SYS_tee] {
                if self.is_endless {
                    testkit::refuse::refuse_where(call, 0, self.number as u32, libc::EAGAIN);
                }
            }
        }
    }
}

/// The end of a file that has taken the source's number is not the end of the source.
/// The file stays open.
#[test]
fn the_end_of_a_file_in_the_sources_place_is_no_end() {
    let _dog = watchdog("the_end_of_a_file_in_the_sources_place_is_no_end");
    if !common::alone!() {
        return;
    }
    for (is_endless, to_file) in [(false, false), (false, true), (true, false), (true, true)] {
        assert!(child::in_a_child(|| {
            let (source, mut feed) = std::io::pipe().unwrap();
            let (_end, pipe) = std::io::pipe().unwrap();
            let sink = match to_file {
                true => tempfile::tempfile().unwrap().into(),
                false => pipe.into(),
            };
            feed.write_all(b"abc").unwrap();
            let number = source.as_raw_fd();
            let replaces = Replaces {
                number,
                by: Some(tempfile::tempfile().unwrap()),
                is_endless,
            };
            let transfer = Transfer::owning(source.into(), sink, any()).unwrap();
            let running = transfer.observe(replaces).start().unwrap();
            let report = running.wait().report;
            let found = (report.errno, report.written);
            // The source is replaced after one path is refused, before the next one
            // reads.
            let moved = if common::is_open(DataPath::Splice) {
                3
            } else {
                report.read
            };
            assert_eq!(found, (Some(Errno::EBADF), moved), "{is_endless} {to_file}");
            assert_eq!(report.ended, Ended::Error);
            // SAFETY: takes any number, and changes nothing.
            let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
            flags >= 0
        }));
    }
}
