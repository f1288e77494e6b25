//! An engine and its process: fork, exec, threads, the limit of open files,
//! thousands of transfers at once, peers that are killed.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use crate::common::{self, any, content, descriptors, file_with, only, pattern, watchdog};
use cordboard::DataPath::{ReadWrite, Splice};
use cordboard::engine::Options;
use cordboard::{Ended, Engine, Errno, Refusal, Request, Running, Side, Size, Transfer, start};
use testkit::child;
use testkit::owned::{Owned, Start};

/// Moves bytes from pipe to pipe by the engine of this process.
fn carries(bytes: &[u8]) -> bool {
    let (source, mut feed) = std::io::pipe().unwrap();
    let (mut end, sink) = std::io::pipe().unwrap();
    let running = start(&source, &sink, any()).unwrap();
    drop(sink);
    feed.write_all(bytes).unwrap();
    drop(feed);
    let mut out = Vec::new();
    end.read_to_end(&mut out).unwrap();
    out == bytes && running.wait().report.written == bytes.len() as u64
}

/// Asserts in a child. Takes no lock that another thread may hold. The tests check
/// that the child does not use the locks of the parent's engine.
fn in_a_child(what: impl FnOnce() -> bool) {
    assert!(child::in_a_child(what), "the child failed");
}

#[test]
fn a_child_gets_an_engine_of_its_own() {
    let _dog = watchdog("a_child_gets_an_engine_of_its_own");
    if !common::alone!() {
        return;
    }
    let (source, mut feed) = std::io::pipe().unwrap();
    let (mut end, sink) = std::io::pipe().unwrap();
    let own = Engine::new(Options::default()).unwrap();
    let running = start(&source, &sink, any()).unwrap();
    // A transfer that the child inherits and waits for.
    let (silent, _feed) = std::io::pipe().unwrap();
    let other = start(&silent, &sink, any()).unwrap();
    feed.write_all(b"before ").unwrap();
    end.read_exact(&mut [0; 7]).unwrap();
    while running.status().written < 7 {
        std::thread::yield_now();
    }
    in_a_child(|| {
        // The child cannot wait for the parent's transfer.
        let status = running.status();
        assert!(status.ended && status.written == 7);
        assert_eq!(running.fd().err(), Some(Errno::ECHILD));
        let (sender, told) = mpsc::channel();
        running.on_end(move |report| sender.send(report.errno).unwrap());
        assert_eq!(told.recv(), Ok(Some(Errno::ECHILD)));
        running.cancel();
        running.wait_for_end();
        let report = running.try_wait().unwrap().report;
        assert_eq!((report.written, report.errno), (7, Some(Errno::ECHILD)));
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), any()).unwrap();
        drop(transfer);
        let copies = (source.try_clone().unwrap(), sink.try_clone().unwrap());
        let transfer = Transfer::owning(copies.0.into(), copies.1.into(), any()).unwrap();
        let refused = own.start(transfer).unwrap_err();
        assert_eq!(refused.report.errno, Some(Errno::ECHILD));
        own.shutdown();
        assert_eq!(other.wait().report.errno, Some(Errno::ECHILD));
        drop(own);
        carries(b"in the child") && {
            let data = pattern(300_000);
            let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
            start(&source, &sink, any()).unwrap().wait();
            content(&sink) == data
        }
    });
    unharmed(feed, end);
    assert_eq!(running.wait().report.written, 12);
}

/// Parent and child have the same process ID, each in its own namespace.
#[test]
fn a_child_of_its_parents_number_gets_an_engine_of_its_own() {
    let _dog = watchdog("a_child_of_its_parents_number_gets_an_engine_of_its_own");
    if !common::alone!() {
        return;
    }
    if !child::next_is_first() {
        testkit::skip::here("a PID namespace needs root");
        return;
    }
    in_a_child(|| {
        let own = Engine::new(Options::default()).unwrap();
        let (silent, _feed) = std::io::pipe().unwrap();
        let (_end, sink) = std::io::pipe().unwrap();
        let running = start(&silent, &sink, any()).unwrap();
        // No thread can be started after this.
        assert!(carries(b"in the parent") && child::next_is_first());
        in_a_child(|| {
            assert_eq!(std::process::id(), 1);
            let copies = (silent.try_clone().unwrap(), sink.try_clone().unwrap());
            let transfer = Transfer::owning(copies.0.into(), copies.1.into(), any()).unwrap();
            let refused = own.start(transfer).unwrap_err();
            assert_eq!(refused.report.errno, Some(Errno::ECHILD));
            assert_eq!(running.wait().report.errno, Some(Errno::ECHILD));
            carries(b"in the child")
        });
        std::process::id() == 1
    });
}

/// The parent's transfer continues.
fn unharmed(mut feed: std::io::PipeWriter, mut end: std::io::PipeReader) {
    feed.write_all(b"after").unwrap();
    let mut out = [0; 5];
    end.read_exact(&mut out).unwrap();
    assert_eq!(&out, b"after");
    assert!(carries(b"in the parent"));
}

#[test]
fn a_program_that_is_started_inherits_nothing() {
    let _dog = watchdog("a_program_that_is_started_inherits_nothing");
    if !common::alone!() {
        return;
    }
    let open = |_: ()| -> Vec<i32> {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        let names = all.map(|fd| fd.unwrap().file_name().to_string_lossy().parse().unwrap());
        names.collect()
    };
    let before = open(());
    let engine = Engine::new(Options::default()).unwrap();
    let (source, _feed) = UnixStream::pair().unwrap();
    let (sink, _end) = UnixStream::pair().unwrap();
    let control = cordboard::Control::new().unwrap();
    let copies = (source.try_clone().unwrap(), sink.try_clone().unwrap());
    let request = only(&common::carried_by(&[Splice, ReadWrite]));
    let transfer = Transfer::owning(copies.0.into(), copies.1.into(), request).unwrap();
    let running = engine.start(transfer.control(&control)).unwrap();
    running.fd().unwrap();
    assert!(carries(b"the default engine is there too"));
    let mut looked_at = 0;
    for fd in open(()).into_iter().filter(|fd| !before.contains(fd)) {
        // SAFETY: only queries the flags of a number; EBADF if it has been closed
        // meanwhile.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        assert!(
            flags < 0 || flags & libc::FD_CLOEXEC != 0,
            "{fd} is inherited"
        );
        looked_at += 1;
    }
    assert!(looked_at >= 8, "{looked_at}");
}

#[test]
fn the_limit_of_open_files_is_told_by_name() {
    let _dog = watchdog("the_limit_of_open_files_is_told_by_name");
    if !common::alone!() {
        return;
    }
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let (source, _feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let (socket, _peer) = UnixStream::pair().unwrap();
    let before = getrlimit(Resource::Nofile);
    let limit = |current| {
        let limits = Rlimit {
            current: Some(current),
            ..before
        };
        setrlimit(Resource::Nofile, limits).unwrap();
    };
    // The engine itself.
    limit(3);
    assert_eq!(Engine::new(Options::default()).err(), Some(Errno::EMFILE));
    limit(before.current.unwrap());
    let engine = Engine::new(Options::default()).unwrap();
    drop(start(&source, &sink, any()).unwrap());
    limit(3);
    let failure = start(&source, &sink, any()).unwrap_err();
    assert!(matches!(
        failure.refusal,
        Some(Refusal::NoDescriptor {
            errno: Errno::EMFILE
        })
    ));
    assert!(failure.to_string().contains("ulimit -n"), "{failure}");
    limit(before.current.unwrap());
    // No descriptor for a private pipe, later: read/write needs none.
    let copies = (socket.try_clone().unwrap(), socket.try_clone().unwrap());
    let transfer = Transfer::owning(copies.0.into(), copies.1.into(), any()).unwrap();
    limit(3);
    let running = engine.start(transfer).unwrap();
    running.cancel();
    assert_eq!(running.wait().report.ended, Ended::Cancelled);
    limit(before.current.unwrap());
}

#[test]
fn ten_thousand_starts_and_cancels() {
    let _dog = watchdog("ten_thousand_starts_and_cancels");
    if !common::alone!() {
        return;
    }
    let data = pattern(100_000);
    let engine = Engine::new(Options::default()).unwrap();
    let file = file_with(&data);
    let (reader, _feed) = std::io::pipe().unwrap();
    let (_end, writer) = std::io::pipe().unwrap();
    let (socket, _peer) = UnixStream::pair().unwrap();
    let round = |n: usize| {
        let sink = tempfile::tempfile().unwrap();
        let request = Request {
            source_offset: (n % 4 == 3).then_some(0),
            ..any()
        };
        let (source, sink) = match n % 4 {
            0 => (reader.as_fd(), writer.as_fd()),
            1 => (socket.as_fd(), writer.as_fd()),
            2 => (reader.as_fd(), sink.as_fd()),
            _ => (file.as_fd(), sink.as_fd()),
        };
        let own = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().unwrap();
        let transfer = Transfer::owning(own(source), own(sink), request).unwrap();
        let running = engine.start(transfer).unwrap();
        match n % 3 {
            0 => drop(running),
            1 => {
                running.cancel();
                let report = running.wait().report;
                assert!(
                    matches!(report.ended, Ended::Cancelled | Ended::Eof),
                    "{report:?}"
                );
                assert_eq!(report.read, report.written + report.stranded);
            }
            _ => {
                running.cancel();
                running.detach();
            }
        }
    };
    (0..100).for_each(round);
    let before = {
        settled(&engine);
        descriptors()
    };
    (0..10_000).for_each(round);
    settled(&engine);
    assert!(descriptors() <= before + 8, "{} {before}", descriptors());
    engine.shutdown();
    assert!(carries(b"and the rest of the process is well"));
}

/// Waits until dropped transfers have ended: the reactor and the workers work in
/// order, each on one piece at a time.
fn settled(engine: &Engine) {
    for _ in 0..8 {
        let (source, sink) = (file_with(b"x"), tempfile::tempfile().unwrap());
        let transfer = Transfer::owning(source.into(), sink.into(), any()).unwrap();
        assert_eq!(engine.start(transfer).unwrap().wait().report.written, 1);
    }
}

#[test]
fn thousands_at_once() {
    let _dog = watchdog("thousands_at_once");
    if !common::alone!() {
        return;
    }
    const ALL: usize = 2000;
    let mut all: Vec<(std::io::PipeWriter, std::io::PipeReader, Running)> = (0..ALL)
        .map(|_| {
            let (source, feed) = std::io::pipe().unwrap();
            let (end, sink) = std::io::pipe().unwrap();
            let running = start(&source, &sink, any()).unwrap();
            (feed, end, running)
        })
        .collect();
    let told = Arc::new(AtomicUsize::new(0));
    for (n, (feed, _, running)) in all.iter_mut().enumerate() {
        let told = Arc::clone(&told);
        running.on_end(move |report| {
            told.fetch_add(report.written as usize, Ordering::Relaxed);
        });
        feed.write_all(&pattern(n + 1)).unwrap();
    }
    let mut sum = 0;
    for (n, (feed, mut end, running)) in all.into_iter().enumerate() {
        drop(feed);
        let mut out = Vec::new();
        end.read_to_end(&mut out).unwrap();
        assert!(out == pattern(n + 1));
        sum += running.wait().report.written as usize;
    }
    assert_eq!(
        (sum, told.load(Ordering::Relaxed)),
        (ALL * (ALL + 1) / 2, sum)
    );
}

#[test]
fn peers_that_are_killed() {
    let _dog = watchdog("peers_that_are_killed");
    for path in common::forcible(&[Splice, ReadWrite]) {
        let mut children = Vec::new();
        let running: Vec<Running> = (0..20)
            .map(|_| {
                // A reader that never reads, and a writer that never ends.
                let reader = child("exec sleep 1000");
                let writer = child("exec yes");
                let sink = reader.stdin.as_ref().unwrap();
                let source = writer.stdout.as_ref().unwrap();
                let running = start(source, sink, only(&[path])).unwrap();
                children.push((reader, writer));
                running
            })
            .collect();
        let all = running.into_iter().zip(children);
        for (n, (running, (mut reader, mut writer))) in all.enumerate() {
            while running.status().written == 0 {
                std::thread::yield_now();
            }
            // The reader and the writer end first in turn.
            let ends = if n % 2 == 0 { &mut reader } else { &mut writer };
            ends.kill().unwrap();
            ends.wait().unwrap();
            if n % 2 == 1 {
                // The written bytes are in the pipe; its reader is killed later.
                reader.kill().unwrap();
                reader.wait().unwrap();
            }
            drop((reader.stdin.take(), writer.stdout.take()));
            let outcome = running.wait();
            let report = outcome.report;
            assert_eq!(report.read, report.written + report.stranded, "{report:?}");
            if report.ended == Ended::Error {
                assert_eq!(
                    (report.failed, report.errno),
                    (Some(Side::Sink), Some(Errno::EPIPE))
                );
            } else {
                assert_eq!((report.ended, n % 2), (Ended::Eof, 1));
            }
            let _ = writer.kill();
            writer.wait().unwrap();
        }
    }
}

fn child(script: &str) -> Owned {
    use std::process::{Command, Stdio};
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command.start()
}

/// One huge copy and many small ones on all workers: the small ones end before the
/// huge one.
#[test]
fn a_huge_copy_holds_up_no_small_one() {
    let _dog = watchdog("a_huge_copy_holds_up_no_small_one");
    let engine = Engine::new(Options {
        workers: 1,
        ..Options::default()
    })
    .unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let zeros = std::fs::File::open("/dev/zero").unwrap();
    let mut all = Vec::new();
    for n in 0..40 {
        let size = if n == 0 { 4 << 30 } else { 10_000 };
        let sink = std::fs::File::options()
            .write(true)
            .open("/dev/null")
            .unwrap();
        let request = Request {
            size: Size::Bytes(size),
            ..only(&[ReadWrite])
        };
        let source = zeros.try_clone().unwrap();
        let transfer = Transfer::owning(source.into(), sink.into(), request).unwrap();
        let running = engine.start(transfer).unwrap();
        let ends = Arc::clone(&order);
        running.on_end(move |report| ends.lock().unwrap().push((n, report.written)));
        all.push(running);
        if n == 0 {
            while all[0].status().written == 0 {
                std::thread::yield_now();
            }
        }
    }
    for running in all.drain(1..) {
        assert_eq!(running.wait().report.written, 10_000);
    }
    assert!(!all[0].status().ended);
    all[0].cancel();
    let report = all.remove(0).wait().report;
    assert!(report.ended == Ended::Cancelled && report.written < 4 << 30);
    let order = order.lock().unwrap();
    assert_eq!(order.last().map(|(n, _)| *n), Some(0));
    // The small copies end in the order of their starts.
    assert!(order[..39].iter().map(|(n, _)| *n).eq(1..40), "{order:?}");
}

/// Engine threads block signals: the host's handlers run on its own threads.
#[test]
fn no_signal_reaches_an_engines_thread() {
    let _dog = watchdog("no_signal_reaches_an_engines_thread");
    let engine = Engine::new(Options::default()).unwrap();
    settled(&engine);
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let mut seen = 0;
    for task in tasks.map(|task| task.unwrap().path()) {
        // A thread may have ended meanwhile.
        let Ok(name) = std::fs::read_to_string(task.join("comm")) else {
            continue;
        };
        let status = std::fs::read_to_string(task.join("status")).unwrap_or_default();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        if let (true, Some(blocked)) = (name.starts_with("cordboard"), blocked) {
            let blocked = u64::from_str_radix(blocked.trim(), 16).unwrap();
            for signal in [libc::SIGPIPE, libc::SIGXFSZ, libc::SIGINT, libc::SIGALRM] {
                assert!(blocked & 1 << (signal - 1) != 0, "{name}: {signal}");
            }
            seen += 1;
        }
    }
    assert!(seen >= 2, "{seen}");
}

/// A start from a thread with its own descriptor table is refused, and the engine
/// neither uses nor closes the same numbers in the other table. An engine that is
/// made in that thread works.
#[test]
fn a_thread_with_descriptors_of_its_own_is_refused() {
    let _dog = watchdog("a_thread_with_descriptors_of_its_own_is_refused");
    if !common::alone!() {
        return;
    }
    // The first start of the process makes no engine for the other threads.
    let first = std::thread::spawn(|| {
        child::own_descriptors();
        let (source, sink) = (std::io::pipe().unwrap().0, std::io::pipe().unwrap().1);
        start(&source, &sink, any()).unwrap_err().refusal
    });
    assert_eq!(first.join().unwrap(), Some(Refusal::OtherDescriptors));
    assert!(carries(b"the engine is there"));
    let gate = std::sync::Barrier::new(2);
    // Numbers that are free in the other thread's table are used in this one.
    let ours = std::thread::scope(|scope| {
        scope.spawn(|| {
            child::own_descriptors();
            gate.wait();
            gate.wait();
            let open = || std::fs::read_dir("/proc/thread-self/fd").unwrap().count();
            let before = open();
            let (source, mut feed) = std::io::pipe().unwrap();
            let (_end, sink) = std::io::pipe().unwrap();
            feed.write_all(b"secret").unwrap();
            let failure = start(&source, &sink, any()).unwrap_err();
            assert_eq!(failure.refusal, Some(Refusal::OtherDescriptors));
            assert_eq!(failure.refusal.unwrap().errno(), Errno::EBADF);
            drop((source, feed, sink, _end));
            assert_eq!(open(), before, "the copies are closed here");
            let engine = Engine::new(Options::default()).unwrap();
            let (source, mut feed) = std::io::pipe().unwrap();
            let (mut end, sink) = std::io::pipe().unwrap();
            feed.write_all(b"mine").unwrap();
            let transfer = Transfer::owning(source.into(), sink.into(), any()).unwrap();
            let running = engine.start(transfer).unwrap();
            drop(feed);
            let mut got = Vec::new();
            end.read_to_end(&mut got).unwrap();
            assert_eq!((running.wait().report.written, &got[..]), (4, &b"mine"[..]));
        });
        gate.wait();
        let pipes: Vec<_> = (0..8).map(|_| std::io::pipe().unwrap()).collect();
        gate.wait();
        pipes
    });
    for (mut reader, mut writer) in ours {
        writer.write_all(b"main").unwrap();
        drop(writer);
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"main");
    }
    assert!(carries(b"and goes on"));
}
