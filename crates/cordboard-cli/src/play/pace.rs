//! When each frame is due. Nothing here reads a clock: the time is an argument.

use std::time::Duration;

/// The times of the frames. Each is counted from the start (or from the last
/// change of speed) and not from the frame before, so that delays do not
/// accumulate.
#[derive(Debug, Clone, PartialEq)]
pub struct Pace {
    /// Frames per second at normal speed.
    fps: f64,
    speed: f64,
    /// A frame, and when it is due, from which all others are counted.
    anchor: (u64, Duration),
    next: u64,
}

impl Pace {
    /// Frame 0 is due at `start`.
    pub fn new(fps: f64, speed: f64, start: Duration) -> Pace {
        Pace {
            fps,
            speed,
            anchor: (0, start),
            next: 0,
        }
    }

    /// The number of the next frame, from 0.
    pub fn frame(&self) -> u64 {
        self.next
    }

    /// The multiple of the normal speed.
    pub fn speed(&self) -> f64 {
        self.speed
    }

    /// When the next frame is due.
    pub fn due(&self) -> Duration {
        self.at(self.next)
    }

    /// When the frame after it is due: until then the next one is on time.
    pub fn end(&self) -> Duration {
        self.at(self.next + 1)
    }

    /// Goes on to the next frame.
    pub fn advance(&mut self) {
        self.next += 1;
    }

    /// Changes the speed from `now` on: the rest of the wait for the next frame
    /// changes with it. A late frame stays as late as it is.
    pub fn set_speed(&mut self, speed: f64, now: Duration) {
        let due = self.due();
        let left = due.saturating_sub(now).as_secs_f64() * self.speed / speed;
        let due = match due > now {
            true => now.saturating_add(seconds(left)),
            false => due,
        };
        self.anchor = (self.next, due);
        self.speed = speed;
    }

    /// Delays the next frame and all after it.
    pub fn delay(&mut self, by: Duration) {
        self.anchor = (self.next, self.due().saturating_add(by));
    }

    fn at(&self, frame: u64) -> Duration {
        let frames = (frame - self.anchor.0) as f64;
        (self.anchor.1).saturating_add(seconds(frames / (self.fps * self.speed)))
    }
}

/// A time that is too long to represent is never reached.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1000);

    fn after(pace: &mut Pace, frames: u64) -> Duration {
        for _ in 0..frames {
            pace.advance();
        }
        pace.due() - START
    }

    #[test]
    fn ten_hours_of_ntsc_do_not_drift() {
        let mut pace = Pace::new(30000.0 / 1001.0, 1.0, START);
        assert_eq!(pace.due(), START);
        assert_eq!(after(&mut pace, 1), Duration::from_nanos(33_366_667));
        assert_eq!(after(&mut pace, 1_079_999), Duration::from_secs(36_036));
    }

    #[test]
    fn fast_forward_and_slow_motion() {
        let mut fast = Pace::new(25.0, 2.0, START);
        assert_eq!(after(&mut fast, 50), Duration::from_secs(1));
        let mut slow = Pace::new(25.0, 0.5, START);
        assert_eq!(after(&mut slow, 25), Duration::from_secs(2));
    }

    #[test]
    fn a_change_of_speed_takes_the_rest_of_the_wait_along() {
        let mut pace = Pace::new(1.0, 1.0, START);
        pace.advance();
        // Due in 600 ms; at double speed in 300.
        pace.set_speed(2.0, START + Duration::from_millis(400));
        assert_eq!(pace.due() - START, Duration::from_millis(700));
        assert_eq!(pace.end() - START, Duration::from_millis(1200));
        assert_eq!(after(&mut pace, 4), Duration::from_millis(2700));
    }

    #[test]
    fn what_is_late_is_not_excused_by_a_change_of_speed() {
        let mut pace = Pace::new(1.0, 1.0, START);
        pace.advance();
        pace.set_speed(0.5, START + Duration::from_secs(5));
        assert_eq!(pace.due() - START, Duration::from_secs(1));
        assert_eq!(after(&mut pace, 1), Duration::from_secs(3));
    }

    #[test]
    fn a_delay_is_the_same_for_all_that_come() {
        let mut pace = Pace::new(1.0, 2.0, START);
        pace.advance();
        pace.delay(Duration::from_secs(10));
        assert_eq!(pace.due() - START, Duration::from_millis(10_500));
        assert_eq!(after(&mut pace, 3), Duration::from_secs(12));
        pace.delay(Duration::MAX);
        assert_eq!(pace.end(), Duration::MAX);
    }

    #[test]
    fn slower_than_time_itself() {
        let mut pace = Pace::new(1e-6, 0.01, Duration::MAX - Duration::from_secs(1));
        pace.advance();
        assert_eq!(pace.due(), Duration::MAX);
        pace.set_speed(100.0, START);
        assert!(pace.due() > START);
    }
}
