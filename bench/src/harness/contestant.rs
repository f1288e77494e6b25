//! Who takes part.

use std::ffi::OsString;
use std::path::PathBuf;

/// What a contestant is to the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Cordboard, as the command or as the library.
    Ours,
    /// The tool everybody has, which the ratios refer to.
    Reference,
    /// Another program that does the work.
    Peer,
    /// The tightest loop we could write by hand for one way.
    Baseline,
}

impl Role {
    /// The word in `raw.csv`.
    pub fn name(self) -> &'static str {
        match self {
            Role::Ours => "ours",
            Role::Reference => "reference",
            Role::Peer => "peer",
            Role::Baseline => "baseline",
        }
    }
}

/// A program and its arguments, in which `{src}` and the like stand for what
/// a run fills in.
#[derive(Debug, Clone)]
pub struct Contestant {
    /// As in the tables. No comma: the command line lists names by them.
    pub name: String,
    /// What it is to the comparison.
    pub role: Role,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
}

impl Contestant {
    /// A contestant whose arguments are one string, split at spaces.
    pub fn new(name: &str, role: Role, program: impl Into<PathBuf>, args: &str) -> Contestant {
        Contestant {
            name: name.to_owned(),
            role,
            program: program.into(),
            args: args.split_whitespace().map(str::to_owned).collect(),
        }
    }

    /// The same under another name.
    #[must_use]
    pub fn called(mut self, name: &str) -> Contestant {
        name.clone_into(&mut self.name);
        self
    }

    /// Program and arguments with the placeholders filled in.
    pub fn words(&self, fill: &[(&str, OsString)]) -> Vec<OsString> {
        let mut words = vec![self.program.clone().into_os_string()];
        for arg in &self.args {
            let filled = fill.iter().find(|(key, _)| {
                arg.strip_prefix('{').and_then(|a| a.strip_suffix('}')) == Some(key)
            });
            match filled {
                Some((_, value)) => words.push(value.clone()),
                None => words.push(substitute(arg, fill).into()),
            }
        }
        words
    }
}

/// For placeholders inside an argument, as in `if={src}`.
fn substitute(arg: &str, fill: &[(&str, OsString)]) -> String {
    fill.iter().fold(arg.to_owned(), |arg, (key, value)| {
        arg.replace(&format!("{{{key}}}"), &value.to_string_lossy())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_in() {
        let dd = Contestant::new("dd", Role::Peer, "dd", "if={src} {dst} bs=1M");
        let words = dd.words(&[("src", "a b".into()), ("dst", "c d".into())]);
        assert_eq!(words, ["dd", "if=a b", "c d", "bs=1M"]);
    }
}
