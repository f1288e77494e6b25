//! io_uring, refused as a whole or in part.

use rustix::fs::{Mode, OFlags};

use super::*;

/// Past the page cache, and by no other path.
fn direct() -> Request {
    Request {
        direct: cordboard::Direct::Always,
        ..only(&[DataPath::Direct])
    }
}

/// `io_uring_enter(2)` takes nothing on, for want of memory (`EAGAIN`), for
/// want of room (`EBUSY`), or without a word: the transfer neither waits for
/// ever nor turns in a circle, on its caller's thread and on an engine.
#[test]
fn a_ring_that_takes_nothing_on() {
    let _dog = watchdog("a_ring_that_takes_nothing_on");
    let paths = [DataPath::Direct, DataPath::ReadWrite];
    let request = Request {
        direct: cordboard::Direct::Always,
        ..only(&paths)
    };
    // Threads, where there are no rings, hear nothing of it.
    let taken = match common::has_rings() {
        true => &paths[..],
        false => &paths[..1],
    };
    for errno in [Errno::EAGAIN, Errno::EBUSY, Errno::from_raw(0)] {
        let calls = [libc::SYS_io_uring_enter];
        let report = into_a_file(From::File, request.clone(), &calls, errno);
        assert_eq!(report.path, taken, "{errno}: {report:?}");
        let data = pattern(SIZE);
        let (source, sink) = (common::file_with(&data), tempfile::tempfile().unwrap());
        let report = apart(|| {
            // Its threads inherit the filter.
            refuse(&calls, errno);
            let engine = cordboard::Engine::new(Default::default()).unwrap();
            let fds = [&source, &sink].map(|file| file.try_clone().unwrap().into());
            let [from, to] = fds;
            let transfer = Transfer::owning(from, to, request.clone()).unwrap();
            engine.start(transfer).unwrap().wait().report
        });
        assert_eq!(report.path, taken, "{errno}: {report:?}");
        assert!(content(&sink) == data, "{errno}: {report:?}");
    }
}

/// Rings may be made, and not used: threads do it.
#[test]
fn a_ring_that_may_not_be_entered() {
    let _dog = watchdog("a_ring_that_may_not_be_entered");
    if !common::alone!() {
        return;
    }
    let request = direct();
    for errno in [Errno::EPERM, Errno::EACCES, Errno::ENOSYS] {
        // What is remembered dies with the child.
        assert!(testkit::child::in_a_child(|| {
            let calls = [libc::SYS_io_uring_enter];
            let report = into_a_file(From::File, request.clone(), &calls, errno);
            report.path == [DataPath::Direct]
        }));
    }
}

/// Threads that carry blocks out are the process's, and have the filter of the
/// thread that started them: a transfer does not wait for ever for one that cannot
/// ring.
#[test]
fn threads_that_another_transfer_has_started() {
    let _dog = watchdog("threads_that_another_transfer_has_started");
    if !common::alone!() {
        return;
    }
    let request = direct();
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::RWXU).unwrap();
    for errno in [Errno::EPERM, Errno::ENOSYS] {
        // Its threads die with the child.
        assert!(testkit::child::in_a_child(|| {
            apart(|| {
                refuse(&[libc::SYS_write, libc::SYS_writev], errno);
                let flags = OFlags::RDONLY | OFlags::NONBLOCK;
                let silent = rustix::fs::open(&fifo, flags, Mode::empty()).unwrap();
                // A thread asks whether it has a writer.
                let idle = Some(std::time::Duration::from_secs(3600));
                let request = Request { idle, ..any() };
                run(&silent, tempfile::tempfile().unwrap(), request);
            });
            // One block, for this thread.
            let data = pattern(4096);
            let (source, sink) = (common::file_with(&data), tempfile::tempfile().unwrap());
            let report = apart(|| {
                refuse(&[libc::SYS_io_uring_setup], errno);
                let engine = cordboard::Engine::new(Default::default()).unwrap();
                let [from, to] = [&source, &sink].map(|file| file.try_clone().unwrap().into());
                let transfer = Transfer::owning(from, to, request.clone()).unwrap();
                engine.start(transfer).unwrap().wait().report
            });
            report.path == [DataPath::Direct] && content(&sink) == data
        }));
    }
}

/// A filter of one thread's says nothing about the others: they have rings.
#[test]
fn rings_that_one_thread_is_refused() {
    let _dog = watchdog("rings_that_one_thread_is_refused");
    if !common::alone!() {
        return;
    }
    let options = cordboard::engine::Options {
        backend: cordboard::engine::Backend::Uring,
        ..Default::default()
    };
    let engine = match cordboard::Engine::new(options) {
        Ok(engine) => engine,
        Err(errno) => return testkit::skip::here(format!("no io_uring here: {errno}")),
    };
    let request = direct();
    for errno in [Errno::EPERM, Errno::EACCES] {
        for call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter] {
            let report = into_a_file(From::File, request.clone(), &[call], errno);
            assert_eq!(report.path, [DataPath::Direct], "by threads: {report:?}");
            let (source, sink) = (
                common::file_with(&pattern(SIZE)),
                tempfile::tempfile().unwrap(),
            );
            let fds = [&source, &sink].map(|file| file.try_clone().unwrap().into());
            let [from, to] = fds;
            let transfer = Transfer::owning(from, to, request.clone()).unwrap();
            let report = engine.start(transfer).unwrap().wait().report;
            // By a ring, or not at all.
            assert_eq!(report.path, [DataPath::Direct], "{errno}: {report:?}");
            assert!(content(&sink) == pattern(SIZE), "{errno}: {report:?}");
        }
    }
}
