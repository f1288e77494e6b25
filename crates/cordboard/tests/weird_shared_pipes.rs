//! Blocking pipes that others read from and write to as well: what was ready a
//! moment ago is somebody else's by now, and the engine's thread must not wait
//! for it.

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::mpsc;

use common::{only, watchdog};
use cordboard::PathName::{Datagram, ReadWrite, Splice};
use cordboard::{Ended, Engine, Observer, Progress, Request, Running, Transfer};
use rustix::event::{PollFd, PollFlags, poll};
use testkit::refuse::{OPEN, apart, refuse};

const PAGE: usize = 4096;

/// Both ends of a pipe, blocking.
fn pipe(named: bool) -> (OwnedFd, OwnedFd) {
    if !named {
        return rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    }
    testkit::obstacle::fifo().unwrap()
}

/// What an old kernel, a sandbox, or both, do not have.
fn refused(calls: &[libc::c_long]) -> Vec<Vec<libc::c_long>> {
    vec![Vec::new(), calls.to_vec(), [calls, OPEN].concat()]
}

fn start(engine: &Engine, source: &OwnedFd, sink: impl Into<OwnedFd>, request: Request) -> Running {
    let source = source.try_clone().unwrap();
    let transfer = Transfer::owning(source, sink.into(), request).unwrap();
    engine.start(transfer).unwrap()
}

/// Holds up the thread that tells it of bytes until the test lets it go on.
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

/// Two transfers have one source, and a byte comes: both hear of it, and one
/// has it.
#[test]
fn two_that_read_one_pipe_wait_for_neither() {
    let _dog = watchdog("two_that_read_one_pipe_wait_for_neither");
    let calls = [libc::SYS_splice, libc::SYS_tee, libc::SYS_preadv2];
    for named in [false, true] {
        // Of a large buffer and of a small one.
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
                    // Both wait by now; when the thread looks again, both hear.
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

/// A full pipe that two transfers write to, and another transfer meanwhile.
fn two_that_write(what: &str, paths: [cordboard::PathName; 2], refused: &[libc::c_long]) {
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
            // It passes once both have been told of the room there is.
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
