//! Whether a transfer measures other paths and block sizes while it runs.

use std::str::FromStr;

/// Whether a transfer measures other paths and block sizes while it runs, and uses the
/// fastest.
///
/// A transfer measures if at least one side is a stream socket: its first path after 8 MiB, and
/// others after 56 MiB, or earlier if 512 MiB are known to follow. It does not measure if the sink is a
/// file or a side has messages or records, or with a stage. It does not measure from a TCP connection
/// by `splice(2)` either: a slower call permanently enlarges the receive buffer. While a
/// schedule limits the rate, it measures only for [`Aim::Background`](super::Aim::Background) and
/// [`Tune::Processor`].
///
/// Direct I/O measures the number and the size of its blocks. Nothing is measured with a
/// [`Request::block`](super::Request::block), or with [`Switches`](super::Switches) that leave one
/// path.
///
/// The process remembers for five minutes what was found for the kinds of source and sink, and for
/// the file system of the source. The next transfer between them, of any length, begins with it, or
/// continues the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Tune {
    /// The transfer measures, and uses the fastest setting; of equally fast ones, the one that
    /// takes less processor time.
    #[default]
    On,
    /// The transfer measures, and uses the setting that takes the least processor time; of equal
    /// ones, the fastest. Direct I/O uses its first setting: the largest blocks take the least.
    Processor,
    /// The transfer uses the first path of its route, and direct I/O its first number and size
    /// of blocks.
    Off,
    /// The transfer does not measure, and changes the path and the size after each step. For
    /// tests: no sequence of changes may lose a byte.
    #[doc(hidden)]
    EachStep,
}

impl Tune {
    /// Reads `CORDBOARD_TUNE`: `off` is [`Tune::Off`], `processor` is [`Tune::Processor`];
    /// `on`, empty and unset are [`Tune::On`].
    ///
    /// # Errors
    ///
    /// The value is another word.
    pub fn from_env() -> Result<Tune, BadTune> {
        match std::env::var_os("CORDBOARD_TUNE") {
            None => Ok(Tune::On),
            Some(word) => word.to_string_lossy().parse(),
        }
    }
}

/// A word that is not a value of `CORDBOARD_TUNE`: `on`, `processor` or `off`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("CORDBOARD_TUNE: `{0}` is unknown: use on, processor or off")]
pub struct BadTune(pub String);

impl FromStr for Tune {
    type Err = BadTune;

    fn from_str(word: &str) -> Result<Tune, BadTune> {
        match word.trim().to_ascii_lowercase().as_str() {
            "" | "on" => Ok(Tune::On),
            "processor" => Ok(Tune::Processor),
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
        assert_eq!("processor".parse(), Ok(Tune::Processor));
        assert_eq!("".parse(), Ok(Tune::On));
        let bad = "never".parse::<Tune>().unwrap_err();
        assert!(bad.to_string().contains("`never`"), "{bad}");
    }
}
