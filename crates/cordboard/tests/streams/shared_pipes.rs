//! Pipes that other processes read and write too. Another reader may take the bytes
//! that poll(2) has reported, and the engine's thread must then not block. A
//! sleeping transfer must not block other users of the pipe.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use crate::common::{self, any, handed_back, only, pattern, run, watchdog};
use cordboard::DataPath::{Datagram, ReadWrite, Splice};
use cordboard::{
    Ended, Engine, Observer, Outcome, Progress, Request, Running, Side, Stranded, Transfer,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use testkit::fuse::{Served, with_file};
use testkit::locked::{until_asleep, waits_for_lock};
use testkit::needs::{Need, missing};
use testkit::refuse::{OPEN, apart, refuse};
use testkit::stalled::{Trouble, stalled};

const PAGE: usize = 4096;

/// Both ends of a pipe, blocking.
fn pipe(named: bool) -> (OwnedFd, OwnedFd) {
    if !named {
        return rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    }
    testkit::obstacle::fifo().unwrap()
}

/// The calls that an old kernel, a sandbox, or both, lack.
fn refused(calls: &[libc::c_long]) -> Vec<Vec<libc::c_long>> {
    vec![Vec::new(), calls.to_vec(), [calls, OPEN].concat()]
}

fn start(engine: &Engine, source: &OwnedFd, sink: impl Into<OwnedFd>, request: Request) -> Running {
    let source = source.try_clone().unwrap();
    let transfer = Transfer::owning(source, sink.into(), request).unwrap();
    engine.start(transfer).unwrap()
}

/// An observer that blocks its thread until the test releases it.
struct HoldUp {
    written: u64,
    held: mpsc::Sender<()>,
    on: mpsc::Receiver<()>,
}

impl Observer for HoldUp {
    fn progress(&mut self, progress: &Progress) {
        if progress.written > self.written {
            self.written = progress.written;
            self.held.send(()).unwrap();
            self.on.recv().unwrap();
        }
    }
}

/// Two transfers have one source, and a byte arrives: both are woken, and one takes
/// it.
#[test]
fn two_that_read_one_pipe_wait_for_neither() {
    let _dog = watchdog("two_that_read_one_pipe_wait_for_neither");
    let calls = [libc::SYS_splice, libc::SYS_tee, libc::SYS_preadv2];
    for named in [false, true] {
        // With a large buffer and a small one.
        for block in [None, std::num::NonZeroUsize::new(16)] {
            for refused in refused(&calls) {
                let what = format!("named {named}, block {block:?}, without {refused:?}");
                let (source, feed) = pipe(named);
                let ends = [(); 2].map(|()| std::io::pipe().unwrap());
                let [(one, to_one), (other, to_other)] = ends;
                let request = || Request {
                    block,
                    ..only(&[ReadWrite])
                };
                let (aside, mut feed_aside) = std::io::pipe().unwrap();
                let (_aside_end, to_aside) = std::io::pipe().unwrap();
                let ((held, is_held), (go_on, on)) = (mpsc::channel(), mpsc::channel());
                let (both, third, _engine) = apart(|| {
                    refuse(&refused, libc::EPERM);
                    let engine = Engine::new(Default::default()).unwrap();
                    let both = [
                        start(&engine, &source, to_one, request()),
                        start(&engine, &source, to_other, request()),
                    ];
                    let third = Transfer::owning(aside.into(), to_aside.into(), request());
                    let written = 0;
                    let third = third.unwrap().observe(HoldUp { written, held, on });
                    (both, engine.start(third).unwrap(), engine)
                });
                for _ in 0..10 {
                    // Both wait by now. The next poll wakes both.
                    feed_aside.write_all(b"?").unwrap();
                    is_held.recv().unwrap();
                    rustix::io::write(&feed, b"x").unwrap();
                    go_on.send(()).unwrap();
                    let mut fds = [&one, &other].map(|end| PollFd::new(end, PollFlags::IN));
                    poll(&mut fds, None).unwrap();
                    let mut end = match fds[0].revents().is_empty() {
                        false => &one,
                        true => &other,
                    };
                    end.read_exact(&mut [0]).unwrap();
                }
                drop(feed_aside);
                assert_eq!(third.wait().report.ended, Ended::Eof, "{what}");
                drop(feed);
                let mut all = 0;
                for running in both {
                    let report = running.wait().report;
                    assert_eq!(report.ended, Ended::Eof, "{what}: {report:?}");
                    assert_eq!(report.path, [ReadWrite], "{what}");
                    all += report.written;
                }
                assert_eq!(all, 10, "{what}");
            }
        }
    }
}

/// Two transfers write to a full pipe, with another transfer beside them.
fn two_that_write(what: &str, paths: [cordboard::DataPath; 2], refused: &[libc::c_long]) {
    for named in [false, true] {
        let what = format!("{what}, named {named}, without {refused:?}");
        let (mut end, sink) = {
            let (end, sink) = pipe(named);
            (File::from(end), sink)
        };
        let capacity = rustix::pipe::fcntl_getpipe_size(&sink).unwrap();
        rustix::io::write(&sink, &vec![0; capacity]).unwrap();
        let (aside, mut feed) = std::io::pipe().unwrap();
        let (mut aside_end, to_aside) = std::io::pipe().unwrap();
        let mut sources = Vec::new();
        let mut feeds = Vec::new();
        for path in paths {
            if path == Datagram {
                let (source, feed) = UnixDatagram::pair().unwrap();
                (0..8).for_each(|_| assert_eq!(feed.send(&[1; PAGE]).unwrap(), PAGE));
                sources.push(OwnedFd::from(source));
                feeds.push(OwnedFd::from(feed));
            } else {
                let (source, feed) = pipe(false);
                rustix::io::write(&feed, &[1; 8 * PAGE]).unwrap();
                sources.push(source);
            }
        }
        let size = 8 * PAGE as u64;
        let of_third = common::carried_by(&[Splice, ReadWrite]);
        let (all, third, _engine) = apart(|| {
            refuse(refused, libc::EPERM);
            let engine = Engine::new(Default::default()).unwrap();
            let start = |source: &OwnedFd, path| {
                let request = Request {
                    size: size.into(),
                    ..only(&[path])
                };
                start(&engine, source, sink.try_clone().unwrap(), request)
            };
            let all = [start(&sources[0], paths[0]), start(&sources[1], paths[1])];
            let request = only(&of_third);
            let third = self::start(&engine, &aside.into(), to_aside, request);
            (all, third, engine)
        });
        for _ in 0..16 {
            // It runs after both are woken for the room.
            for _ in 0..4 {
                feed.write_all(b"?").unwrap();
                aside_end.read_exact(&mut [0]).unwrap();
            }
            end.read_exact(&mut [0; PAGE]).unwrap();
        }
        for _ in 0..4 {
            feed.write_all(b"?").unwrap();
            aside_end.read_exact(&mut [0]).unwrap();
        }
        drop((feed, sink));
        end.read_exact(&mut vec![0; capacity]).unwrap();
        for (running, path) in all.into_iter().zip(paths) {
            let report = running.wait().report;
            assert_eq!(
                (report.ended, report.written),
                (Ended::Size, size),
                "{what}: {report:?}"
            );
            assert_eq!(report.path, [path], "{what}");
        }
        assert_eq!(end.read(&mut [0]).unwrap(), 0, "{what}");
        assert_eq!(third.wait().report.ended, Ended::Eof);
    }
}

#[test]
fn two_that_write_to_one_pipe_wait_for_neither() {
    let _dog = watchdog("two_that_write_to_one_pipe_wait_for_neither");
    for refused in refused(&[libc::SYS_pwritev2]) {
        two_that_write("streams", [ReadWrite; 2], &refused);
    }
}

#[test]
fn datagrams_to_a_pipe_of_others_wait_for_nobody() {
    let _dog = watchdog("datagrams_to_a_pipe_of_others_wait_for_nobody");
    for refused in refused(&[libc::SYS_pwritev2]) {
        two_that_write("datagrams", [Datagram; 2], &refused);
        two_that_write("both", [Datagram, ReadWrite], &refused);
    }
}

/// Fills a pipe, as its other users may. Returns the number of bytes.
fn fill(source: &OwnedFd, feed: &OwnedFd) -> usize {
    fcntl_setfl(feed, OFlags::NONBLOCK).unwrap();
    rustix::pipe::fcntl_getpipe_size(source).unwrap();
    rustix::io::ioctl_fionread(source).unwrap();
    let mut more = 0;
    loop {
        match rustix::io::write(feed, &[1; PAGE]) {
            Ok(n) => more += n,
            Err(errno) => {
                assert_eq!(errno, rustix::io::Errno::AGAIN);
                return more;
            }
        }
    }
}

/// Runs this transfer until it sleeps in a `splice(2)` from or to this descriptor.
/// Then fills its pipe from another thread, and calls `wake`, which ends the sleep,
/// even after a failure.
fn asleep(
    transfer: impl FnOnce() -> Outcome + Send,
    (side, fd): (Side, &OwnedFd),
    pipe: &(OwnedFd, OwnedFd),
    wake: impl FnOnce(usize),
) -> Outcome {
    std::thread::scope(|scope| {
        let wake = wake;
        let (sender, number) = mpsc::channel();
        let tell = move || sender.send(rustix::thread::gettid()).unwrap();
        let tell_too = tell.clone();
        let transfer = scope.spawn(move || {
            tell();
            transfer()
        });
        until_asleep(number.recv().unwrap(), fd.as_raw_fd(), side == Side::Sink);
        let others = scope.spawn(move || {
            tell_too();
            fill(&pipe.0, &pipe.1)
        });
        let thread = number.recv().unwrap();
        let ends = [pipe.0.as_raw_fd(), pipe.1.as_raw_fd()];
        while !others.is_finished() {
            let locked = waits_for_lock(thread, &ends);
            assert!(!locked, "who sleeps has the lock of the pipe");
            std::thread::yield_now();
        }
        wake(others.join().unwrap());
        transfer.join().unwrap()
    })
}

/// Returns sockets that accept hardly any bytes, each with its other end and the
/// number of bytes in it.
fn full_sockets() -> Vec<(OwnedFd, File, usize)> {
    let (sink, peer) = UnixStream::pair().unwrap();
    let filled = testkit::obstacle::fill_stream(&sink).unwrap();
    let mut all = vec![(sink.into(), OwnedFd::from(peer).into(), filled)];
    for trouble in [Trouble::Small, Trouble::Unsent] {
        let (sink, peer, filled) = stalled(trouble);
        all.push((sink.into(), OwnedFd::from(peer).into(), filled));
    }
    all
}

#[test]
fn a_socket_that_nobody_reads_keeps_no_pipe_locked() {
    let name = "a_socket_that_nobody_reads_keeps_no_pipe_locked";
    let _dog = watchdog(name);
    if missing(name, &[Need::Splice]) {
        return;
    }
    let data = pattern(14 * PAGE);
    for named in [false, true] {
        for (sink, mut peer, filled) in full_sockets() {
            let pipe = pipe(named);
            rustix::io::write(&pipe.1, &data).unwrap();
            let size = data.len() as u64 + 1;
            let request = Request {
                size: size.into(),
                ..any()
            };
            let transfer = || run(&pipe.0, &sink, request);
            let mut got = vec![0; filled + data.len() + 1];
            let into = &mut got[..];
            let report = asleep(transfer, (Side::Sink, &sink), &pipe, move |more| {
                assert!(more > 0);
                peer.read_exact(into).unwrap();
            })
            .report;
            assert_eq!((report.ended, report.written), (Ended::Size, size));
            assert_eq!(report.path, [Splice], "{report:?}");
            assert!(got[filled..][..data.len()] == data && got.last() == Some(&1));
        }
    }
}

/// What the socket did not accept is handed back, as a stream.
#[test]
fn a_socket_that_dies_hands_back_what_it_did_not_take() {
    let name = "a_socket_that_dies_hands_back_what_it_did_not_take";
    let _dog = watchdog(name);
    if missing(name, &[Need::Splice]) {
        return;
    }
    let data = pattern(14 * PAGE);
    for flags in [PipeFlags::CLOEXEC, PipeFlags::CLOEXEC | PipeFlags::DIRECT] {
        for (sink, peer, _) in full_sockets() {
            let pipe = pipe_with(flags).unwrap();
            data.chunks(4000).for_each(|packet| {
                assert_eq!(rustix::io::write(&pipe.1, packet), Ok(packet.len()));
            });
            let transfer = || run(&pipe.0, &sink, any());
            let mut more = 0;
            let outcome = asleep(transfer, (Side::Sink, &sink), &pipe, |n| {
                more = n;
                drop(peer);
            });
            let report = outcome.report;
            assert_eq!(
                (report.ended, report.failed),
                (Ended::Error, Some(Side::Sink))
            );
            assert_eq!(report.path, [Splice], "{report:?}");
            assert_eq!(report.read, report.written + report.stranded);
            let stranded = shortly(outcome.stranded.unwrap());
            assert_eq!(stranded.len() as u64, report.stranded);
            assert!(stranded == data[report.written as usize..], "{report:?}");
            // Later bytes are still in the source.
            assert_eq!(rustix::io::ioctl_fionread(&pipe.0), Ok(more as u64));
        }
    }
}

/// Reads a part of a packet at a time.
fn shortly(stranded: Stranded) -> Vec<u8> {
    let Stranded::Pipe(pipe) = stranded else {
        return handed_back(Some(stranded));
    };
    let (mut pipe, mut all, mut some) = (File::from(pipe), Vec::new(), [0; 300]);
    while let n @ 1.. = pipe.read(&mut some).unwrap() {
        all.extend_from_slice(&some[..n]);
    }
    all
}

/// Makes the server answer again when dropped, also after a panic.
struct Silent<'a>(&'a AtomicBool);

impl Drop for Silent<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[test]
fn a_file_whose_server_is_silent_keeps_no_pipe_locked() {
    let name = "a_file_whose_server_is_silent_keeps_no_pipe_locked";
    let _dog = watchdog(name);
    if missing(name, &[Need::Splice]) {
        return;
    }
    if !common::is_root() {
        testkit::skip::report(name, "mounting needs root");
        return;
    }
    let data = pattern(14 * PAGE);
    let silent = AtomicBool::new(false);
    let served = Served {
        holds: &data,
        claims: data.len() as u64,
        silent: Some(&silent),
        ..Served::default()
    };
    let mounted = with_file(served, |at| {
        for side in [Side::Sink, Side::Source] {
            let file = File::options().read(true).write(true).open(at).unwrap();
            let file = OwnedFd::from(file);
            let pipe = pipe(false);
            let size = data.len() as u64;
            let request = Request {
                size: size.into(),
                ..only(&[Splice])
            };
            silent.store(true, Ordering::Relaxed);
            let speaks = Silent(&silent);
            if side == Side::Sink {
                rustix::io::write(&pipe.1, &data).unwrap();
            }
            let transfer = || match side {
                Side::Sink => run(&pipe.0, &file, request),
                Side::Source => run(&file, &pipe.1, request),
            };
            let ends = pipe_ends(&pipe);
            let report = asleep(transfer, (side, &file), &ends, |more| {
                drop(speaks);
                if side == Side::Source {
                    rustix::io::read(&pipe.0, &mut vec![0; more]).unwrap();
                }
            })
            .report;
            assert_eq!((report.ended, report.written), (Ended::Size, size));
            assert_eq!(report.path, [Splice], "{report:?}");
        }
    });
    if !mounted {
        testkit::skip::report(name, "no FUSE here");
    }
}

/// The same pipe, by other descriptors.
fn pipe_ends(pipe: &(OwnedFd, OwnedFd)) -> (OwnedFd, OwnedFd) {
    let feed = format!("/proc/self/fd/{}", pipe.1.as_raw_fd());
    let feed = File::options().write(true).open(feed).unwrap();
    (pipe.0.try_clone().unwrap(), feed.into())
}

/// Transfers that share one source pipe: none ends before the writer does, none
/// fails, and together they have every byte once.
#[test]
fn several_readers_of_one_pipe_go_on_to_its_end() {
    let _dog = watchdog("several_readers_of_one_pipe_go_on_to_its_end");
    const WRITES: usize = 60_000;
    for to_pipes in [false, true] {
        let (source, feed) = std::io::pipe().unwrap();
        let closing = AtomicBool::new(false);
        let reader = |source: &std::io::PipeReader| {
            let mut file = tempfile::tempfile().unwrap();
            let report = if to_pipes {
                let (mut out, sink) = std::io::pipe().unwrap();
                std::thread::scope(|scope| {
                    let file = &mut file;
                    scope.spawn(move || std::io::copy(&mut out, file).unwrap());
                    let report = run(source, &sink, any()).report;
                    drop(sink);
                    report
                })
            } else {
                run(source, &file, any()).report
            };
            let early = !closing.load(Ordering::SeqCst);
            (report, early, file.metadata().unwrap().len())
        };
        let all = std::thread::scope(|scope| {
            let (source, reader) = (&source, &reader);
            let readers: Vec<_> = (0..3)
                .map(|_| scope.spawn(move || reader(source)))
                .collect();
            let mut feed = feed;
            for _ in 0..WRITES {
                feed.write_all(b"x").unwrap();
            }
            closing.store(true, Ordering::SeqCst);
            drop(feed);
            readers
                .into_iter()
                .map(|reader| reader.join().unwrap())
                .collect::<Vec<_>>()
        });
        let mut sum = 0;
        for (report, early, length) in all {
            assert_eq!(
                (report.ended, report.errno),
                (Ended::Eof, None),
                "{report:?}"
            );
            assert!(!early, "it ended before the writer: {report:?}");
            assert_eq!(report.written, length);
            sum += length;
        }
        assert_eq!(sum, WRITES as u64);
    }
}
