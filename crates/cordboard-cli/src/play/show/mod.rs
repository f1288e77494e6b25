//! The player's loop, Figure 1 of the paper: a frame, and then the wait for the
//! timer. The time, the frames and the orders are provided from outside, so
//! that tests can simulate them.

use std::time::Duration;

use super::pace::Pace;
use super::tally::{Shown, Tally};
use crate::units::SPEEDS;

/// An order of the user, given by keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Order {
    /// Change the speed by this factor.
    Times(f64),
    /// Reset the speed.
    Plain,
    /// Pause, or resume.
    Pause,
    /// Quit.
    Quit,
}

/// What has ended a wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wake {
    /// The time has come.
    Due,
    /// The user has given an order.
    Order(Order),
    /// A signal or a failure elsewhere: nothing more is shown.
    Over,
}

/// The result for one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Bytes of it that were written, or skipped.
    pub bytes: u64,
    /// How the loop continues.
    pub then: Then,
}

/// How the loop continues after a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// With the next frame: this one was whole.
    Next,
    /// Not at all: the source has ended.
    End,
    /// Not at all: the frame has failed, or was interrupted.
    Over,
}

/// Why the loop has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// The last frame was shown for its whole time.
    End,
    /// The user has quit.
    Quit,
    /// See [`Then::Over`] and [`Wake::Over`].
    Over,
}

/// The environment of the loop.
pub trait Environment {
    /// The time since some fixed moment.
    fn now(&mut self) -> Duration;
    /// Waits until this time, or another event.
    fn wait(&mut self, until: Duration, tally: &Tally) -> Wake;
    /// Writes a frame to the sink.
    fn show(&mut self, tally: &Tally) -> Step;
    /// Skips a frame.
    fn skip(&mut self, tally: &Tally) -> Step;
}

/// Shows frame after frame, each when it is due. A late frame is still shown,
/// and the next ones as fast as the sink takes them until the delay is made up.
/// With `drop`, frames whose display time is over before they begin are
/// omitted. During a pause, no frame becomes due or late.
pub fn show_frames(
    environment: &mut dyn Environment,
    mut pace: Pace,
    drop: bool,
    tally: &mut Tally,
) -> Close {
    let mut still: Option<Duration> = None;
    loop {
        let due = match still {
            Some(_) => Duration::MAX,
            None => pace.due(),
        };
        let wake = environment.wait(due, tally);
        if let Some(since) = &mut still {
            let now = environment.now();
            pace.delay(now.saturating_sub(*since));
            *since = now;
        }
        match wake {
            Wake::Due if still.is_some() => continue,
            Wake::Due => {}
            Wake::Order(Order::Pause) => {
                still = still.xor(Some(environment.now()));
                tally.paused = still.is_some();
                continue;
            }
            Wake::Over => return Close::Over,
            Wake::Order(Order::Quit) => return Close::Quit,
            Wake::Order(Order::Times(factor)) => {
                let speed = (pace.speed() * factor).clamp(*SPEEDS.start(), *SPEEDS.end());
                pace.set_speed(speed, environment.now());
                tally.speed = speed;
                continue;
            }
            Wake::Order(Order::Plain) => {
                pace.set_speed(1.0, environment.now());
                tally.speed = 1.0;
                continue;
            }
        }
        let begun = environment.now();
        let step = if drop && begun >= pace.end() {
            let step = environment.skip(tally);
            tally.dropped(step.bytes);
            step
        } else {
            let step = environment.show(tally);
            if step.then == Then::Next {
                tally.shown(&Shown {
                    frame: pace.frame(),
                    due,
                    begun,
                    done: environment.now(),
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
