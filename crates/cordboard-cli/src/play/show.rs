//! The player's loop, the paper's Figure 1: a frame, and then the wait for the
//! timer. The time, the frames and the wishes of people come from outside, so
//! that tests make them up.

use std::time::Duration;

use super::pace::Pace;
use super::tally::{Shown, Tally};
use crate::units::SPEEDS;

/// A wish of whoever watches. Keys are where they come from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Order {
    /// So many times as fast as now.
    Times(f64),
    /// The plain speed.
    Plain,
    /// To stand still; the next time, to go on.
    Pause,
    /// No more.
    Quit,
}

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wake {
    /// The time has come.
    Due,
    /// Somebody wishes something.
    Order(Order),
    /// A signal, or a failure elsewhere: nothing more is to be shown.
    Over,
}

/// What came of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Bytes of it that were passed on, or passed over.
    pub bytes: u64,
    /// How it goes on.
    pub then: Then,
}

/// How it goes on after a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// With the next one: this one was whole.
    Next,
    /// Not at all: the source has ended.
    End,
    /// Not at all: it failed, or was interrupted.
    Over,
}

/// Why the loop came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// The last frame was shown, for as long as a frame is.
    End,
    /// Somebody wished it.
    Quit,
    /// See [`Then::Over`] and [`Wake::Over`].
    Over,
}

/// All that the loop knows of the world.
pub trait World {
    /// The time since some fixed moment.
    fn now(&mut self) -> Duration;
    /// Waits until then, or for something else that matters.
    fn wait(&mut self, until: Duration, tally: &Tally) -> Wake;
    /// Passes a frame on to the sink.
    fn show(&mut self, tally: &Tally) -> Step;
    /// Passes a frame over.
    fn skip(&mut self, tally: &Tally) -> Step;
}

/// Shows frame after frame, each when it is due. One that comes late is still
/// shown, and the next ones as fast as the sink takes them until time is made
/// up for; with `drop`, those whose time is over before they begin are left out.
/// While it stands still, no frame becomes due, and none becomes late.
pub fn show_frames(world: &mut dyn World, mut pace: Pace, drop: bool, tally: &mut Tally) -> Close {
    let mut still: Option<Duration> = None;
    loop {
        let due = match still {
            Some(_) => Duration::MAX,
            None => pace.due(),
        };
        let wake = world.wait(due, tally);
        if let Some(since) = &mut still {
            let now = world.now();
            pace.delay(now.saturating_sub(*since));
            *since = now;
        }
        match wake {
            Wake::Due if still.is_some() => continue,
            Wake::Due => {}
            Wake::Order(Order::Pause) => {
                still = still.xor(Some(world.now()));
                tally.paused = still.is_some();
                continue;
            }
            Wake::Over => return Close::Over,
            Wake::Order(Order::Quit) => return Close::Quit,
            Wake::Order(Order::Times(factor)) => {
                let speed = (pace.speed() * factor).clamp(*SPEEDS.start(), *SPEEDS.end());
                pace.set_speed(speed, world.now());
                tally.speed = speed;
                continue;
            }
            Wake::Order(Order::Plain) => {
                pace.set_speed(1.0, world.now());
                tally.speed = 1.0;
                continue;
            }
        }
        let begun = world.now();
        let step = if drop && begun >= pace.end() {
            let step = world.skip(tally);
            tally.dropped(step.bytes);
            step
        } else {
            let step = world.show(tally);
            if step.then == Then::Next {
                tally.shown(&Shown {
                    frame: pace.frame(),
                    due,
                    begun,
                    done: world.now(),
                    end: pace.end(),
                });
            }
            step
        };
        match step.then {
            Then::Next => pace.advance(),
            Then::End => return Close::End,
            Then::Over => return Close::Over,
        }
    }
}

#[cfg(test)]
mod tests;
