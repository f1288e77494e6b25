//! The contestants: programs that are compared.

use std::ffi::OsString;
use std::path::PathBuf;

/// The role of a contestant in the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Cordboard, as the command or as the library.
    Ours,
    /// The standard tool, to which the ratios refer.
    Reference,
    /// Another program for the same work.
    Peer,
    /// A hand-written loop for one method.
    Baseline,
}

impl Role {
    /// The name in `raw.csv`.
    pub fn name(self) -> &'static str {
        match self {
            Role::Ours => "ours",
            Role::Reference => "reference",
            Role::Peer => "peer",
            Role::Baseline => "baseline",
        }
    }
}

/// A program and its arguments, with placeholders such as `{src}`.
#[derive(Debug, Clone)]
pub struct Contestant {
    /// The name in the tables, without a comma: it separates names on the
    /// command line.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
}

impl Contestant {
    /// A contestant with arguments that `args` separates by spaces.
    pub fn new(name: &str, role: Role, program: impl Into<PathBuf>, args: &str) -> Contestant {
        Contestant {
            name: name.to_owned(),
            role,
            program: program.into(),
            args: args.split_whitespace().map(str::to_owned).collect(),
        }
    }

    /// The same contestant with another name.
    #[must_use]
    pub fn called(mut self, name: &str) -> Contestant {
        name.clone_into(&mut self.name);
        self
    }

    /// The program and its arguments, with the placeholders replaced.
    pub fn command_line(&self, fill: &[(&str, OsString)]) -> Vec<OsString> {
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

/// Replaces placeholders inside an argument, such as `if={src}`.
fn substitute(arg: &str, fill: &[(&str, OsString)]) -> String {
    fill.iter().fold(arg.to_owned(), |arg, (key, value)| {
        arg.replace(&format!("{{{key}}}"), &value.to_string_lossy())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_replaced() {
        let dd = Contestant::new("dd", Role::Peer, "dd", "if={src} {dst} bs=1M");
        let words = dd.command_line(&[("src", "a b".into()), ("dst", "c d".into())]);
        assert_eq!(words, ["dd", "if=a b", "c d", "bs=1M"]);
    }
}
