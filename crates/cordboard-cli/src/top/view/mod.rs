//! The lines of the screen: a pure function of the rows and the size.

use super::graph::graph;
use super::keys::{Keys, Mode};
use super::row::Row;
use super::text::{clean, fixed, join, width};
use crate::units;

/// Columns of the state, the rate and the share, and at least of the schedule.
const STATE: usize = 9;
const RATE: usize = 10;
const SHARE: usize = 5;
const SCHEDULE: usize = 19;
/// From this number of columns on, a transfer has one line.
const WIDE: usize = 120;
/// From this number of columns on, rate and graph are on its first line.
const MEDIUM: usize = 60;

/// The terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub columns: usize,
    pub rows: usize,
    /// The locale has UTF-8.
    pub unicode: bool,
}

/// One line, which has no more columns than the terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub text: String,
    /// The line of the selected transfer.
    pub selected: bool,
}

impl Line {
    fn plain(text: String) -> Line {
        Line {
            text,
            selected: false,
        }
    }
}

/// The keys, in the order of their importance.
const KEYS: [(&str, &str); 10] = [
    ("q", "quit"),
    ("?", "help"),
    ("p", "pause"),
    ("r", "resume"),
    ("c", "cancel"),
    ("+ -", "rate"),
    ("=", "type a rate"),
    ("0", "no rate"),
    ("a", "background"),
    ("j k", "select"),
];

/// Returns all lines of the screen. The first one has the note, why the list is not complete,
/// and the last one the keys, a question or a message.
pub fn frame(rows: &[&Row], keys: &mut Keys, note: Option<&str>, size: Size) -> Vec<Line> {
    let selected = keys.select(rows).map(|row| row.id);
    let is_list = keys.mode != Mode::Help && !rows.is_empty();
    // The keys act on the selected transfer: its line is more important than the title.
    let has_title = size.rows != 2 || !is_list;
    let mut lines: Vec<Line> = Vec::new();
    lines.extend(has_title.then(|| Line::plain(title(rows, note, size))));
    let room = size.rows.saturating_sub(1 + lines.len());
    if keys.mode == Mode::Help {
        lines.extend(help(size).into_iter().take(room));
    } else if rows.is_empty() {
        let texts = [
            "No transfers are running.",
            "Commands with --control PATH are listed.",
        ];
        let fit = texts.into_iter().filter(|text| text.len() <= size.columns);
        lines.extend(fit.take(room).map(|text| Line::plain(text.to_owned())));
    } else {
        let each = if size.columns < WIDE { 2 } else { 1 };
        let place = rows
            .iter()
            .position(|row| Some(row.id) == selected)
            .unwrap_or(0);
        // The selected row stays on the screen.
        let shown = (room / each).max(1);
        let first = (place + 1).saturating_sub(shown);
        let shown = rows.iter().skip(first).take(shown);
        let widths = shown.clone().map(|row| width(&last(row).join(", ")));
        let schedule = widths.max().unwrap_or(0).max(SCHEDULE);
        for row in shown {
            lines.extend(row_lines(row, Some(row.id) == selected, schedule, size));
        }
    }
    lines.truncate(size.rows.saturating_sub(1));
    while lines.len() + 1 < size.rows {
        lines.push(Line::plain(String::new()));
    }
    lines.push(Line::plain(bottom(rows, keys, size)));
    lines
}

fn title(rows: &[&Row], note: Option<&str>, size: Size) -> String {
    let running = rows.iter().filter(|row| row.end.is_none()).count();
    let count = units::number_of(running as u64, "transfer");
    let rate = rows.iter().fold(0.0, |sum, row| sum + row.rate());
    let pieces = ["cordboard top".to_owned(), count, units::rate(rate)];
    let Some(note) = note else {
        return join(&pieces, 2, size.columns);
    };
    // The note has the room of the rate, and is shortened.
    let front = join(&pieces[..2], 2, size.columns);
    let note = clean(note, size.unicode);
    let room = size.columns.saturating_sub(width(&front) + 2);
    match room {
        0 => front,
        room => {
            let note = fixed(&note, width(&note).min(room), size.unicode);
            format!("{front}  {note}")
        }
    }
}

/// Returns the lines of one transfer. `schedule`: the columns of the schedule in one line.
fn row_lines(row: &Row, selected: bool, schedule: usize, size: Size) -> Vec<Line> {
    let mark = if selected { "> " } else { "  " };
    let label = clean(&row.label, size.unicode);
    let state = format!("{:<STATE$}", row.state());
    let rate = match row.is_silent() {
        true => String::new(),
        false => units::rate(row.rate()),
    };
    let rate = format!("{rate:>RATE$}");
    let share = format!("{:>SHARE$}", row.share());
    let drawn = |columns| graph(row.samples.iter(), columns, size.unicode);
    let pid = row.pid.map_or_else(String::new, |pid| format!("pid {pid}"));
    let columns = size.columns;
    let lines = if columns >= WIDE {
        let extra = columns - WIDE;
        let right = format!(
            " {state} {rate} {} {share} {:>11}  {:<15} {:<schedule$}",
            drawn(12 + extra / 4),
            row.time(),
            row.path(),
            last(row).join(", "),
        );
        vec![with_label(mark, &label, &right, size)]
    } else if columns >= MEDIUM {
        let right = format!(" {state} {rate} {} {share}", drawn(columns / 8));
        let last = last(row).join(", ");
        let details = [row.path(), last, row.bytes(), row.time(), pid];
        let below = format!("    {}", join(&details, 2, columns - 4));
        vec![with_label(mark, &label, &right, size), below]
    } else {
        let right = format!(" {state} {share}");
        let front = format!("  {rate} {}", drawn(columns / 10));
        let most = if size.unicode { "≤" } else { "<" };
        let short = |text: String| text.replace("max ", most).replace("auto ", "");
        let mut details: Vec<String> = last(row).into_iter().map(short).collect();
        details.extend([row.path(), row.bytes(), row.time()]);
        let room = columns.saturating_sub(width(&front) + 1);
        let below = format!("{front} {}", join(&details, 1, room));
        vec![with_label(mark, &label, &right, size), below]
    };
    // Only lines for a terminal that is narrower than the fixed columns are shortened here.
    let cut = |text: String| {
        fixed(
            text.trim_end(),
            width(text.trim_end()).min(columns),
            size.unicode,
        )
    };
    let line = |(at, text)| Line {
        text: cut(text),
        selected: selected && at == 0,
    };
    lines.into_iter().enumerate().map(line).collect()
}

/// Returns the errno of a failed transfer, and the schedule and its limits of any other.
fn last(row: &Row) -> Vec<String> {
    match row.failure() {
        failure if failure.is_empty() => row.schedules(),
        failure => vec![failure],
    }
}

/// Returns a line whose label has the remaining columns.
fn with_label(mark: &str, label: &str, right: &str, size: Size) -> String {
    let room = size.columns.saturating_sub(mark.len() + width(right));
    format!("{mark}{}{right}", fixed(label, room, size.unicode))
}

fn bottom(rows: &[&Row], keys: &Keys, size: Size) -> String {
    let name = |id| {
        let row = rows.iter().find(|row| row.id == id);
        row.map_or_else(String::new, |row| clean(&row.label, size.unicode))
    };
    let question = |front: &str, id, behind: &str| {
        let room = size.columns.saturating_sub(front.len() + behind.len());
        let name = name(id);
        let name = fixed(&name, width(&name).min(room), size.unicode);
        format!("{front}{name}{behind}")
    };
    let text = match (&keys.mode, &keys.message) {
        (Mode::Cancel(id), _) => question("cancel ", *id, "? y/n"),
        (Mode::Rate(id, typed), _) => question("rate of ", *id, &format!(": {typed}_")),
        (Mode::Help, _) => "any key: back".to_owned(),
        (Mode::Normal, Some(message)) => clean(message, size.unicode),
        (Mode::Normal, None) => {
            let keys = KEYS.map(|(key, does)| format!("{key} {does}"));
            join(&keys, 2, size.columns)
        }
    };
    fixed(&text, width(&text).min(size.columns), size.unicode)
}

fn help(size: Size) -> Vec<Line> {
    const LINES: [(&str, &str); 13] = [
        ("j k arrows", "select a transfer"),
        ("p", "pause"),
        ("r", "resume"),
        ("space", "pause or resume"),
        ("+ -", "raise or lower the rate"),
        ("= R", "type a rate"),
        ("0", "remove rate and schedule"),
        ("a", "use only idle resources"),
        ("c", "cancel, after a question"),
        ("Ctrl-L", "draw the screen again"),
        ("q", "quit"),
        ("", "max: at most this rate"),
        ("", "limit: keys do not exceed it"),
    ];
    let line = |(key, does): &(&str, &str)| {
        let text = format!("{key:<11} {does}");
        Line::plain(fixed(&text, width(&text).min(size.columns), size.unicode))
    };
    LINES.iter().map(line).collect()
}

#[cfg(test)]
mod tests;
