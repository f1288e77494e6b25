//! The appearance of progress. Nothing here reads a clock: times come with the
//! transfer's account.

use std::time::Duration;

use cordboard::DataPath;

use crate::units;

/// The time over which the rate is averaged, about.
const MEMORY: f64 = 2.0;

/// Columns that can hold any number of bytes (`1023 bytes`). On fewer, nothing
/// is drawn.
const NARROWEST: usize = 11;

/// Bytes per second, smoothed.
#[derive(Debug, Default)]
pub struct Rate {
    last: Option<(Duration, u64)>,
    value: f64,
    seen: Duration,
}

impl Rate {
    /// Adds that `bytes` were moved by `now`. Returns the rate.
    pub fn update(&mut self, now: Duration, bytes: u64) -> f64 {
        let (then, before) = self.last.unwrap_or((Duration::ZERO, 0));
        let span = now.saturating_sub(then);
        if span.is_zero() {
            return self.value;
        }
        let recent = bytes.saturating_sub(before) as f64 / span.as_secs_f64();
        self.seen += span;
        // At first the average over the whole time, later over MEMORY.
        let weight = span.as_secs_f64() / self.seen.as_secs_f64().min(MEMORY);
        self.value += (recent - self.value) * weight.min(1.0);
        self.last = Some((now, bytes));
        self.value
    }
}

/// Returns as many of the pieces as fit into `width` columns.
pub fn fit(pieces: &[String], width: usize) -> String {
    let mut line = String::new();
    if width < NARROWEST {
        return line;
    }
    for piece in pieces {
        if line.len() + piece.len() > width {
            break;
        }
        line += piece;
    }
    line
}

/// One drawing.
#[derive(Debug)]
pub struct Frame {
    /// Bytes moved so far.
    pub bytes: u64,
    /// Bytes to move in all, if known.
    pub total: Option<u64>,
    /// Bytes per second.
    pub rate: f64,
    /// Time since the start.
    pub elapsed: Duration,
    /// The path in use.
    pub path: DataPath,
    /// Transfers that are under way.
    pub under_way: usize,
    /// The level and the size of a buffer.
    pub buffered: Option<(u64, u64)>,
}

impl Frame {
    /// Returns the line, as much of it as fits into `width` columns. Pieces are
    /// omitted at the end, and none is truncated, since half a number is a
    /// wrong one. Empty if not even the first piece is certain to fit.
    pub fn line(&self, width: usize) -> String {
        fit(&self.pieces(), width)
    }

    /// The pieces, the most important first, each with its separator from the
    /// one before.
    fn pieces(&self) -> Vec<String> {
        let mut pieces = vec![units::bytes(self.bytes)];
        match self.total.filter(|total| *total > 0) {
            Some(total) => {
                pieces.push(format!(" of {}", units::bytes(total)));
                let share = (self.bytes as f64 / total as f64 * 100.0).min(100.0);
                pieces.push(format!("  {} %", share.floor()));
                pieces.push(format!("  {}", units::rate(self.rate)));
                let left = total.saturating_sub(self.bytes) as f64 / self.rate;
                pieces.push(match Duration::try_from_secs_f64(left.ceil()) {
                    Ok(left) => format!("  {} left", units::clock(left)),
                    Err(_) => "  stalled".to_owned(),
                });
            }
            None => {
                pieces.push(format!("  {}", units::rate(self.rate)));
                pieces.push(format!("  {}", units::clock(self.elapsed)));
            }
        }
        if let Some((level, size)) = self.buffered {
            let (level, size) = (units::bytes(level), units::bytes(size));
            pieces.push(format!("  buffer {level} of {size}"));
        }
        pieces.push(format!("  by {}", self.path));
        if self.under_way > 1 {
            pieces.push(format!("  {} at once", self.under_way));
        }
        pieces
    }
}

/// The line that SIGUSR1 requests, similar to that of dd.
pub fn requested_line(
    bytes: u64,
    elapsed: Duration,
    path: DataPath,
    buffered: Option<(u64, u64)>,
) -> String {
    let seconds = elapsed.as_secs_f64().max(1e-9);
    let scaled = match bytes {
        0..1024 => String::new(),
        n => format!(" ({})", units::bytes(n)),
    };
    let buffered = buffered.map_or_else(String::new, |(level, size)| {
        format!(", buffer {} of {}", units::bytes(level), units::bytes(size))
    });
    format!(
        "{bytes} bytes{scaled} written, {}, {}, path {path}{buffered}\n",
        units::time(elapsed),
        units::rate(bytes as f64 / seconds)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn frame() -> Frame {
        Frame {
            bytes: 1 << 30,
            total: Some(4 << 30),
            rate: (512 << 20) as f64,
            elapsed: 2 * S,
            path: DataPath::Splice,
            under_way: 1,
            buffered: None,
        }
    }

    #[test]
    fn the_level_of_a_buffer() {
        let buffered = Some((12 << 20, 64 << 20));
        let frame = Frame {
            total: None,
            buffered,
            ..frame()
        };
        assert_eq!(
            frame.line(80),
            "1.0 GiB  512 MiB/s  0:02  buffer 12 MiB of 64 MiB  by splice"
        );
        let line = requested_line(1, S, DataPath::Splice, buffered);
        assert!(line.ends_with("path splice, buffer 12 MiB of 64 MiB\n"));
    }

    #[test]
    fn a_known_size() {
        assert_eq!(
            frame().line(80),
            "1.0 GiB of 4.0 GiB  25 %  512 MiB/s  0:06 left  by splice"
        );
    }

    #[test]
    fn several_at_once() {
        let several = Frame {
            under_way: 3,
            total: None,
            ..frame()
        };
        assert_eq!(
            several.line(80),
            "1.0 GiB  512 MiB/s  0:02  by splice  3 at once"
        );
    }

    #[test]
    fn few_columns() {
        for (width, line) in [
            (0, ""),
            (10, ""),
            (11, "1.0 GiB"),
            (17, "1.0 GiB"),
            (18, "1.0 GiB of 4.0 GiB"),
            (24, "1.0 GiB of 4.0 GiB  25 %"),
            (40, "1.0 GiB of 4.0 GiB  25 %  512 MiB/s"),
        ] {
            assert_eq!(frame().line(width), line, "{width}");
        }
        let most = Frame {
            bytes: 1023,
            total: None,
            ..frame()
        };
        assert_eq!(most.line(NARROWEST), "1023 bytes");
    }

    #[test]
    fn an_unknown_size_a_false_one_and_a_stall() {
        let unknown = Frame {
            total: None,
            ..frame()
        };
        assert_eq!(unknown.line(80), "1.0 GiB  512 MiB/s  0:02  by splice");
        let more = Frame {
            total: Some(5),
            ..frame()
        };
        assert!(more.line(80).contains("100 %  512 MiB/s  0:00 left"));
        let stalled = Frame {
            rate: 0.0,
            ..frame()
        };
        assert!(stalled.line(80).contains("25 %  0 B/s  stalled"));
    }

    #[test]
    fn the_rate_is_steady_and_forgets() {
        let mut rate = Rate::default();
        assert_eq!(rate.update(S, 1000), 1000.0);
        assert_eq!(rate.update(2 * S, 2000), 1000.0);
        for i in 3..30 {
            rate.update(i * S, 2000);
        }
        assert!(rate.update(30 * S, 2000) < 1.0);
        assert_eq!(Rate::default().update(Duration::ZERO, 5), 0.0);
    }

    #[test]
    fn as_dd_tells() {
        assert_eq!(
            requested_line(2 << 20, S, DataPath::Splice, None),
            "2097152 bytes (2.0 MiB) written, 1.0 s, 2.0 MiB/s, path splice\n"
        );
        assert!(
            requested_line(0, Duration::ZERO, DataPath::ReadWrite, None)
                .starts_with("0 bytes written")
        );
    }
}
