//! Values that are words.

use std::ffi::OsStr;

use clap::ValueEnum;
use clap::builder::{PossibleValue, TypedValueParser};
use cordboard::{DataPath, Sparse};

/// `auto`, `always`, `never`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// If appropriate.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProgressMode {
    /// Drawn, on a terminal only.
    Auto,
    /// Drawn, into files and pipes too.
    Always,
    /// One line each second, for logs.
    Lines,
    /// Only on SIGUSR1.
    Never,
}

impl From<When> for Sparse {
    fn from(when: When) -> Sparse {
        match when {
            When::Auto => Sparse::Auto,
            When::Always => Sparse::Always,
            When::Never => Sparse::Never,
        }
    }
}

/// The parser of a path's name, which also provides all names for completions.
#[derive(Clone)]
pub(super) struct Word;

impl TypedValueParser for Word {
    type Value = DataPath;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        word: &OsStr,
    ) -> Result<DataPath, clap::Error> {
        path.parse_ref(command, arg, word)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let names = DataPath::ALL.iter().map(|path| path.name());
        Some(Box::new(names.map(PossibleValue::new)))
    }
}

fn path(word: &str) -> Result<DataPath, String> {
    match word {
        "sockmap" => Err(format!("the path {word} is not implemented yet")),
        word => word
            .parse()
            .map_err(|bad: cordboard::request::BadSwitch| bad.to_string()),
    }
}
