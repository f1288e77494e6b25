//! What a command moves, in a few words.

use std::ffi::OsStr;

use super::{Cat, Copy, Splice};

/// Names that are mentioned, at most, on each side.
const MOST: usize = 3;
/// Characters of a label, at most.
const LONGEST: usize = 1000;

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
        let text = format!("{} -> {}", names(sources), names(sinks));
        Label {
            command,
            text: text.chars().take(LONGEST).collect(),
        }
    }
}

/// The first names, and the number of the others.
fn names<'a>(all: impl ExactSizeIterator<Item = &'a OsStr>) -> String {
    let more = all.len().saturating_sub(MOST);
    let first = all.take(MOST).map(|name| name.to_string_lossy());
    let first: Vec<_> = first.collect();
    match more {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
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
