//! Transfers that are blocked, on the same engine as the others.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use cordboard::{Ended, Engine, Request, Running, Size, Transfer};
use fastrand::Rng;
use testkit::locked::Locked;
use testkit::obstacle;
use testkit::stalled::{self, TROUBLES, Trouble};

use crate::common::{any, handed_back};

pub struct Obstacle {
    name: &'static str,
    /// A locked pipe may block any call on it, including one of the start.
    starting: JoinHandle<Running>,
    lock: Option<Locked>,
    /// The far ends, which are neither read nor written.
    _far: Vec<OwnedFd>,
    idle: bool,
}

fn trouble(rng: &mut Rng) -> Trouble {
    TROUBLES[rng.usize(..TROUBLES.len())]
}

fn zeros() -> OwnedFd {
    File::open("/dev/zero").unwrap().into()
}

/// A pipe with this many bytes in it and an open writer.
fn fed(bytes: usize, far: &mut Vec<OwnedFd>) -> OwnedFd {
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&vec![0; bytes]).unwrap();
    far.push(writer.into());
    reader.into()
}

/// A pipe without reads.
fn unread(far: &mut Vec<OwnedFd>) -> OwnedFd {
    let (reader, writer) = std::io::pipe().unwrap();
    far.push(reader.into());
    writer.into()
}

impl Obstacle {
    pub fn start(engine: &Arc<Engine>, rng: &mut Rng) -> Obstacle {
        let mut far = Vec::new();
        let mut lock = None;
        let (name, source, sink) = match rng.u8(..9) {
            0 => {
                let (near, peer) = stalled::pair(trouble(rng));
                far.push(peer.into());
                ("a connection that nobody reads", zeros(), near.into())
            }
            1 => {
                let (near, peer, _) = stalled::stalled(trouble(rng));
                far.push(peer.into());
                ("a connection that takes no more", zeros(), near.into())
            }
            2 => {
                let (near, peer) = stalled::silent(trouble(rng));
                far.push(peer.into());
                let sink = unread(&mut far);
                ("a silent connection", near.into(), sink)
            }
            3 => {
                let (slave, master) = obstacle::terminal().unwrap();
                far.push(master);
                ("a terminal that nobody reads", zeros(), slave)
            }
            4 => {
                let (slave, master) = obstacle::terminal().unwrap();
                far.push(slave);
                ("a terminal's master that nobody reads", zeros(), master)
            }
            5 => {
                let (slave, master) = obstacle::terminal().unwrap();
                far.push(master);
                let sink = unread(&mut far);
                ("a silent terminal", slave, sink)
            }
            6 if can_be_locked() => {
                let pipe = lock.insert(Locked::new());
                let sink = pipe.writer.try_clone().unwrap().into();
                ("a locked sink", fed(1000, &mut far), sink)
            }
            7 if can_be_locked() => {
                let pipe = lock.insert(Locked::new());
                let source = pipe.reader.try_clone().unwrap().into();
                let (near, peer) = obstacle::tcp().unwrap();
                far.push(peer);
                ("a locked source", source, near)
            }
            _ => {
                let source = fed(0, &mut far);
                ("a silent pipe", source, unread(&mut far))
            }
        };
        let idle = lock.is_none() && rng.bool();
        let request = Request {
            size: Size::Eof,
            idle: idle.then(|| Duration::from_millis(rng.u64(1..30))),
            ..any()
        };
        let engine = Arc::clone(engine);
        let starting = std::thread::spawn(move || {
            let transfer = Transfer::owning(source, sink, request)
                .unwrap_or_else(|failure| panic!("{name}: {failure}"));
            engine.start(transfer).unwrap()
        });
        Obstacle {
            name,
            starting,
            lock,
            _far: far,
            idle,
        }
    }

    /// Ends it in a random way.
    pub fn end(self, rng: &mut Rng) {
        // No call on a locked pipe returns before the lock is released. The pipe's
        // ends stay open: the source has not ended.
        let _ends = self.lock.map(Locked::release);
        let running = self.starting.join().unwrap();
        if rng.u8(..) < 32 {
            return drop(running);
        }
        if !self.idle {
            running.cancel();
        }
        let outcome = running.wait();
        let report = outcome.report;
        let ended = if self.idle {
            Ended::Idle
        } else {
            Ended::Cancelled
        };
        assert_eq!(report.ended, ended, "{}: {report:?}", self.name);
        let stranded = handed_back(outcome.stranded);
        assert_eq!(stranded.len() as u64, report.stranded, "{}", self.name);
        assert_eq!(report.read, report.written + report.stranded, "{report:?}");
    }
}

/// Whether a pipe can be locked here, which needs `splice(2)`.
fn can_be_locked() -> bool {
    !testkit::needs::missing("a pipe that is locked", &[testkit::needs::Need::Splice])
}
