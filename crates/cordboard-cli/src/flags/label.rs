//! What a command moves, in a few words.

use std::ffi::OsStr;

use super::{Cat, Copy, Splice};

/// Names that are mentioned, at most, on each side.
const MOST: usize = 3;
/// Characters of all names together, at most.
const LONGEST: usize = 960;

/// What a command moves, for the list of `cordboard top`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The command: `splice`.
    pub command: &'static str,
    /// The names: `a -> b`.
    pub text: String,
}

impl Label {
    fn new<'a>(
        command: &'static str,
        sources: impl ExactSizeIterator<Item = &'a OsStr>,
        sinks: impl ExactSizeIterator<Item = &'a OsStr>,
    ) -> Label {
        let each = LONGEST / (sources.len().min(MOST) + sinks.len().min(MOST)).max(1);
        let text = format!("{} -> {}", names(sources, each), names(sinks, each));
        Label { command, text }
    }
}

/// The first names, each of at most so many characters, and the number of the others.
fn names<'a>(all: impl ExactSizeIterator<Item = &'a OsStr>, each: usize) -> String {
    let more = all.len().saturating_sub(MOST);
    let first = all
        .take(MOST)
        .map(|name| shortened(&name.to_string_lossy(), each));
    let first: Vec<_> = first.collect();
    match more {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// Omits the middle of a longer name: its start and its end identify the file.
fn shortened(name: &str, most: usize) -> String {
    const MARK: &str = "...";
    let length = name.chars().count();
    if length <= most {
        return name.to_owned();
    }
    let room = most.saturating_sub(MARK.len());
    let start: String = name.chars().take(room / 2).collect();
    let end: String = name.chars().skip(length - room.div_ceil(2)).collect();
    start + MARK + &end
}

impl Splice {
    /// What it moves.
    pub fn label(&self) -> Label {
        let all: Vec<&OsStr> = [&self.source, &self.sink]
            .into_iter()
            .chain(&self.more_sinks)
            .map(|name| name.as_os_str())
            .collect();
        let sources = if self.fan_in.fan_in.is_some() {
            all.len() - 1
        } else {
            1
        };
        let (sources, sinks) = all.split_at(sources);
        Label::new("splice", sources.iter().copied(), sinks.iter().copied())
    }
}

impl Copy {
    /// What it copies.
    pub fn label(&self) -> Label {
        let (sources, sink) = self.operands();
        let sources = sources.iter().map(|name| name.as_os_str());
        Label::new("copy", sources, std::iter::once(sink.as_os_str()))
    }
}

impl Cat {
    /// What it writes to standard output.
    pub fn label(&self) -> Label {
        let standard = [OsStr::new("-")];
        let named: Vec<&OsStr> = self.files.iter().map(|name| name.as_os_str()).collect();
        let files = if named.is_empty() {
            &standard[..]
        } else {
            &named[..]
        };
        Label::new("cat", files.iter().copied(), standard.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Cli, Command};
    use clap::Parser;

    fn label(words: &str) -> Label {
        let cli = Cli::try_parse_from(words.split(' ')).unwrap();
        match cli.command {
            Command::Splice(flags) => flags.label(),
            Command::Copy(flags) => flags.label(),
            Command::Cat(flags) => flags.label(),
            _ => panic!("it moves no bytes"),
        }
    }

    #[test]
    fn long_names_have_their_ends() {
        let deep = |name: &str| format!("/{}/{name}", "é".repeat(2000));
        let [a, b, c] = ["a", "b", "c"].map(deep);
        let text = label(&format!("cordboard splice {a} {b}")).text;
        let (source, sink) = text.split_once(" -> ").unwrap();
        for (side, name) in [(source, "/a"), (sink, "/b")] {
            assert!(side.starts_with("/é") && side.ends_with(name), "{side}");
            assert!(side.contains("é...é"), "{side}");
            assert_eq!(side.chars().count(), 480);
        }
        let many = label(&format!("cordboard copy {a} {b} {c} {a} {b} {c}")).text;
        assert!(many.contains("/c and 2 more -> "), "{many}");
        assert!(
            many.ends_with("/c") && many.chars().count() < 1000,
            "{many}"
        );
    }

    #[test]
    fn labels_have_both_sides() {
        for (words, text) in [
            ("cordboard splice a b", "a -> b"),
            ("cordboard splice a b c", "a -> b, c"),
            ("cordboard splice a b c --fan-in line", "a, b -> c"),
            ("cordboard copy a b c d e f", "a, b, c and 2 more -> f"),
            ("cordboard copy a b", "a -> b"),
            ("cordboard cat", "- -> -"),
            ("cordboard cat a", "a -> -"),
        ] {
            assert_eq!(label(words).text, text, "{words}");
        }
        assert_eq!(label("cordboard cat").command, "cat");
    }
}
