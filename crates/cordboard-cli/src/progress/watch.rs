//! The progress of the transfers of one command.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cordboard::{DataPath, Observer, Progress};

use super::frame::{Frame, Rate, requested_line};
use super::screen::{Screen, width};
use crate::signals;
use crate::steering::Live;

const EVERY: Duration = Duration::from_millis(100);
/// The longest interval of the timer while nothing moves.
const SLOWEST: Duration = Duration::from_secs(60);
/// Shorter runs draw nothing.
const QUIET: Duration = Duration::from_millis(300);
/// Observes the transfers of one command, one after the other.
#[derive(Debug)]
pub struct Watch {
    drawing: bool,
    screen: Screen,
    rate: Rate,
    drawn_at: Duration,
    total: Option<u64>,
    /// Bytes moved by the transfers before this one, and when this one began.
    before: (u64, Duration),
    latest: u64,
    start: Option<Instant>,
    ticking: bool,
    /// The interval of the timer, and when it was set.
    pace: (Duration, Duration),
    live: Option<Arc<Live>>,
    /// The level and the size of the buffer.
    buffered: Option<(u64, u64)>,
}

impl Watch {
    /// A watch that draws, or prints only on request.
    pub fn new(drawing: bool) -> Watch {
        Watch {
            drawing,
            screen: Screen::default(),
            rate: Rate::default(),
            drawn_at: Duration::ZERO,
            total: None,
            before: (0, Duration::ZERO),
            latest: 0,
            start: None,
            ticking: false,
            pace: (EVERY, Duration::ZERO),
            live: None,
            buffered: None,
        }
    }

    /// Reports the progress here as well.
    pub fn report_to(&mut self, live: Arc<Live>) {
        self.live = Some(live);
    }

    /// Shows the level of a buffer of this size: the bytes in transit.
    pub fn show_buffer(&mut self, size: u64) {
        self.buffered = Some((0, size));
    }

    /// Whether it draws.
    pub fn draws(&self) -> bool {
        self.drawing
    }

    /// Stops drawing.
    pub fn mute(&mut self) {
        self.screen.print("");
        self.drawing = false;
    }

    /// Called before each transfer, with the bytes to move in all.
    pub fn begin(&mut self, total: Option<u64>) {
        let start = *self.start.get_or_insert_with(Instant::now);
        self.before = (self.latest, start.elapsed());
        self.total = total.map(|total| self.before.0.saturating_add(total));
        if !self.ticking {
            self.timer();
        }
    }

    /// The time since the first transfer began.
    pub fn wall(&self) -> Duration {
        self.start.map_or(Duration::ZERO, |start| start.elapsed())
    }

    /// Clears the line that was drawn, so that a result can be printed.
    pub fn clear(&mut self) {
        self.screen.clear();
    }

    /// Sets the interval timer for drawing. A signal to stop keeps its own
    /// interval.
    fn timer(&mut self) {
        if self.drawing && signals::stop().is_none() {
            self.ticking = true;
            signals::tick(self.pace.0);
        }
    }

    /// Doubles the interval while nothing moves: a file system that ends a call
    /// at each signal would otherwise never complete it.
    fn slow_down(&mut self, moves: bool, elapsed: Duration) {
        let (pace, since) = self.pace;
        let next = match moves {
            true => EVERY,
            false if elapsed >= since.saturating_add(pace * 2) => (pace * 2).min(SLOWEST),
            false => pace,
        };
        if moves || next != pace {
            self.pace = (next, elapsed);
        }
        if next != pace {
            self.timer();
        }
    }
}

impl Watch {
    /// Shows the progress of several concurrent transfers.
    pub fn show(&mut self, bytes: u64, path: DataPath, under_way: usize) {
        // A transfer that has just ended may be in neither count for a moment.
        let bytes = bytes.max(self.latest);
        self.at(bytes, self.wall(), path, under_way);
    }

    fn at(&mut self, bytes: u64, elapsed: Duration, path: DataPath, under_way: usize) {
        self.slow_down(bytes != self.latest, elapsed);
        self.latest = bytes;
        if let Some(live) = &self.live {
            let level = self.buffered.map_or(0, |(level, _)| level);
            live.store((bytes, level), self.total, path, under_way);
        }
        if signals::take_progress_request() {
            self.screen
                .print(&requested_line(bytes, elapsed, path, self.buffered));
            match self.drawing {
                true => self.timer(),
                false if signals::stop().is_none() => signals::tick(Duration::ZERO),
                false => {}
            }
        }
        if !self.drawing || elapsed < QUIET || elapsed < self.drawn_at + EVERY {
            return;
        }
        self.drawn_at = elapsed;
        let frame = Frame {
            bytes,
            total: self.total,
            rate: self.rate.update(elapsed, bytes),
            elapsed,
            path,
            under_way,
            buffered: self.buffered,
        };
        let slow = self.pace.0 != EVERY;
        if slow && signals::stop().is_none() {
            // The timer's signal ends a write that blocks.
            signals::tick(EVERY);
        }
        self.screen.draw(&frame.line(width()));
        if slow {
            self.timer();
        }
    }
}

impl Observer for Watch {
    fn progress(&mut self, progress: &Progress) {
        let bytes = self.before.0.saturating_add(progress.written);
        let elapsed = self.before.1 + progress.elapsed;
        if let Some((level, _)) = &mut self.buffered {
            *level = progress.in_transit();
        }
        self.at(bytes, elapsed, progress.path, 1);
    }

    fn interval(&self) -> Option<Duration> {
        self.drawing.then_some(EVERY)
    }
}
