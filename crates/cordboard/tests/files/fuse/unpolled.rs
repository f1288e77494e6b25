//! A FUSE server may never answer `poll(2)`. The wait for it would stop every transfer of an
//! engine, and neither a cancel nor an idle limit would end it. So a file of FUSE is not
//! polled. The server of these tests would answer, because the kernel cannot end a process
//! that waits for a server of its own (`request_wait_answer`, fs/fuse/dev.c).

use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cordboard::{Buffered, FanIn, FanOut};

use super::*;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Runner {
    Thread,
    Engine,
    Stepping,
}

fn by(runner: Runner, source: OwnedFd, sink: OwnedFd, request: Request) -> Report {
    let transfer = Transfer::owning(source, sink, request).unwrap();
    match runner {
        Runner::Thread => transfer.run().report,
        Runner::Engine => transfer.start().unwrap().wait().report,
        Runner::Stepping => {
            use rustix::event::{PollFd, PollFlags, poll};
            let mut stepping = transfer.stepping().unwrap();
            loop {
                if let Some(outcome) = stepping.step() {
                    return outcome.report;
                }
                poll(&mut [PollFd::new(&stepping, PollFlags::IN)], None).unwrap();
            }
        }
    }
}

/// The server answers `EAGAIN` to each read and write, to those from an offset in the file on,
/// or to none. Its `statfs(2)` may fail, so that only the list of mounts shows that the
/// file system is FUSE.
#[test]
fn a_file_is_not_polled() {
    let _dog = watchdog("a_file_is_not_polled");
    if !common::is_root() {
        testkit::skip::here("mounting needs root");
        return;
    }
    let data = pattern(1 << 20);
    let runners = [Runner::Thread, Runner::Engine, Runner::Stepping];
    for statfs in [0, Errno::EIO.raw()] {
        for good in [0, 1 << 18, 1 << 21] {
            let polls = AtomicU32::new(0);
            let served = Served {
                holds: &data,
                claims: data.len() as u64,
                direct: true,
                inside: true,
                statfs,
                fails: (good, Errno::EAGAIN.raw()),
                polls: Some(&polls),
                ..Served::default()
            };
            let mounted = with_file(served, |at| {
                for (runner, nonblocking) in runners.iter().flat_map(|r| [(*r, false), (*r, true)])
                {
                    let open = || {
                        let flags = if nonblocking { libc::O_NONBLOCK } else { 0 };
                        let mut options = File::options();
                        let options = options.read(true).write(true).custom_flags(flags);
                        options.open(at).unwrap().into()
                    };
                    let ended = match (good > 1 << 20, nonblocking) {
                        (true, _) => Ended::Eof,
                        (false, true) => Ended::Idle,
                        (false, false) => Ended::Error,
                    };
                    // No pause of a slow machine ends a transfer that is to move all.
                    let limit = match ended {
                        Ended::Idle => Duration::from_millis(10),
                        _ => Duration::from_secs(3600),
                    };
                    let request = Request {
                        idle: nonblocking.then_some(limit),
                        ..only(&[ReadWrite])
                    };
                    let check = |report: Report, side| {
                        let what = format!(
                            "{runner:?}, statfs {statfs}, good up to {good}, {side}: {report:?}"
                        );
                        assert_eq!(report.ended, ended, "{what}");
                        let failed = (ended == Ended::Error).then_some(side);
                        assert_eq!(report.failed, failed, "{what}");
                        assert!(report.written <= good, "{what}");
                        assert_eq!(polls.load(Ordering::Relaxed), 0, "{what}");
                    };
                    for kind in [From::File, From::Pipe, From::Tcp] {
                        let (sink, reader) = sink(kind);
                        let report = by(runner, open(), sink, request.clone());
                        assert!(
                            reader.all() == data[..report.written as usize],
                            "{report:?}"
                        );
                        check(report, Side::Source);
                        let source = common::Source::new(kind, &data);
                        check(by(runner, source.fd, open(), request.clone()), Side::Sink);
                    }
                }
            });
            if !mounted {
                testkit::skip::here("no FUSE here");
                return;
            }
        }
    }
}

/// Runs the composition of this name. Returns its end, and the bytes in the sink.
fn composed(name: &str, source: &OwnedFd, request: Request) -> (Ended, Vec<u8>) {
    let sink = tempfile::tempfile().unwrap();
    let (from, into) = (source.as_fd(), sink.as_fd());
    let ended = match name {
        "buffer" => {
            let buffered = Buffered::new(from, into, 1 << 20, request).unwrap();
            buffered.run().unwrap().ended
        }
        "fan-in" => {
            let fan = FanIn::new(&[from], into, request).unwrap();
            fan.run().unwrap().ended
        }
        _ => {
            let fan = FanOut::new(from, &[into], request).unwrap();
            fan.run().unwrap().ended
        }
    };
    (ended, content(&sink))
}

#[test]
fn the_source_of_a_composition_is_not_polled() {
    let _dog = watchdog("the_source_of_a_composition_is_not_polled");
    if !common::is_root() {
        testkit::skip::here("mounting needs root");
        return;
    }
    let data = pattern(1 << 20);
    for good in [0, 1 << 18, 1 << 21] {
        let polls = AtomicU32::new(0);
        let served = Served {
            holds: &data,
            claims: data.len() as u64,
            direct: true,
            fails: (good, Errno::EAGAIN.raw()),
            polls: Some(&polls),
            ..Served::default()
        };
        let mounted = with_file(served, |at| {
            let names = ["buffer", "fan-in", "fan-out"];
            for (name, nonblocking) in names.iter().flat_map(|n| [(*n, false), (*n, true)]) {
                let what = format!("{name}, good up to {good}, nonblocking {nonblocking}");
                let flags = if nonblocking { libc::O_NONBLOCK } else { 0 };
                let source = File::options().read(true).custom_flags(flags).open(at);
                let is_whole = good > 1 << 20;
                let request = Request {
                    idle: (nonblocking && !is_whole).then_some(Duration::from_millis(10)),
                    ..only(&[ReadWrite])
                };
                let (ended, got) = composed(name, &source.unwrap().into(), request);
                let expected = match (is_whole, nonblocking) {
                    (true, _) => Ended::Eof,
                    (false, true) => Ended::Idle,
                    (false, false) => Ended::Error,
                };
                assert_eq!(ended, expected, "{what}");
                assert!(got == data[..got.len()], "{what}");
                let length = data.len().min(good as usize);
                // The idle limit may come before.
                let is_short = got.len() < length && ended == Ended::Idle;
                assert!(got.len() == length || is_short, "{what}: {}", got.len());
                assert_eq!(polls.load(Ordering::Relaxed), 0, "{what}");
            }
        });
        if !mounted {
            testkit::skip::here("no FUSE here");
            return;
        }
    }
}
