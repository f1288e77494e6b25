//! How asynchronous block I/O is submitted.

use std::str::FromStr;

/// How asynchronous block I/O is submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Backend {
    /// io_uring if this process may use it, otherwise a few threads.
    #[default]
    Auto,
    /// io_uring only, since Linux 5.13.
    Uring,
    /// A few threads, never io_uring.
    Epoll,
}

impl Backend {
    /// Reads `CORDBOARD_ENGINE`: `io_uring`, `epoll`; `auto`, empty or unset
    /// for [`Backend::Auto`].
    ///
    /// # Errors
    ///
    /// The word is not a backend.
    pub fn from_env() -> Result<Backend, BadBackend> {
        match std::env::var_os("CORDBOARD_ENGINE") {
            None => Ok(Backend::Auto),
            Some(word) => word.to_string_lossy().parse(),
        }
    }
}

/// A word that is not a backend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("CORDBOARD_ENGINE: `{0}` is not an engine: use io_uring, epoll or auto")]
pub struct BadBackend(pub String);

impl FromStr for Backend {
    type Err = BadBackend;

    fn from_str(word: &str) -> Result<Backend, BadBackend> {
        match word.trim().to_ascii_lowercase().as_str() {
            "" | "auto" => Ok(Backend::Auto),
            "io_uring" | "io-uring" | "uring" => Ok(Backend::Uring),
            "epoll" => Ok(Backend::Epoll),
            _ => Err(BadBackend(word.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        assert_eq!("io_uring".parse(), Ok(Backend::Uring));
        assert_eq!(" EPOLL".parse(), Ok(Backend::Epoll));
        assert_eq!("".parse(), Ok(Backend::Auto));
        let bad = "kqueue".parse::<Backend>().unwrap_err();
        assert!(bad.to_string().contains("`kqueue`"), "{bad}");
    }
}
