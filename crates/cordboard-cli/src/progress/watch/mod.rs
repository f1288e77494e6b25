//! The progress of the transfers of one command.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cordboard::{DataPath, Observer, Progress};

use super::estimate::{Left, Rate};
use super::frame::{FilesDone, Frame, SinksAttached, requested_line};
use super::known::Known;
use super::scan::{Operands, Scan};
use super::screen::{Screen, width};
use super::style::{EVERY, Style};
use crate::signals;
use crate::steering::Live;

/// The longest interval of the timer while nothing moves.
const SLOWEST: Duration = Duration::from_secs(60);
/// Shorter runs draw nothing.
const QUIET: Duration = Duration::from_millis(300);

/// What the transfers before this one have moved, and when this one began.
#[derive(Debug, Default)]
struct Before {
    read: u64,
    written: u64,
    elapsed: Duration,
}

/// Observes the transfers of one command, one after the other.
#[derive(Debug)]
pub struct Watch {
    style: Style,
    screen: Screen,
    rate: Rate,
    left: Left,
    drawn_at: Duration,
    total: Option<u64>,
    /// The number of files that have ended, if there may be several.
    files: Option<u64>,
    /// Counts the operands, once progress may be shown.
    scan: Option<Scan>,
    /// The sinks, if there are several.
    sinks: Option<SinksAttached>,
    before: Before,
    /// The latest numbers of bytes written and read.
    latest: u64,
    latest_read: u64,
    start: Option<Instant>,
    ticking: bool,
    /// The interval of the timer, and when it was set.
    pace: (Duration, Duration),
    live: Option<Arc<Live>>,
    /// The level and the size of the buffer.
    buffered: Option<(u64, u64)>,
    /// Bytes of the sinks that were read back and compared.
    read_back: Option<u64>,
    /// The latest path, and the number of transfers under way.
    latest_path: (DataPath, usize),
}

impl Watch {
    /// A watch that shows progress in this style.
    pub fn new(style: Style) -> Watch {
        Watch {
            style,
            screen: Screen::new(style),
            rate: Rate::default(),
            left: Left::default(),
            drawn_at: Duration::ZERO,
            total: None,
            files: None,
            scan: None,
            sinks: None,
            before: Before::default(),
            latest: 0,
            latest_read: 0,
            start: None,
            ticking: false,
            pace: (EVERY, Duration::ZERO),
            live: None,
            buffered: None,
            read_back: None,
            latest_path: (DataPath::ReadWrite, 1),
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

    /// Shows the files that have ended, and counts the operands once their number may be shown,
    /// here or by another process. Called before a sink is open: see [`Scan::prepare`].
    pub fn count(&mut self, operands: Operands) {
        self.files = Some(0);
        if self.status_interval().is_some() {
            self.scan = Scan::prepare(operands);
        }
    }

    /// Sets the number of files that have ended.
    pub fn files_ended(&mut self, done: u64) {
        if let Some(files) = &mut self.files {
            *files = done;
        }
    }

    /// Shows how many of the sinks are attached. `all`: the number of sinks.
    pub fn show_sinks(&mut self, all: usize) {
        let all = u32::try_from(all).unwrap_or(u32::MAX);
        self.sinks = Some(SinksAttached { attached: all, all });
    }

    /// Whether it shows progress.
    pub fn draws(&self) -> bool {
        self.style.is_shown()
    }

    /// Shows nothing from now on.
    pub fn mute(&mut self) {
        self.screen.print("");
        self.style = Style::Nothing;
        if self.live.is_none() {
            self.scan = None;
        }
        if std::mem::take(&mut self.ticking) && signals::stop().is_none() {
            signals::draw_every(Duration::ZERO);
        }
    }

    /// Called before each transfer, with the bytes to move in all.
    pub fn begin(&mut self, total: Option<u64>) {
        let start = *self.start.get_or_insert_with(Instant::now);
        self.live.iter().for_each(|live| live.begin(start));
        self.before = Before {
            read: self.latest_read,
            written: self.latest,
            elapsed: start.elapsed(),
        };
        let total = total.map(|total| self.before.written.saturating_add(total));
        if total != self.total {
            self.total = total;
            self.left.reset();
        }
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
        if self.draws() && signals::stop().is_none() {
            self.ticking = true;
            signals::draw_every(self.pace.0);
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
    /// Shows the progress of several concurrent transfers, of which only the bytes written
    /// are known.
    pub fn show(&mut self, bytes: u64, path: DataPath, under_way: usize) {
        // A transfer that has just ended may be in neither count for a moment.
        let bytes = bytes.max(self.latest);
        self.latest_read = bytes;
        self.at(bytes, self.wall(), path, under_way);
    }

    /// Returns the interval at which the progress of transfers on other threads is
    /// drawn, and stored for the control socket. The last bytes of such a transfer do not
    /// wake this thread, and the timer is slow after a stall.
    pub fn status_interval(&self) -> Option<Duration> {
        (self.draws() || self.live.is_some()).then_some(EVERY)
    }

    /// Sets the number of bytes of the sinks that were read back and compared.
    pub fn set_read_back(&mut self, bytes: u64) {
        self.read_back = Some(bytes);
    }

    /// Whether a line of progress was requested, or the next drawing is due.
    pub fn is_due(&mut self) -> bool {
        if self.start.is_none() {
            self.begin(None);
        }
        let draws = || self.style.next(self.drawn_at, self.wall()).is_some();
        signals::is_progress_requested() || self.draws() && draws()
    }

    /// Shows the latest progress while no bytes move.
    pub fn show_again(&mut self) {
        let (path, under_way) = self.latest_path;
        self.at(self.latest, self.wall(), path, under_way);
    }

    fn at(&mut self, bytes: u64, elapsed: Duration, path: DataPath, under_way: usize) {
        self.slow_down(bytes != self.latest, elapsed);
        self.latest = bytes;
        self.latest_path = (path, under_way);
        signals::set_written(bytes);
        let total = self.total();
        if let Some(live) = &self.live {
            let total = total.and_then(Known::complete);
            live.store((self.latest_read, bytes), total, path, under_way);
        }
        if signals::take_progress_request() {
            let (files, read_back) = (self.files(), self.read_back);
            let line = requested_line(bytes, elapsed, path, files, self.buffered, read_back);
            self.screen.print(&line);
            match self.draws() {
                true => self.timer(),
                false if signals::stop().is_none() => signals::tick(Duration::ZERO),
                false => {}
            }
        }
        if elapsed < QUIET {
            return;
        }
        self.scan.iter_mut().for_each(Scan::begin);
        let Some(drawn_at) = self.style.next(self.drawn_at, elapsed) else {
            return;
        };
        self.drawn_at = drawn_at;
        let frame = self.frame(bytes, total, elapsed, path, under_way);
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

impl Watch {
    /// Returns the total number of bytes: that of the operands, if they are counted.
    fn total(&self) -> Option<Known> {
        let counted = self.scan.as_ref().and_then(Scan::bytes);
        counted.or_else(|| self.total.map(Known::all))
    }

    fn files(&self) -> Option<FilesDone> {
        let known = || self.scan.as_ref().and_then(Scan::files);
        self.files.map(|done| FilesDone {
            done,
            known: known(),
        })
    }

    fn frame(
        &mut self,
        bytes: u64,
        total: Option<Known>,
        elapsed: Duration,
        path: DataPath,
        under_way: usize,
    ) -> Frame {
        let paused = (self.live.as_ref()).is_some_and(|live| live.is_paused());
        let rate = self.rate.update(elapsed, bytes);
        let total_bytes = total.and_then(Known::complete).filter(|_| !paused);
        let left = match total_bytes {
            // All bytes are written, and are read back.
            Some(total) if self.read_back.is_some() && bytes >= total => None,
            Some(total) => (self.left).update(elapsed, total.saturating_sub(bytes), rate),
            None => {
                self.left.reset();
                None
            }
        };
        Frame {
            bytes,
            total,
            rate,
            left,
            elapsed,
            paused,
            path,
            under_way,
            files: self.files(),
            sinks: self.sinks,
            buffered: self.buffered,
            read_back: self.read_back,
        }
    }
}

impl Observer for Watch {
    fn progress(&mut self, progress: &Progress) {
        let bytes = self.before.written.saturating_add(progress.written);
        let elapsed = self.before.elapsed + progress.elapsed;
        self.latest_read = self.before.read.saturating_add(progress.read);
        if let Some((level, _)) = &mut self.buffered {
            *level = progress.in_transit();
        }
        if let Some(sinks) = &mut self.sinks {
            sinks.attached = progress.sinks;
        }
        self.at(bytes, elapsed, progress.path, 1);
    }

    fn interval(&self) -> Option<Duration> {
        self.status_interval()
    }
}

#[cfg(test)]
mod tests;
