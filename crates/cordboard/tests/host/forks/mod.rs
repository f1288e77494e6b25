//! Descriptors that the library keeps between transfers, after their numbers are
//! reused: in a child of `fork(2)`, and in a host that closes what it has not opened,
//! by `closefrom(3)` or `close_range(2)`.

mod calls;
mod inherited;
mod low_numbers;
mod unwiped;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{self, content, descriptors, only, pattern, run, watchdog};
use cordboard::{
    Control, DataPath, Ended, Engine, Errno, Refusal, Request, Running, Transfer, start,
};
use testkit::child::in_a_child;
use testkit::needs::Need;

#[global_allocator]
static ALLOCATOR: testkit::thread_start::Allocator = testkit::thread_start::Allocator;

/// Closes all descriptors but standard input, output and error.
fn close_all() {
    // SAFETY: takes integers. The tests check that the owners of the numbers tolerate
    // this.
    let done = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// The caller's files, opened under the lowest numbers, each with a word in it.
struct Own(Vec<(File, u64)>);

impl Own {
    fn open() -> Own {
        use rustix::fs::{MemfdFlags, fstat, memfd_create};
        let one = |n: u64| {
            let mut file = File::from(memfd_create("own", MemfdFlags::CLOEXEC).unwrap());
            file.write_all(&n.to_ne_bytes()).unwrap();
            let inode = fstat(&file).unwrap().st_ino;
            (file, inode)
        };
        Own((0..64).map(one).collect())
    }

    /// Whether all are still open, are the same files, and are unchanged.
    fn are_untouched(&self) -> bool {
        (0u64..).zip(&self.0).all(|(n, (file, inode))| {
            let here = rustix::fs::fstat(file).is_ok_and(|stat| stat.st_ino == *inode);
            here && content(file) == n.to_ne_bytes()
        })
    }
}

/// Moves bytes from a socket to a file through a private pipe.
fn splices() -> bool {
    let data = pattern(10_000);
    let (source, mut feed) = UnixStream::pair().unwrap();
    feed.write_all(&data).unwrap();
    drop(feed);
    let sink = tempfile::tempfile().unwrap();
    let report = run(&source, &sink, only(&[DataPath::Splice])).report;
    assert_eq!(report.path, [DataPath::Splice], "{report:?}");
    report.ended == Ended::Eof && content(&sink) == data
}

/// The same, if `splice(2)` is available.
fn splices_if(open: bool) -> bool {
    !open || splices()
}

/// Leaves several idle pipes behind.
fn fill_the_pool() {
    let before = descriptors();
    // Repeated: if two threads return pipes at once, one closes its pipe.
    while descriptors() < before + 4 {
        eight_at_once();
    }
}

fn eight_at_once() {
    let gate = &std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(move || {
                let (source, mut feed) = UnixStream::pair().unwrap();
                let sink = tempfile::tempfile().unwrap();
                feed.write_all(b"1").unwrap();
                let mut both = common::meanwhile(|| {
                    gate.wait();
                    feed.shutdown(std::net::Shutdown::Write).unwrap();
                });
                let request = only(&[DataPath::Splice]);
                let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request);
                let report = transfer.unwrap().observe(&mut both).run().report;
                assert_eq!(report.written, 1, "{report:?}");
            });
        }
    });
}

#[test]
fn a_child_that_closes_everything_keeps_its_own_files() {
    let _dog = watchdog("a_child_that_closes_everything_keeps_its_own_files");
    if testkit::needs::missing(
        "a_child_that_closes_everything_keeps_its_own_files",
        &[Need::Splice],
    ) {
        return;
    }
    if !common::alone!() {
        return;
    }
    fill_the_pool();
    assert!(in_a_child(|| {
        close_all();
        let own = Own::open();
        let fine = (0..20).all(|_| splices());
        assert!(own.are_untouched(), "closed, or written to");
        // The child keeps a pipe between transfers too.
        let before = descriptors();
        fine && splices() && descriptors() == before
    }));
    assert!(splices(), "the parent has lost its pipes");
}

/// The pipes that a child inherits are closed in it, not leaked.
#[test]
fn a_child_keeps_none_of_its_parents_pipes() {
    let _dog = watchdog("a_child_keeps_none_of_its_parents_pipes");
    if testkit::needs::missing("a_child_keeps_none_of_its_parents_pipes", &[Need::Splice]) {
        return;
    }
    if !common::alone!() {
        return;
    }
    let before = descriptors();
    fill_the_pool();
    let with_pipes = descriptors();
    assert!(in_a_child(|| splices() && descriptors() == before + 2));
    assert_eq!(descriptors(), with_pipes);
}

#[test]
fn a_host_that_closes_everything_keeps_its_own_files() {
    let _dog = watchdog("a_host_that_closes_everything_keeps_its_own_files");
    if testkit::needs::missing(
        "a_host_that_closes_everything_keeps_its_own_files",
        &[Need::Splice],
    ) {
        return;
    }
    if !common::alone!() {
        return;
    }
    assert!(in_a_child(|| {
        fill_the_pool();
        close_all();
        let own = Own::open();
        let before = descriptors();
        let fine = (0..20).all(|_| splices());
        assert!(own.are_untouched(), "closed, or written to");
        // The pool is not full of closed pipes.
        fine && descriptors() == before + 2
    }));
}

/// A child's pipes are as large as its parent's were.
#[test]
fn a_child_has_a_pipe_budget_of_its_own() {
    let _dog = watchdog("a_child_has_a_pipe_budget_of_its_own");
    if testkit::needs::missing("a_child_has_a_pipe_budget_of_its_own", &[Need::Splice]) {
        return;
    }
    if !common::alone!() {
        return;
    }
    // A file to the caller's pipe, which grows as far as the budget allows.
    let grown = || {
        let source = common::file_with(&pattern(1 << 20));
        let (mut reader, sink) = std::io::pipe().unwrap();
        let reads = std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
        let most = AtomicUsize::new(0);
        let mut look = common::meanwhile(|| {
            let now = rustix::pipe::fcntl_getpipe_size(&sink).unwrap();
            most.store(now, Ordering::Relaxed);
        });
        let request = Request {
            size: (256u64 << 10).into(),
            ..only(&[DataPath::Splice])
        };
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request);
        let report = transfer.unwrap().observe(&mut look).run().report;
        assert_eq!(report.ended, Ended::Size, "{report:?}");
        drop(sink);
        reads.join().unwrap().unwrap();
        most.into_inner()
    };
    let alone = grown();
    assert!(alone > 64 << 10, "{alone}");
    // Hundreds of transfers use the whole budget at the fork.
    let all: Vec<_> = (0..400)
        .map(|_| {
            let (source, feed) = std::io::pipe().unwrap();
            let (end, sink) = std::io::pipe().unwrap();
            let running = cordboard::start(&source, &sink, only(&[DataPath::Splice])).unwrap();
            (running, feed, end)
        })
        .collect();
    for (running, feed, _) in &all {
        rustix::io::write(feed, &pattern(60_000)).unwrap();
        while running.status().written < 60_000 {
            std::thread::yield_now();
        }
    }
    assert!(grown() < alone, "they do not share");
    let (_reader, other) = std::io::pipe().unwrap();
    if rustix::pipe::fcntl_setpipe_size(&other, alone) == Err(rustix::io::Errno::PERM) {
        // Without CAP_SYS_RESOURCE.
        return testkit::skip::here("the pipes reach the kernel's limit for this user");
    }
    assert!(in_a_child(|| grown() == alone));
}

/// Runs transfers that read each property of the system that is read once per
/// process.
fn each_kind(open: bool) {
    assert!(splices_if(open));
    let data = pattern(300_000);
    let (source, sink) = (common::file_with(&data), tempfile::tempfile().unwrap());
    assert_eq!(run(&source, &sink, common::any()).report.ended, Ended::Eof);
    assert!(content(&sink) == data);
    // Into a pipe that is full for a moment, with paths as the environment says.
    let (mut reader, sink) = std::io::pipe().unwrap();
    common::rewind(&source);
    let reads = std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    let report = run(&source, &sink, Request::default()).report;
    assert_eq!(report.ended, Ended::Eof, "{report:?}");
    drop(sink);
    assert_eq!(reads.join().unwrap().unwrap(), 300_000);
    let (source, feed) = std::os::unix::net::UnixDatagram::pair().unwrap();
    feed.send(b"message").unwrap();
    let request = Request {
        size: 7.into(),
        ..common::any()
    };
    let sink = tempfile::tempfile().unwrap();
    assert_eq!(run(&source, &sink, request).report.written, 7);
}

/// At the fork, another thread is reading such a property. The child, which lacks
/// that thread, does not wait for it.
#[test]
fn a_fork_while_another_thread_finds_something_out() {
    let _dog = watchdog("a_fork_while_another_thread_finds_something_out");
    if !common::alone!() {
        return;
    }
    let calls = [
        libc::SYS_openat,
        libc::SYS_uname,
        libc::SYS_sched_getaffinity,
    ];
    let open = common::is_open(DataPath::Splice);
    let forked = testkit::midst::at_each(
        &calls,
        || each_kind(open),
        || {
            assert!(in_a_child(|| {
                each_kind(open);
                true
            }));
        },
    );
    match forked {
        // Three files of /proc, the kernel release, the number of processors.
        Some(moments) => assert!(moments >= 5, "{moments}"),
        None => testkit::skip::here("no seccomp_unotify(2) here"),
    }
}

/// Moves bytes from pipe to pipe by the engine of the process.
fn carries() -> bool {
    carries_by(None)
}

/// Moves bytes from pipe to pipe by this engine, or that of the process.
fn carries_by(engine: Option<&Engine>) -> bool {
    let (source, mut feed) = std::io::pipe().unwrap();
    let (mut end, sink) = std::io::pipe().unwrap();
    let running = match engine {
        Some(engine) => {
            let transfer = Transfer::owning(source.into(), sink.into(), common::any());
            engine.start(transfer.unwrap()).unwrap()
        }
        None => {
            let running = start(&source, &sink, common::any()).unwrap();
            drop(sink);
            running
        }
    };
    feed.write_all(b"number, please").unwrap();
    drop(feed);
    let mut out = Vec::new();
    end.read_to_end(&mut out).unwrap();
    out == b"number, please" && running.wait().report.written == 14
}

/// Starts a transfer from pipe to pipe that has moved three bytes and waits.
fn waiting(engine: Option<&Engine>, request: Request) -> Running {
    let (source, mut feed) = std::io::pipe().unwrap();
    let (mut end, sink) = std::io::pipe().unwrap();
    let transfer = Transfer::owning(source.into(), sink.into(), request).unwrap();
    let running = match engine {
        Some(engine) => engine.start(transfer),
        None => transfer.start(),
    };
    feed.write_all(b"one").unwrap();
    end.read_exact(&mut [0; 3]).unwrap();
    // The numbers may be reused: dropping would close them.
    std::mem::forget((feed, end));
    running.unwrap()
}

/// Each new thread of the standard library takes a process-wide lock. If one holds it
/// at a fork, it is never released in the child.
#[test]
fn a_fork_while_the_host_starts_threads() {
    let _dog = watchdog("a_fork_while_the_host_starts_threads");
    if !common::alone!() {
        return;
    }
    let patience = testkit::watchdog::patience().as_secs() / 2;
    let mut fine = true;
    // A node of the list behind that lock has room for eleven threads: only some of
    // the allocations are made with the lock held.
    let moments = testkit::thread_start::at_each(24, || {
        fine = fine
            && in_a_child(|| {
                testkit::thread_start::disarm();
                // A child that hangs ends with a status that shows it.
                // SAFETY: takes an integer; the signal has no handler.
                unsafe { libc::alarm(patience as libc::c_uint) };
                let engine = Engine::new(Default::default()).unwrap();
                let both = carries_by(Some(&engine)) && carries();
                engine.shutdown();
                both
            });
    });
    assert!(fine, "a child hangs, or fails");
    assert!(moments > 0, "nothing was held");
}

fn some_idle() -> Request {
    Request {
        idle: Some(std::time::Duration::from_millis(300)),
        ..common::any()
    }
}

/// The next start makes a new engine. The transfers of the old one end once its
/// thread wakes up, and files that have taken the old numbers stay open.
#[test]
fn a_host_that_closes_everything_gets_another_engine() {
    let _dog = watchdog("a_host_that_closes_everything_gets_another_engine");
    if !common::alone!() {
        return;
    }
    let open = common::is_open(DataPath::Splice);
    for replaced in [false, true] {
        assert!(in_a_child(|| {
            let both = [waiting(None, some_idle()), waiting(None, common::any())];
            assert!(carries());
            close_all();
            let own = if replaced {
                Own::open()
            } else {
                Own(Vec::new())
            };
            assert!((0..20).all(|_| carries() && splices_if(open)));
            for running in both {
                running.cancel();
                let report = running.wait().report;
                let ended = (report.ended, report.errno, report.written);
                assert_eq!(ended, (Ended::Error, Some(Errno::EBADF), 3), "{report:?}");
            }
            own.are_untouched() && carries()
        }));
    }
}

/// An engine that the host has made returns an error, and dropping it leaves nothing.
#[test]
fn an_engine_whose_host_closes_everything() {
    let _dog = watchdog("an_engine_whose_host_closes_everything");
    if !common::alone!() {
        return;
    }
    for with_transfers in [false, true] {
        assert!(in_a_child(|| {
            let engine = Engine::new(Default::default()).unwrap();
            let (control, running) = (
                Control::new().unwrap(),
                with_transfers.then(|| waiting(Some(&engine), some_idle())),
            );
            if let Some(running) = &running {
                running.fd().unwrap();
            }
            close_all();
            let own = Own::open();
            let (source, _feed) = std::io::pipe().unwrap();
            let (_end, sink) = std::io::pipe().unwrap();
            let transfer = Transfer::owning(source.into(), sink.into(), common::any());
            let failure = engine.start(transfer.unwrap()).unwrap_err();
            let errno = Errno::EBADF;
            assert_eq!(failure.refusal, Some(Refusal::NoEngine { errno }));
            if let Some(running) = running {
                assert_eq!(running.fd().err(), Some(Errno::EBADF));
                running.wait_for_end();
                let report = running.try_wait().unwrap().report;
                assert_eq!(report.errno, Some(Errno::EBADF), "{report:?}");
            }
            control.cancel();
            engine.shutdown();
            drop((engine, control));
            own.are_untouched()
        }));
    }
}

/// A child drops the engine of its parent without closing anything.
#[test]
fn a_child_that_closes_everything_drops_what_it_inherits() {
    let _dog = watchdog("a_child_that_closes_everything_drops_what_it_inherits");
    if !common::alone!() {
        return;
    }
    let ended = waiting(None, some_idle());
    ended.fd().unwrap();
    ended.wait_for_end();
    let running = waiting(None, common::any());
    let (engine, shut) = (
        Engine::new(Default::default()).unwrap(),
        Engine::new(Default::default()).unwrap(),
    );
    shut.shutdown();
    let control = Control::new().unwrap();
    let (source, _feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let transfer = Transfer::owning(source.into(), sink.into(), Request::default());
    let stepping = transfer.unwrap().stepping().unwrap();
    assert!(in_a_child(|| {
        close_all();
        let own = Own::open();
        control.wake();
        running.cancel();
        drop((ended, running, engine, shut, control, stepping));
        own.are_untouched() && carries() && own.are_untouched()
    }));
    assert!(carries());
}
