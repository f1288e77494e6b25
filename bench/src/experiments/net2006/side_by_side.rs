//! The measured rates next to those of the post, relative to its first way of each end.

use std::fmt::Write as _;

use super::{Sink, Source, ways};
use crate::harness::Bench;
use crate::harness::series::Series;
use crate::post_2006::{From, ROWS, Row, To};

const NETWORKS: [&str; 2] = ["loopback", "veth"];

/// The tables for sending and for receiving. None if nothing was measured.
pub fn tables(bench: &Bench) -> Vec<String> {
    let sends = |row: &&Row| row.to == To::Null;
    let receives = |row: &&Row| row.from == From::Zero;
    let from = |source: Source| move |network: &str| source.setting(network);
    let to = |sink: Sink| move |network: &str| sink.setting(network);
    let tables = [
        table(
            bench,
            "sending, relative to way A from a file",
            ROWS.iter().filter(sends),
            |row| row.sends,
            |row| row.from == From::Zero,
            from(Source::Zero),
            [
                ("cached file", &from(Source::Cached)),
                ("cold file", &from(Source::Cold)),
            ],
        ),
        table(
            bench,
            "receiving, relative to way 1 to a file",
            ROWS.iter().filter(receives),
            |row| row.receives,
            |row| row.to == To::Null,
            to(Sink::Null),
            [
                ("file", &to(Sink::File)),
                ("file, fsync", &to(Sink::Synced)),
            ],
        ),
    ];
    tables.into_iter().flatten().collect()
}

type SettingOf<'a> = &'a dyn Fn(&str) -> String;

/// `apart`: the rows that are measured in a setting of their own, `apart_setting`.
fn table<'r>(
    bench: &Bench,
    title: &str,
    rows: impl Iterator<Item = &'r Row>,
    sign: impl Fn(&Row) -> char,
    apart: impl Fn(&Row) -> bool,
    apart_setting: impl Fn(&str) -> String,
    columns: [(&str, SettingOf<'_>); 2],
) -> Option<String> {
    let rows: Vec<&Row> = rows.collect();
    // The first row that is not apart: all others are relative to it.
    let unit = rows.iter().find(|row| !apart(row))?;
    let mut out = format!("## Compared with the post: {title}\n\n| way | post |");
    for (network, (what, _)) in cells(&columns) {
        let _ = write!(out, " {network}, {what} |");
    }
    let _ = writeln!(out, "\n|---|--:|{}", "--:|".repeat(4));
    let seconds = |setting: &str, sign: char| {
        let result = bench.results.iter().find(|r| r.name == setting)?;
        result
            .of(&ways::of_the_post(sign)?)
            .and_then(Series::median)
    };
    let mut measured = false;
    for row in &rows {
        let end = match (apart(row), row.from, row.to) {
            (false, ..) => "",
            (true, From::Zero, To::Null) if sign(row) == row.sends => " from /dev/zero",
            _ => " to /dev/null",
        };
        let _ = write!(out, "| {}{end} | {:.2} |", sign(row), row.rate / unit.rate);
        for (network, (_, setting)) in cells(&columns) {
            let own = match apart(row) {
                true => apart_setting(network),
                false => setting(network),
            };
            let base = seconds(&setting(network), sign(unit));
            let ratio = base.zip(seconds(&own, sign(row)));
            measured |= ratio.is_some();
            let shown = ratio.map_or("–".to_owned(), |(base, s)| format!("{:.2}", base / s));
            let _ = write!(out, " {shown} |");
        }
        out.push('\n');
    }
    out.push_str("\nBlocks of 64 KiB, as in the post.\n");
    measured.then_some(out)
}

/// Each network with each column.
fn cells<'c, 'a>(
    columns: &'c [(&'a str, SettingOf<'a>); 2],
) -> impl Iterator<Item = (&'static str, (&'a str, SettingOf<'a>))> + 'c {
    let networks = NETWORKS.into_iter();
    networks.flat_map(|network| columns.iter().map(move |column| (network, *column)))
}
