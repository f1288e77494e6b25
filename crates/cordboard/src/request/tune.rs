//! Whether a transfer measures other paths and block sizes while it runs.

use std::str::FromStr;

/// Whether a transfer measures other paths and block sizes while it runs, and uses the
/// fastest.
///
/// Only long transfers do so: of more than 8 MiB, with a stream socket on one side at
/// least. A [`Request::block`](super::Request::block), a schedule, a stage, and
/// [`Switches`](super::Switches) that leave one path turn it off too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Tune {
    /// It measures.
    #[default]
    On,
    /// It keeps to the first choice.
    Off,
    /// It measures nothing and changes to another path and another size after each step.
    /// For tests: no sequence of changes may lose a byte.
    #[doc(hidden)]
    EachStep,
}

impl Tune {
    /// Reads `CORDBOARD_TUNE`: `off`; `on`, empty or unset for [`Tune::On`].
    ///
    /// # Errors
    ///
    /// The word is neither.
    pub fn from_env() -> Result<Tune, BadTune> {
        match std::env::var_os("CORDBOARD_TUNE") {
            None => Ok(Tune::On),
            Some(word) => word.to_string_lossy().parse(),
        }
    }
}

/// A word that is neither `on` nor `off`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("CORDBOARD_TUNE: `{0}` is unknown: use on or off")]
pub struct BadTune(pub String);

impl FromStr for Tune {
    type Err = BadTune;

    fn from_str(word: &str) -> Result<Tune, BadTune> {
        match word.trim().to_ascii_lowercase().as_str() {
            "" | "on" => Ok(Tune::On),
            "off" => Ok(Tune::Off),
            _ => Err(BadTune(word.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        assert_eq!("OFF ".parse(), Ok(Tune::Off));
        assert_eq!("on".parse(), Ok(Tune::On));
        assert_eq!("".parse(), Ok(Tune::On));
        let bad = "never".parse::<Tune>().unwrap_err();
        assert!(bad.to_string().contains("`never`"), "{bad}");
    }
}
