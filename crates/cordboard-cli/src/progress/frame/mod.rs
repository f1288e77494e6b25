//! The appearance of progress. Nothing here reads a clock: times come with the
//! transfer's account.

use std::time::Duration;

use cordboard::DataPath;

use super::known::Known;
use crate::units;

/// Columns that can hold any number of bytes (`1023 bytes`). On fewer, nothing
/// is drawn.
const NARROWEST: usize = 11;

/// Returns as many of the pieces as fit into `width` columns.
pub fn fit(pieces: &[String], width: usize) -> String {
    let ranked = pieces.iter().enumerate();
    let ranked: Vec<Piece> = ranked.map(|(rank, text)| (rank, text.clone())).collect();
    fit_ranked(&ranked, width)
}

/// The rank, 0 for the most important piece, and the text, which begins with its separator.
type Piece = (usize, String);

/// Joins the pieces. Omits the least important ones if not all fit into `width` columns.
fn fit_ranked(pieces: &[Piece], width: usize) -> String {
    if width < NARROWEST {
        return String::new();
    }
    let mut most = usize::MAX;
    loop {
        let shown = || pieces.iter().filter(|(rank, _)| *rank < most);
        let columns: usize = shown().map(|(_, text)| text.chars().count()).sum();
        if columns <= width {
            return shown().map(|(_, text)| text.as_str()).collect();
        }
        most = shown().map(|(rank, _)| *rank).max().unwrap_or(0);
    }
}

/// The progress of several files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilesDone {
    /// The number of files that have ended.
    pub done: u64,
    /// The number of all files, if any are known.
    pub known: Option<Known>,
}

impl FilesDone {
    /// Formats it: `120 of 12,000+ files`.
    fn text(self) -> String {
        let done = units::count(self.done);
        match self.known {
            None => format!("{done} {}", units::plural(self.done, "file")),
            Some(known) => {
                let all = known.count.max(self.done);
                let (more, files) = match known.is_all {
                    true => ("", units::plural(all, "file")),
                    false => ("+", "files".to_owned()),
                };
                format!("{done} of {}{more} {files}", units::count(all))
            }
        }
    }
}

/// The sinks of a fan-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinksAttached {
    /// The number of sinks that have not failed and were not detached.
    pub attached: u32,
    /// The number of all sinks.
    pub all: u32,
}

/// One drawing.
#[derive(Debug)]
pub struct Frame {
    /// Bytes moved so far; of several sinks, to the slowest.
    pub bytes: u64,
    /// Bytes to move in all, if any are known.
    pub total: Option<Known>,
    /// Bytes per second.
    pub rate: u64,
    /// The time left, if it can be estimated.
    pub left: Option<Duration>,
    /// Time since the start.
    pub elapsed: Duration,
    /// The user has paused the transfer.
    pub paused: bool,
    /// The path in use.
    pub path: DataPath,
    /// Transfers that are under way.
    pub under_way: usize,
    /// The files, if there may be several.
    pub files: Option<FilesDone>,
    /// The sinks, if there are several.
    pub sinks: Option<SinksAttached>,
    /// The level and the size of a buffer.
    pub buffered: Option<(u64, u64)>,
    /// Bytes of the sinks that were read back and compared.
    pub read_back: Option<u64>,
}

impl Frame {
    /// Returns the line, as much of it as fits into `width` columns. The least
    /// important pieces are omitted, and none is truncated, since half a number is a
    /// wrong one. Empty if not even the number of bytes is certain to fit.
    pub fn line(&self, width: usize) -> String {
        fit_ranked(&self.pieces(), width)
    }

    fn pieces(&self) -> Vec<Piece> {
        let mut pieces = vec![(0, units::bytes(self.bytes))];
        if let Some(total) = self.total.filter(|total| total.count > 0) {
            pieces.push((1, format!(" of {}", at_least(total))));
            if total.is_all {
                pieces.push((2, format!(" ({} %)", units::share(self.bytes, total.count))));
            }
        }
        let files = self.files.iter();
        pieces.extend(files.map(|files| (7, format!("  {}", files.text()))));
        pieces.push((6, format!("  {}", units::rate(self.rate as f64))));
        pieces.push((8, format!("  elapsed {}", units::clock(self.elapsed))));
        let left = self.left.iter();
        pieces.extend(left.map(|left| (5, format!("  left {}", units::clock(*left)))));
        if self.paused {
            pieces.push((3, "  paused".to_owned()));
        }
        let read_back = self.read_back.iter();
        pieces.extend(read_back.map(|bytes| (4, format!("  verified {}", units::bytes(*bytes)))));
        if let Some((level, size)) = self.buffered {
            let (level, size) = (units::bytes(level), units::bytes(size));
            pieces.push((10, format!("  buffer {level} of {size}")));
        }
        if let Some(SinksAttached { attached, all }) = self.sinks {
            let sinks = if attached == 1 { "sink" } else { "sinks" };
            let text = match attached == all {
                true => format!("  slowest of {all} {sinks}"),
                false => format!("  slowest of {attached} {sinks}, {all} at first"),
            };
            pieces.push((9, text));
        }
        pieces.push((11, format!("  by {}", self.path)));
        if self.under_way > 1 {
            pieces.push((12, format!("  {} files at once", self.under_way)));
        }
        pieces
    }
}

/// Formats a number of bytes: `4.0 GiB`, or `4.0+ GiB` if there may be more.
fn at_least(total: Known) -> String {
    let text = units::bytes(total.count);
    match total.is_all {
        true => text,
        false => text.replacen(' ', "+ ", 1),
    }
}

/// The line that SIGUSR1 requests, similar to that of dd.
pub fn requested_line(
    bytes: u64,
    elapsed: Duration,
    path: DataPath,
    files: Option<FilesDone>,
    buffered: Option<(u64, u64)>,
    read_back: Option<u64>,
) -> String {
    let seconds = elapsed.as_secs_f64().max(1e-9);
    let scaled = match bytes {
        0..1024 => String::new(),
        n => format!(" ({})", units::bytes(n)),
    };
    let files = files.map_or_else(String::new, |files| format!(", {}", files.text()));
    let buffered = buffered.map_or_else(String::new, |(level, size)| {
        format!(", buffer {} of {}", units::bytes(level), units::bytes(size))
    });
    let read_back = read_back.map_or_else(String::new, |bytes| {
        format!(", {} verified", units::number_of(bytes, "byte"))
    });
    format!(
        "{}{scaled} written, {}, {}{files}, path {path}{buffered}{read_back}\n",
        units::number_of(bytes, "byte"),
        units::time(elapsed),
        units::rate(bytes as f64 / seconds)
    )
}

#[cfg(test)]
mod tests;
