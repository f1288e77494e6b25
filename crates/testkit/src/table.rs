//! The table of paths, `docs/paths.md`: an experiment writes it, a test checks it.

use crate::sink::SinkKind;
use crate::source::SourceKind;
use std::fmt;

/// A cell: the path of a pair, and how fast it is.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// All bytes arrived, and are the bytes sent.
    Moved {
        /// The paths that carried it, joined by `+`.
        path: String,
        /// Throughput, as a ratio to that of the plain read/write loop;
        /// `None` where it was not measured.
        ratio: Option<f64>,
    },
    /// It fails as the plain loop does, with this errno.
    FailsAlike(String),
    /// It fails although the plain loop works, or moves other bytes: the reason.
    Wrong(String),
    /// It is not available.
    Skipped,
}

/// The text of a cell that is not available.
const SKIPPED: &str = "skipped";
const ALIKE: &str = "as read/write: ";
const WRONG: &str = "FAILS: ";

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Moved { path, ratio: None } => write!(f, "{path} ✓"),
            Entry::Moved {
                path,
                ratio: Some(ratio),
            } => write!(f, "{path} ✓ {ratio:.2}"),
            Entry::FailsAlike(errno) => write!(f, "{ALIKE}{errno}"),
            Entry::Wrong(why) => write!(f, "{WRONG}{}", why.replace('|', "/")),
            Entry::Skipped => f.write_str(SKIPPED),
        }
    }
}

impl Entry {
    /// Parses the text of a cell.
    pub fn parse(text: &str) -> Option<Entry> {
        let text = text.trim();
        if text == SKIPPED {
            return Some(Entry::Skipped);
        }
        if let Some(errno) = text.strip_prefix(ALIKE) {
            return Some(Entry::FailsAlike(errno.to_owned()));
        }
        if let Some(why) = text.strip_prefix(WRONG) {
            return Some(Entry::Wrong(why.to_owned()));
        }
        let (path, ratio) = text.split_once(" ✓")?;
        let ratio = match ratio.trim() {
            "" => None,
            ratio => Some(ratio.parse().ok()?),
        };
        Some(Entry::Moved {
            path: path.to_owned(),
            ratio,
        })
    }
}

/// Returns the table in Markdown: a row per source, a column per sink.
pub fn render(mut entry: impl FnMut(SourceKind, SinkKind) -> Entry) -> String {
    let mut text = String::from("| from \\ to |");
    for sink in SinkKind::ALL {
        text += &format!(" {} |", sink.name());
    }
    text += "\n|---|";
    text += &"---|".repeat(SinkKind::ALL.len());
    for source in SourceKind::ALL {
        text += &format!("\n| **{}** |", source.name());
        for sink in SinkKind::ALL {
            text += &format!(" {} |", entry(*source, *sink));
        }
    }
    text + "\n"
}

/// Parses a table in Markdown with the rows and columns of [`render`].
///
/// # Errors
///
/// A message that says what is missing, surplus or invalid.
pub fn parse(text: &str) -> Result<Vec<(SourceKind, SinkKind, Entry)>, String> {
    let mut lines = text.lines().filter(|line| line.starts_with('|'));
    let head = cells(lines.next().ok_or("no table")?);
    let sinks: Vec<&str> = SinkKind::ALL.iter().map(|kind| kind.name()).collect();
    if head.get(1..) != Some(&sinks) {
        return Err(format!("columns are {head:?}, not {sinks:?}"));
    }
    let rows: Vec<Vec<&str>> = lines.skip(1).map(cells).collect();
    if rows.len() != SourceKind::ALL.len() {
        let (found, wanted) = (rows.len(), SourceKind::ALL.len());
        return Err(format!("{found} rows, not {wanted}"));
    }
    let mut all = Vec::new();
    for (source, row) in SourceKind::ALL.iter().zip(rows) {
        let name = source.name();
        if row.first().map(|cell| cell.trim_matches('*')) != Some(name) {
            return Err(format!("no row {name}, but {:?}", row.first()));
        }
        if row.len() != sinks.len() + 1 {
            return Err(format!("row {name} has {} cells", row.len()));
        }
        for (sink, text) in SinkKind::ALL.iter().zip(&row[1..]) {
            let entry = Entry::parse(text);
            let entry = entry.ok_or_else(|| format!("{name} -> {}: {text:?}", sink.name()))?;
            all.push((*source, *sink, entry));
        }
    }
    Ok(all)
}

fn cells(line: &str) -> Vec<&str> {
    line.trim()
        .trim_matches('|')
        .split('|')
        .map(str::trim)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let entries = [
            Entry::Moved {
                path: "splice+read/write".to_owned(),
                ratio: Some(1.25),
            },
            Entry::FailsAlike("ENOSPC".to_owned()),
            Entry::Wrong("sink EIO".to_owned()),
            Entry::Skipped,
        ];
        let mut next = entries.iter().cycle().cloned();
        let text = render(|_, _| next.next().unwrap_or(Entry::Skipped));
        let found = parse(&format!("# Paths\n\n{text}\nThat is all.\n")).unwrap();
        assert_eq!(found.len(), SourceKind::ALL.len() * SinkKind::ALL.len());
        for ((_, _, found), wanted) in found.iter().zip(entries.iter().cycle()) {
            assert_eq!(found, wanted);
        }
    }
}
