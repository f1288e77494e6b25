//! Simulated films.

use std::collections::VecDeque;

use super::*;

const MS: Duration = Duration::from_millis(1);
const START: Duration = Duration::from_secs(50);
const FRAME: u64 = 10;

/// An environment in which each wait takes exactly its time.
struct Made {
    now: Duration,
    /// Remaining bytes of the film.
    left: u64,
    /// How long the sink takes for each frame; 0 after the last.
    costs: VecDeque<Duration>,
    /// Orders, and when they come.
    orders: VecDeque<(Duration, Wake)>,
    /// What has happened, and when.
    log: Vec<(char, u32)>,
}

impl Made {
    fn new(frames: u64, costs: &[u32]) -> Made {
        Made {
            now: START,
            left: frames * FRAME,
            costs: costs.iter().map(|ms| MS * *ms).collect(),
            orders: VecDeque::new(),
            log: Vec::new(),
        }
    }

    fn take(&mut self, what: char) -> Step {
        let bytes = self.left.min(FRAME);
        self.left -= bytes;
        self.log(what);
        let then = match bytes {
            FRAME => Then::Next,
            _ => Then::End,
        };
        Step { bytes, then }
    }

    fn log(&mut self, what: char) {
        let at = (self.now - START).as_millis() as u32;
        self.log.push((what, at));
    }

    fn run(&mut self, speed: f64, drop: bool) -> (Close, Tally) {
        // 100 frames a second: one every 10 ms.
        let mut tally = Tally::new(START, speed);
        let pace = Pace::new(100.0, speed, START);
        let close = show_frames(self, pace, drop, &mut tally);
        (close, tally)
    }
}

impl Environment for Made {
    fn now(&mut self) -> Duration {
        self.now
    }

    fn wait(&mut self, until: Duration, _: &Tally) -> Wake {
        match self.orders.front() {
            Some((at, _)) if *at <= until => {
                let (at, wake) = self.orders.pop_front().expect("there is one");
                self.now = self.now.max(at);
                wake
            }
            _ => {
                self.now = self.now.max(until);
                Wake::Due
            }
        }
    }

    fn show(&mut self, _: &Tally) -> Step {
        let step = self.take('s');
        self.now += self.costs.pop_front().unwrap_or_default();
        step
    }

    fn skip(&mut self, _: &Tally) -> Step {
        self.take('x')
    }
}

#[test]
fn each_frame_when_it_is_due_and_the_last_for_its_whole_time() {
    let mut environment = Made::new(3, &[1, 2, 3]);
    let (close, tally) = environment.run(1.0, false);
    assert_eq!(close, Close::End);
    // The end is reached when a fourth frame would be due.
    assert_eq!(environment.log, [('s', 0), ('s', 10), ('s', 20), ('s', 30)]);
    assert_eq!((tally.frames, tally.late, tally.dropped), (3, 0, 0));
    let lateness = tally.lateness().unwrap();
    assert_eq!(
        (lateness.min, lateness.median, lateness.max),
        (1.0, 2.0, 3.0)
    );
}

#[test]
fn a_slow_sink_makes_frames_late_and_loses_none() {
    let mut environment = Made::new(5, &[0, 25]);
    let (_, tally) = environment.run(1.0, false);
    let begun = [
        ('s', 0),
        ('s', 10),
        ('s', 35),
        ('s', 35),
        ('s', 40),
        ('s', 50),
    ];
    assert_eq!(environment.log, begun);
    // Frames 1 and 2 were not complete when the next was due.
    assert_eq!((tally.frames, tally.late, tally.dropped), (5, 2, 0));
    let lateness = tally.lateness().unwrap();
    assert_eq!((lateness.min, lateness.max), (0.0, 25.0));
}

#[test]
fn dropping_leaves_out_those_whose_time_is_over() {
    let mut environment = Made::new(6, &[0, 25]);
    let (_, tally) = environment.run(1.0, true);
    let done = [
        ('s', 0),
        ('s', 10),
        ('x', 35),
        ('s', 35),
        ('s', 40),
        ('s', 50),
        ('s', 60),
    ];
    assert_eq!(environment.log, done);
    assert_eq!(
        (tally.frames, tally.dropped, tally.dropped_bytes),
        (5, 1, FRAME)
    );
    assert_eq!(tally.late, 1);
}

#[test]
fn the_end_may_come_while_frames_are_dropped() {
    let mut environment = Made::new(3, &[100]);
    environment.left -= 4;
    let (close, tally) = environment.run(1.0, true);
    assert_eq!((close, environment.left), (Close::End, 0));
    assert_eq!(
        (tally.frames, tally.dropped, tally.dropped_bytes),
        (1, 2, 16)
    );
}

#[test]
fn the_speed_is_changed_while_it_runs() {
    let mut environment = Made::new(6, &[]);
    environment.orders = [
        (START + 15 * MS, Wake::Order(Order::Times(0.5))),
        (START + 40 * MS, Wake::Order(Order::Plain)),
        (START + 50 * MS, Wake::Order(Order::Times(1e9))),
    ]
    .into();
    let (close, tally) = environment.run(1.0, false);
    assert_eq!(close, Close::End);
    // At 15, 5 of 10 ms are left, which become 10. At 40, 5 of 20 ms are left,
    // which become 2.5. At 50, 2.5 of 10 ms are left, of which a hundredth is 0
    // in whole milliseconds.
    let begun = [
        ('s', 0),
        ('s', 10),
        ('s', 25),
        ('s', 42),
        ('s', 50),
        ('s', 50),
        ('s', 50),
    ];
    assert_eq!(environment.log, begun);
    assert_eq!((tally.frames, tally.speed), (6, *SPEEDS.end()));
}

#[test]
fn a_pause_makes_nothing_late() {
    for drop in [false, true] {
        let mut environment = Made::new(5, &[]);
        environment.orders = [
            (START + 14 * MS, Wake::Order(Order::Pause)),
            // A change of speed applies to the rest of the wait, 6 of 10 ms.
            (START + 500 * MS, Wake::Order(Order::Times(0.5))),
            (START + 600 * MS, Wake::Due),
            (START + 1000 * MS, Wake::Order(Order::Pause)),
        ]
        .into();
        let (close, tally) = environment.run(1.0, drop);
        let begun = [0, 10, 1012, 1032, 1052, 1072].map(|at| ('s', at));
        assert_eq!((close, &environment.log[..]), (Close::End, &begun[..]));
        assert_eq!((tally.frames, tally.late, tally.dropped), (5, 0, 0));
        assert!(!tally.paused);
    }
}

#[test]
fn the_user_may_quit_during_a_pause() {
    let mut environment = Made::new(5, &[]);
    environment.orders = [
        (START, Wake::Order(Order::Pause)),
        (START + 70 * MS, Wake::Order(Order::Quit)),
    ]
    .into();
    let (close, tally) = environment.run(1.0, false);
    assert_eq!((close, tally.frames, tally.paused), (Close::Quit, 0, true));
}

#[test]
fn the_user_or_a_signal_may_end_it() {
    for (wake, expected) in [
        (Wake::Order(Order::Quit), Close::Quit),
        (Wake::Over, Close::Over),
    ] {
        let mut environment = Made::new(1000, &[]);
        environment.orders.push_back((START + 17 * MS, wake));
        let (close, tally) = environment.run(2.0, false);
        assert_eq!(
            (close, tally.frames),
            (expected, 4),
            "{:?}",
            environment.log
        );
    }
}
