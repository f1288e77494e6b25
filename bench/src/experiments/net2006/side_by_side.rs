//! The measured rates next to those of the post, relative to its first way of each end.

use std::fmt::Write as _;

use super::{Sink, Source, ways};
use crate::harness::Bench;
use crate::harness::series::Series;
use crate::post_2006::{From, ROWS, Row, To};

/// A way with its place among the settings. The two places of a column are those of a file.
struct Line {
    label: String,
    way: char,
    post: f64,
    /// For each column, the setting without the network.
    settings: [Place; 2],
}

/// A source or a sink.
#[derive(Clone, Copy)]
enum Place {
    From(Source),
    To(Sink),
}

impl Place {
    fn setting(self, network: &str) -> String {
        match self {
            Place::From(source) => source.setting(network),
            Place::To(sink) => sink.setting(network),
        }
    }
}

/// The tables for sending and for receiving, as far as they were measured.
pub fn tables(bench: &Bench) -> Vec<String> {
    let sent = ROWS.iter().filter(|row| row.to == To::Null);
    let sent = sent.map(Line::of_sending).collect();
    let received = ROWS.iter().filter(|row| row.from == From::Zero);
    let received = received.map(Line::of_receiving).collect();
    let sending = (
        "sending, relative to A from a file",
        ["cached file", "cold file"],
        sent,
    );
    let receiving = (
        "receiving, relative to 1 to a file",
        ["file", "file, fsync"],
        received,
    );
    [sending, receiving]
        .into_iter()
        .filter_map(|(title, columns, lines)| table(bench, title, columns, lines))
        .collect()
}

impl Line {
    fn of_sending(row: &Row) -> Line {
        let (what, settings) = match row.from {
            From::Zero => (" from /dev/zero", [Source::Zero; 2]),
            From::File => (" from a file", [Source::Cached, Source::Cold]),
        };
        Line {
            label: format!("{}{what}", row.sends),
            way: row.sends,
            post: row.rate,
            settings: settings.map(Place::From),
        }
    }

    fn of_receiving(row: &Row) -> Line {
        let (what, settings) = match row.to {
            To::Null => (" to /dev/null", [Sink::Null; 2]),
            To::File => (" to a file", [Sink::File, Sink::Synced]),
        };
        Line {
            label: format!("{}{what}", row.receives),
            way: row.receives,
            post: row.rate,
            settings: settings.map(Place::To),
        }
    }

    /// The median of the wall times with the block size of the post.
    fn seconds(&self, bench: &Bench, column: usize, network: &str) -> Option<f64> {
        let setting = self.settings[column].setting(network);
        let result = bench.results.iter().find(|r| r.name == setting)?;
        let series = result.of(&ways::of_the_post(self.way)?);
        series.and_then(Series::median)
    }
}

/// Rates relative to the second line: the first way with a file.
fn table(bench: &Bench, title: &str, columns: [&str; 2], lines: Vec<Line>) -> Option<String> {
    let unit = lines.get(1)?;
    let cells: Vec<(usize, &str)> = (0..2)
        .flat_map(|column| ["loopback", "veth"].map(|network| (column, network)))
        .collect();
    let mut out = format!("## Compared with the post: {title}\n\n| way | post |");
    for (column, network) in &cells {
        let _ = write!(out, " {}, {network} |", columns[*column]);
    }
    let _ = writeln!(out, "\n|---|--:|{}", "--:|".repeat(cells.len()));
    let mut measured = false;
    for line in &lines {
        let _ = write!(out, "| {} | {:.2} |", line.label, line.post / unit.post);
        for (column, network) in &cells {
            let seconds = |line: &Line| line.seconds(bench, *column, network);
            let ratio = seconds(unit)
                .zip(seconds(line))
                .map(|(unit, own)| unit / own);
            measured |= ratio.is_some();
            let _ = match ratio {
                Some(ratio) => write!(out, " {ratio:.2} |"),
                None => write!(out, " – |"),
            };
        }
        out.push('\n');
    }
    out.push_str("\nBlocks of 64 KiB, as in the post.\n");
    measured.then_some(out)
}
