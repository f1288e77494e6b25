//! The frames that were shown, and how late they were.

use std::io::Write;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::units;

/// One frame that was shown. Times are those of the loop's environment.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    /// Its number, from 0.
    pub frame: u64,
    /// When it was due.
    pub due: Duration,
    /// When it was begun.
    pub begun: Duration,
    /// When the sink had taken its last byte.
    pub done: Duration,
    /// When the next frame was due.
    pub end: Duration,
}

/// The number of frames, and how late they were: when the sink had taken the
/// last byte of each. Of constant size, however long the film is.
pub struct Tally {
    start: Duration,
    /// Whole frames.
    pub frames: u64,
    /// Frames that were complete only when the next was due.
    pub late: u64,
    /// Frames that were omitted.
    pub dropped: u64,
    /// The bytes of omitted frames.
    pub dropped_bytes: u64,
    /// The present multiple of the normal speed.
    pub speed: f64,
    /// The video is paused.
    pub paused: bool,
    last: Duration,
    range: Option<(Duration, Duration)>,
    micros: Histogram<u32>,
    list: Option<Box<dyn Write + Send + Sync>>,
    unlisted: Option<std::io::Error>,
}

/// Lateness in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Lateness {
    /// The minimum.
    pub min: f64,
    /// The median, to three digits.
    pub median: f64,
    /// The 99th percentile, to three digits.
    pub p99: f64,
    /// The maximum.
    pub max: f64,
}

/// Larger quantiles are reported as an hour.
const LONGEST_MICROS: u64 = 3_600_000_000;

impl Tally {
    /// Of no frames. Times in the list are counted from `start`.
    pub fn new(start: Duration, speed: f64) -> Tally {
        Tally {
            start,
            frames: 0,
            late: 0,
            dropped: 0,
            dropped_bytes: 0,
            speed,
            paused: false,
            last: Duration::ZERO,
            range: None,
            micros: Histogram::new_with_max(LONGEST_MICROS, 3).expect("bounds as documented"),
            list: None,
            unlisted: None,
        }
    }

    /// Lists each frame here: `frame,due,begun,done,lateness`, in milliseconds.
    pub fn list(&mut self, list: Box<dyn Write + Send + Sync>) {
        self.list = Some(list);
        self.write(format_args!("frame,due_ms,begun_ms,done_ms,lateness_ms\n"));
    }

    /// Adds a frame that was shown.
    pub fn shown(&mut self, shown: &Shown) {
        let lateness = shown.done.saturating_sub(shown.due);
        self.frames += 1;
        self.late += u64::from(shown.done >= shown.end);
        self.last = lateness;
        let (min, max) = self.range.unwrap_or((lateness, lateness));
        self.range = Some((min.min(lateness), max.max(lateness)));
        let micros = u64::try_from(lateness.as_micros()).unwrap_or(u64::MAX);
        self.micros.saturating_record(micros);
        let since = |time: Duration| ms(time.saturating_sub(self.start));
        let (due, begun, done) = (since(shown.due), since(shown.begun), since(shown.done));
        self.write(format_args!(
            "{},{due:.3},{begun:.3},{done:.3},{:.3}\n",
            shown.frame,
            ms(lateness)
        ));
    }

    /// Adds a frame, or a part of the last one, that was omitted.
    pub fn dropped(&mut self, bytes: u64) {
        self.dropped += u64::from(bytes > 0);
        self.dropped_bytes += bytes;
    }

    /// Completes the list, and returns its first error.
    pub fn close(&mut self) -> Option<std::io::Error> {
        if let Some(Err(error)) = self.list.take().map(|mut list| list.flush()) {
            self.unlisted.get_or_insert(error);
        }
        self.unlisted.take()
    }

    /// The moment from which times are counted.
    pub fn start(&self) -> Duration {
        self.start
    }

    fn write(&mut self, line: std::fmt::Arguments<'_>) {
        if let Some(Err(error)) = self.list.as_mut().map(|list| list.write_fmt(line)) {
            self.unlisted = Some(error);
            self.list = None;
        }
    }

    /// Returns the lateness; `None` if no frame was shown.
    pub fn lateness(&self) -> Option<Lateness> {
        let (min, max) = self.range?;
        let (min, max) = (ms(min), ms(max));
        // The bounds of a bucket may lie outside the observed range.
        let quantile = |q| (self.micros.value_at_quantile(q) as f64 / 1000.0).clamp(min, max);
        Some(Lateness {
            min,
            median: quantile(0.5),
            p99: quantile(0.99),
            max,
        })
    }

    /// The pieces of the status line, the most important first.
    pub fn pieces(&self, audio: u64) -> Vec<String> {
        let mut pieces = vec![
            format!("frame {}", self.frames),
            format!("  {:.1} ms late", ms(self.last)),
        ];
        if self.paused {
            pieces.push("  paused".to_owned());
        }
        if self.dropped > 0 {
            pieces.push(format!("  {} dropped", self.dropped));
        }
        if self.speed != 1.0 {
            pieces.push(format!("  speed {:.2}", self.speed));
        }
        pieces.push(format!("  audio {}", units::bytes(audio)));
        pieces
    }

    /// Formats a summary: `300 frames, lateness 0.1 to 4.0 ms (median 0.2, p99
    /// 1.3), 3 late`.
    pub fn summary(&self) -> String {
        let mut text = units::number_of(self.frames, "frame");
        if let Some(Lateness {
            min,
            median,
            p99,
            max,
        }) = self.lateness()
        {
            text +=
                &format!(", lateness {min:.1} to {max:.1} ms (median {median:.1}, p99 {p99:.1})");
        }
        for (count, what) in [(self.late, "late"), (self.dropped, "dropped")] {
            if count > 0 {
                text += &format!(", {count} {what}");
            }
        }
        text
    }
}

/// Converts to milliseconds, to the microsecond.
fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}
