//! Tests of what a transfer does with the windows that it measures. Their times are injected, and
//! most of their bytes are only counted.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use testkit::needs::{Need, missing};

use super::tests::request;
use super::ways::{PIECES, Ways};
use crate::Chosen;
use crate::request::{DataPath, Request, Schedule, Tune};
use crate::transfer::turn::Turn;
use crate::transfer::wait::Clock;
use crate::transfer::{Control, Transfer};
use crate::tune::{Arm, Controller};

/// The bytes of each window.
const WINDOW: u64 = 32 << 20;

pub(super) struct At(pub(super) Duration);

impl Clock for At {
    fn now(&mut self) -> Duration {
        self.0
    }
}

struct Sockets {
    feed: UnixStream,
    source: UnixStream,
    sink: UnixStream,
    peer: UnixStream,
}

impl Sockets {
    fn new() -> Sockets {
        let (feed, source) = UnixStream::pair().unwrap();
        let (sink, peer) = UnixStream::pair().unwrap();
        for socket in [&feed, &source, &sink, &peer] {
            socket.set_nonblocking(true).unwrap();
        }
        Sockets {
            feed,
            source,
            sink,
            peer,
        }
    }
}

/// A transfer that measures, and its first setting.
struct Driven<'a> {
    transfer: Transfer<'a>,
    sockets: &'a Sockets,
    start: Arm,
    began: Duration,
    now: Duration,
}

impl<'a> Driven<'a> {
    fn new(sockets: &'a Sockets, request: Request, control: &Control) -> Driven<'a> {
        let transfer = Transfer::new(sockets.source.as_fd(), sockets.sink.as_fd(), request);
        let mut transfer = transfer.unwrap().control(control);
        assert!(transfer.tunes);
        // Only the processor time of the steps counts.
        transfer.flow.mode.share_thread();
        assert!(transfer.current_path().is_ok_and(|path| path.is_some()));
        let began = Duration::from_secs(1000);
        let mut tuning = transfer.start_tuning(began).unwrap();
        // Another test may have stored a search, which it would continue.
        let start = tuning.ways.arm(transfer.path(), 0).unwrap();
        tuning.controller = Controller::new(&tuning.ways, start, tuning.key.goal);
        tuning.compared = began;
        transfer.tuning = Some(Box::new(tuning));
        Driven {
            transfer,
            sockets,
            start,
            began,
            now: began,
        }
    }

    fn controller(&self) -> &Controller {
        &self.transfer.tuning.as_ref().unwrap().controller
    }

    fn ways(&self) -> &Ways {
        &self.transfer.tuning.as_ref().unwrap().ways
    }

    /// Moves some bytes with the setting that the controller has chosen.
    fn move_some(&mut self) {
        let before = self.transfer.flow.written();
        for _ in 0..1000 {
            // A full buffer is enough for the next step too.
            let _ = rustix::io::write(&self.sockets.feed, &[1; 4096]);
            self.now += Duration::from_micros(10);
            self.transfer.take_grant(&mut At(self.now));
            match self.transfer.step() {
                Turn::Moved(_) | Turn::Blocked(_) | Turn::HeldBack => {}
                turn => panic!("{turn:?}"),
            }
            let mut buffer = [0; 64 << 10];
            while rustix::io::read(&self.sockets.peer, &mut buffer).is_ok_and(|read| read > 0) {}
            let is_ready = !self.transfer.drains() && !self.transfer.holds();
            if is_ready && self.transfer.flow.written() > before {
                let arm = self.controller().current();
                let chosen = (self.ways().path(arm), Some(PIECES[Ways::piece(arm)]));
                let (path, step) = self.transfer.current.as_ref().unwrap();
                assert_eq!((*path, step.piece()), chosen);
                return;
            }
        }
        panic!("it moves nothing");
    }

    /// Lets the bytes of a window pass in this time, with this processor time.
    fn window(&mut self, millis: u64, spent: u64) {
        self.move_some();
        self.transfer.flow.took(WINDOW);
        self.transfer.flow.gave(WINDOW);
        self.now += Duration::from_millis(millis);
        self.transfer.tuning.as_mut().unwrap().spent += Duration::from_millis(spent);
        self.transfer.measure(self.now);
    }

    /// Lets 200 windows pass, whose times depend on whether the setting is the first one. Returns
    /// whether another one was compared with it, and whether it is still the best one.
    fn is_compared(&mut self, of_first: u64, of_others: u64) -> (bool, bool) {
        for _ in 0..200 {
            let millis = match self.controller().current() == self.start {
                true => of_first,
                false => of_others,
            };
            self.window(millis, millis / 3);
        }
        let is_compared = self.controller().comparisons() > 0;
        // Otherwise what an earlier transfer has found is not renewed.
        let compared = self.transfer.tuning.as_ref().unwrap().compared;
        assert_eq!(compared > self.began, is_compared);
        (is_compared, self.controller().best() == self.start)
    }
}

/// The fastest setting is a call of 512 KiB of a path that is not the first one.
#[test]
fn the_fastest_setting_is_used_and_reported() {
    if missing("the_fastest_setting_is_used_and_reported", &[Need::Splice]) {
        return;
    }
    let (sockets, control) = (Sockets::new(), Control::without_descriptor());
    let mut driven = Driven::new(&sockets, request(), &control);
    let first = driven.transfer.path();
    let other = match first {
        DataPath::Splice => DataPath::ReadWrite,
        _ => DataPath::Splice,
    };
    let fastest = driven.ways().arm(other, 3).unwrap();
    let is_settled = (0..1000).any(|_| {
        let arm = driven.controller().current();
        let millis = match driven.ways().path(arm) == other {
            true => 6 + arm.abs_diff(fastest) as u64,
            false => 12,
        };
        driven.window(millis, 0);
        driven.controller().is_settled()
    });
    assert!(is_settled);
    driven.move_some();
    assert_eq!(driven.controller().current(), fastest);
    let used = driven.transfer.by_path();
    assert_eq!(used[0].path, first);
    assert!(used.iter().all(|one| one.bytes > WINDOW), "{used:?}");
    let best: Vec<_> = (used.iter().filter(|one| one.chosen == Chosen::Best))
        .map(|one| (one.path, one.piece))
        .collect();
    assert_eq!(best, [(other, Some(512 << 10))]);
}

/// A setting is not slow because the peer was idle while it was used, and the best one is not
/// left because the peer was idle before.
#[test]
fn a_wait_for_the_peer_is_not_measured() {
    if missing("a_wait_for_the_peer_is_not_measured", &[Need::Splice]) {
        return;
    }
    let found = [(10, 25), (25, 10), (10, 15), (15, 10)].map(|(of_first, of_others)| {
        let (sockets, control) = (Sockets::new(), Control::without_descriptor());
        let mut driven = Driven::new(&sockets, request(), &control);
        driven.is_compared(of_first, of_others)
    });
    let [slow_with_others, slow_with_first, slower, faster] = found;
    assert_eq!(slow_with_others, (false, true));
    assert_eq!(slow_with_first, (false, true));
    // Steps without a wait are measured.
    assert_eq!(slower, (true, true));
    assert_eq!(faster, (true, false));
}

/// Under a schedule all settings have the same rate, whatever they could have, but not the same
/// processor time.
#[test]
fn the_rate_is_not_measured_under_a_schedule() {
    if missing("the_rate_is_not_measured_under_a_schedule", &[Need::Splice]) {
        return;
    }
    let control = Control::without_descriptor();
    // A rate would be granted at intervals, which are waits.
    control.set_schedule(Schedule::blocks(1 << 24, Duration::from_millis(1)));
    let found = [Tune::On, Tune::Processor].map(|tune| {
        let request = Request {
            tune: Some(tune),
            ..request()
        };
        let sockets = Sockets::new();
        Driven::new(&sockets, request, &control).is_compared(15, 9)
    });
    assert_eq!(found, [(false, true), (true, false)]);
}
