//! io_uring, refused as a whole or in part.

use rustix::fs::{Mode, OFlags};

use super::*;

/// Returns a request for direct I/O only.
fn direct() -> Request {
    Request {
        direct: cordboard::Direct::Always,
        ..only(&[DataPath::Direct])
    }
}

/// `io_uring_enter(2)` submits nothing: without memory (`EAGAIN`), without room
/// (`EBUSY`), or by returning 0. The transfer neither hangs nor spins, on its
/// caller's thread and on an engine.
#[test]
fn a_ring_that_takes_nothing_on() {
    let _dog = watchdog("a_ring_that_takes_nothing_on");
    let paths = [DataPath::Direct, DataPath::ReadWrite];
    let request = Request {
        direct: cordboard::Direct::Always,
        ..only(&paths)
    };
    // Without rings, threads do the I/O and are not affected.
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

/// Rings can be made and not entered: threads do the I/O.
#[test]
fn a_ring_that_may_not_be_entered() {
    let _dog = watchdog("a_ring_that_may_not_be_entered");
    if !common::alone!() {
        return;
    }
    let request = direct();
    for errno in [Errno::EPERM, Errno::EACCES, Errno::ENOSYS] {
        // In a child, so that the library forgets the refusal with it.
        assert!(testkit::child::in_a_child(|| {
            let calls = [libc::SYS_io_uring_enter];
            let report = into_a_file(From::File, request.clone(), &calls, errno);
            report.path == [DataPath::Direct]
        }));
    }
}

/// The threads for direct I/O belong to the process, and have the filter of the
/// thread that started them. A transfer does not hang if such a thread cannot wake
/// it.
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
        // In a child, with which these threads end.
        assert!(testkit::child::in_a_child(|| {
            apart(|| {
                refuse(&[libc::SYS_write, libc::SYS_writev], errno);
                let flags = OFlags::RDONLY | OFlags::NONBLOCK;
                let silent = rustix::fs::open(&fifo, flags, Mode::empty()).unwrap();
                // A pool thread queries whether the pipe has a writer.
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

/// A filter of one thread does not bind the others: they use rings.
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
            // Only a ring is allowed here.
            assert_eq!(report.path, [DataPath::Direct], "{errno}: {report:?}");
            assert!(content(&sink) == pattern(SIZE), "{errno}: {report:?}");
        }
    }
}
