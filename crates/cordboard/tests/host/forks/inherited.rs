//! Descriptors of the parent's transfers in a child of `fork(2)`.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI32, Ordering};

use cordboard::{DataPath, Ended, Engine, Request, Running, Stranded, Transfer, start};
use testkit::child::{Heir, in_a_child};
use testkit::needs::Need;

use super::{carries, carries_by, close_all};
use crate::common::{self, only, pattern, watchdog};

/// A child has inherited the write end of the private pipe in which bytes are handed
/// back. The reader of these bytes finds their end nevertheless.
#[test]
fn what_is_handed_back_ends_beside_a_child() {
    let _dog = watchdog("what_is_handed_back_ends_beside_a_child");
    if testkit::needs::missing("what_is_handed_back_ends_beside_a_child", &[Need::Splice])
        || !common::alone!()
    {
        return;
    }
    let (source, mut feed) = UnixStream::pair().unwrap();
    let (sink, _end) = UnixStream::pair().unwrap();
    testkit::obstacle::fill_stream(&sink).unwrap();
    sink.set_nonblocking(true).unwrap();
    let data = pattern(10_000);
    feed.write_all(&data).unwrap();
    let running = start(&source, &sink, only(&[DataPath::Splice])).unwrap();
    while running.status().read < data.len() as u64 {
        std::thread::yield_now();
    }
    let heir = Heir::fork();
    running.cancel();
    let outcome = running.wait();
    let report = &outcome.report;
    assert_eq!(report.ended, Ended::Cancelled, "{report:?}");
    assert_eq!(report.path, [DataPath::Splice]);
    assert_eq!([report.written, report.stranded], [0, 10_000]);
    let Some(Stranded::Pipe(pipe)) = outcome.stranded else {
        panic!("{:?}", outcome.stranded);
    };
    let mut found = Vec::new();
    File::from(pipe).read_to_end(&mut found).unwrap();
    assert!(found == data);
    drop(heir);
}

/// Returns the descriptors that refer to this file, a pipe or a socket.
fn numbers_of(inode: u64) -> Vec<RawFd> {
    let is_it = |number: &RawFd| testkit::child::inode(*number) == Some(inode);
    (0..100).filter(is_it).collect()
}

/// The first use of the library in a child closes the descriptors of its parent's
/// transfers. Otherwise no reader would see their end while the child lives.
#[test]
fn a_child_keeps_no_end_of_its_parents_transfers() {
    let _dog = watchdog("a_child_keeps_no_end_of_its_parents_transfers");
    if !common::alone!() {
        return;
    }
    let own = Engine::new(Default::default()).unwrap();
    let own = Some(&own);
    type Use = fn(&Running, Option<&Engine>) -> bool;
    let uses: [(Option<&Engine>, Use); 5] = [
        (None, |_, _| carries()),
        (None, |running, _| running.status().ended),
        (own, |running, _| running.try_wait().is_some()),
        (own, |_, engine| {
            engine.unwrap().shutdown();
            true
        }),
        (None, |_, _| {
            let engine = Engine::new(Default::default()).unwrap();
            carries_by(Some(&engine)) && carries()
        }),
    ];
    for (engine, first) in uses {
        for sockets in [false, true] {
            let (source, feed, sink, end): (OwnedFd, OwnedFd, OwnedFd, OwnedFd) = if sockets {
                let (source, sink) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
                let (source, feed) = source;
                let (sink, end) = sink;
                (source.into(), feed.into(), sink.into(), end.into())
            } else {
                let (source, feed) = std::io::pipe().unwrap();
                let (end, sink) = std::io::pipe().unwrap();
                (source.into(), feed.into(), sink.into(), end.into())
            };
            let inodes = [&source, &sink].map(|fd| rustix::fs::fstat(fd).unwrap().st_ino);
            let transfer = Transfer::owning(source, sink, common::any()).unwrap();
            let running = match engine {
                Some(engine) => engine.start(transfer).unwrap(),
                None => transfer.start().unwrap(),
            };
            rustix::io::write(&feed, b"one").unwrap();
            let mut three = [0; 3];
            assert_eq!(rustix::io::read(&end, &mut three), Ok(3));
            // The transfer's descriptor, and for a pipe its other end.
            let has = |all: usize| inodes.map(|inode| numbers_of(inode).len()) == [all; 2];
            let all = if sockets { 1 } else { 2 };
            assert!(in_a_child(|| {
                has(all) && first(&running, engine) && has(all - 1)
            }));
            // The child has reused these numbers for its own files.
            assert!(in_a_child(|| {
                for inode in inodes {
                    for number in numbers_of(inode) {
                        testkit::child::copy_to(number, number + 100, false);
                        testkit::child::copy_to(number + 100, number, false);
                    }
                }
                first(&running, engine) && has(all)
            }));
            assert!(in_a_child(|| {
                // Below what is closed.
                let numbers = inodes.map(|inode| numbers_of(inode)[0]);
                testkit::child::copy_to(numbers[0], 0, true);
                testkit::child::copy_to(numbers[1], 1, true);
                let before = inodes.map(numbers_of);
                close_all();
                for (numbers, from) in before.iter().zip([0, 1]) {
                    for number in numbers.iter().filter(|number| **number > 2) {
                        testkit::child::copy_to(from, *number, true);
                    }
                }
                running.status().ended && inodes.map(numbers_of) == before
            }));
            assert!(has(all), "the parent has lost its descriptors");
            rustix::io::write(&feed, b"two").unwrap();
            drop(feed);
            let report = running.wait().report;
            assert_eq!(
                (report.ended, report.written),
                (Ended::Eof, 6),
                "{report:?}"
            );
            assert_eq!(rustix::io::read(&end, &mut [0; 9]), Ok(3));
            assert_eq!(rustix::io::read(&end, &mut [0; 9]), Ok(0));
        }
    }
}

/// A FIFO is written through another description, which no `write(2)` waits on. It is
/// open while the transfer waits with bytes in hand.
#[test]
fn a_child_keeps_no_second_description_of_a_pipe() {
    let _dog = watchdog("a_child_keeps_no_second_description_of_a_pipe");
    if !common::alone!() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("fifo");
    let (at, mode) = (rustix::fs::CWD, 0o600.into());
    rustix::fs::mknodat(at, &name, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let mut options = File::options();
    // As with O_NONBLOCK, the open does not wait.
    let end = options.read(true).write(true).open(&name).unwrap();
    let sink = File::options().write(true).open(&name).unwrap();
    let most = rustix::pipe::fcntl_getpipe_size(&end).unwrap() as u64;
    let inode = rustix::fs::fstat(&end).unwrap().st_ino;
    let zeros = File::open("/dev/zero").unwrap();
    let transfer = Transfer::owning(zeros.into(), sink.into(), only(&[DataPath::ReadWrite]));
    let running = transfer.unwrap().start().unwrap();
    // The FIFO is full.
    while running.status().in_transit() == 0 || running.status().written < most {
        std::thread::yield_now();
    }
    if numbers_of(inode).len() != 3 {
        return testkit::skip::here("the FIFO cannot be opened again");
    }
    assert!(in_a_child(|| {
        running.status().ended && numbers_of(inode).len() == 1
    }));
    running.cancel();
    assert_eq!(running.wait().report.ended, Ended::Cancelled);
}

/// A child that is forked during the sync at the end, which may take long.
#[test]
fn a_child_keeps_no_end_of_a_transfer_that_is_being_synced() {
    let _dog = watchdog("a_child_keeps_no_end_of_a_transfer_that_is_being_synced");
    if !common::alone!() {
        return;
    }
    let (source, mut feed) = std::io::pipe().unwrap();
    feed.write_all(b"one").unwrap();
    let inode = rustix::fs::fstat(&source).unwrap().st_ino;
    let request = Request {
        size: 3.into(),
        sync: true,
        ..common::any()
    };
    let sink = tempfile::tempfile().unwrap();
    let transfer = Transfer::owning(source.into(), sink.into(), request).unwrap();
    let mut report = None;
    let body = || report = Some(transfer.start().unwrap().wait().report);
    let mut left = Vec::new();
    let forks = || {
        assert!(
            numbers_of(inode).len() == 2,
            "the source, and its other end"
        );
        left.push(in_a_child(|| carries() && numbers_of(inode).len() == 1));
    };
    let Some(syncs) = testkit::midst::at_each(&[libc::SYS_fsync], body, forks) else {
        return testkit::skip::report("a child", "calls of another thread cannot be held");
    };
    assert_eq!((syncs, &left[..]), (1, &[true][..]));
    let report = report.unwrap();
    assert_eq!((report.ended, report.written), (Ended::Size, 3));
}

/// The child that [`fork_here`] has made, or -1; 0 in that child.
pub(super) static FORKED: AtomicI32 = AtomicI32::new(-1);

pub(super) extern "C" fn fork_here(_: libc::c_int) {
    // SAFETY: the child reads a few words of memory, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // Ends the child before such a sleep would end.
        testkit::child::ends_soon();
    }
    FORKED.store(child, Ordering::Release);
}

/// Installs a handler for SIGUSR1, with interrupted calls restarted.
pub(super) fn install(handler: extern "C" fn(libc::c_int)) {
    // SAFETY: all zeros are no flags, and an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler calls what a handler may.
    let done = unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) };
    assert_eq!(done, 0);
}

/// Sends this thread the signal whose handler forks, whatever call it is in.
fn interrupts(thread: i32) {
    let process = std::process::id();
    // SAFETY: takes integers; the thread is there, and has a handler.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR1) };
    assert_eq!(sent, 0);
}

/// Makes this thread fork, whatever call it is in.
pub(super) fn forks_in(thread: i32) {
    interrupts(thread);
    while FORKED.load(Ordering::Acquire) < 0 {
        std::thread::yield_now();
    }
}

/// Waits for the child and returns its status.
pub(super) fn status_of(child: i32) -> i32 {
    let mut status = -1;
    // SAFETY: no other thread waits for this child.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(waited, child);
    status
}

/// A thread that waits for an end has checked which process the transfer belongs to,
/// and is about to sleep, when a signal handler forks. The child makes the same call,
/// from which no thread would wake it.
#[test]
fn a_child_that_is_forked_before_the_sleep_does_not_sleep() {
    let name = "a_child_that_is_forked_before_the_sleep_does_not_sleep";
    let _dog = watchdog(name);
    if !common::alone!() {
        return;
    }
    // After this many sleeps that fail at once, the next sleep lasts a minute.
    const BEFORE: usize = 14;
    install(fork_here);
    let (source, _feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let running = start(&source, &sink, common::any()).unwrap();
    let (running, waits) = (&running, &AtomicI32::new(0));
    let body = || {
        waits.store(rustix::thread::gettid().as_raw_pid(), Ordering::Release);
        running.wait_for_end();
        if FORKED.load(Ordering::Acquire) == 0 {
            testkit::child::end(running.status().ended);
        }
    };
    let status = std::thread::scope(|scope| {
        let ends = scope.spawn(|| {
            while FORKED.load(Ordering::Acquire) < 0 {
                std::thread::yield_now();
            }
            let status = status_of(FORKED.load(Ordering::Acquire));
            running.cancel();
            status
        });
        let calls = testkit::midst::refusing(&[libc::SYS_futex], body, |call| {
            if call == BEFORE {
                // Not waited for: the fork may wait for a lock, by a call that is held too.
                interrupts(waits.load(Ordering::Acquire));
            }
            (call < BEFORE).then_some(libc::EINTR)
        });
        if calls.is_none() {
            // SAFETY: the child ends at once.
            let child = unsafe { libc::fork() };
            if child == 0 {
                testkit::child::end(true);
            }
            FORKED.store(child, Ordering::Release);
            testkit::skip::report("a child", "calls of another thread cannot be held");
        } else {
            // At least one call of the parent, which is restarted, and one of the
            // child.
            assert!(calls >= Some(BEFORE + 2), "{calls:?}");
        }
        ends.join().unwrap()
    });
    assert_eq!(status, 0, "the child sleeps, or uses the parent's transfer");
    assert_eq!(running.try_wait().unwrap().report.ended, Ended::Cancelled);
}

/// Threads wait for an engine to shut down, which takes long, and a signal handler
/// forks in one of them. The child has none of the engine's threads, and waits for
/// none.
#[test]
fn a_child_that_is_forked_in_a_shutdown_does_not_wait() {
    let name = "a_child_that_is_forked_in_a_shutdown_does_not_wait";
    let _dog = watchdog(name);
    if !common::alone!() {
        return;
    }
    install(fork_here);
    let engine = &Engine::new(Default::default()).unwrap();
    let (source, _feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let transfer = Transfer::owning(source.into(), sink.into(), common::any());
    let running = engine.start(transfer.unwrap()).unwrap();
    let (ends, ended) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    running.on_end(move |_| {
        ends.send(()).unwrap();
        released.recv().unwrap_err();
    });
    let shuts = || {
        let (tell, told) = std::sync::mpsc::channel();
        let body = move || {
            tell.send(rustix::thread::gettid().as_raw_pid()).unwrap();
            engine.shutdown();
            if FORKED.load(Ordering::Acquire) == 0 {
                testkit::child::end(true);
            }
        };
        (body, told)
    };
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for which in ["the first to wait", "the second to wait"] {
            let (body, told) = shuts();
            scope.spawn(body);
            threads.push(told.recv().unwrap());
            if threads.len() == 1 {
                ended.recv().unwrap();
            }
            let thread = *threads.last().unwrap();
            until_it_sleeps(thread);
            FORKED.store(-1, Ordering::Release);
            forks_in(thread);
            let status = status_of(FORKED.load(Ordering::Acquire));
            assert_eq!(status, 0, "{which}: the child waits");
        }
        drop(release);
    });
    assert_eq!(running.wait().report.ended, Ended::Cancelled);
}

/// Waits until the thread sleeps: `shutdown` makes a single call that waits.
fn until_it_sleeps(thread: i32) {
    let stat = format!("/proc/self/task/{thread}/stat");
    while !std::fs::read_to_string(&stat).unwrap().contains(") S ") {
        std::thread::yield_now();
    }
}
