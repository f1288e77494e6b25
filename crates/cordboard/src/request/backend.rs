//! How the kernel is given work that it does on its own.

use std::str::FromStr;

/// How the kernel is given work that it does on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Backend {
    /// By io_uring where this process may use it, by a few threads elsewhere.
    #[default]
    Auto,
    /// By io_uring, since Linux 5.13; nothing else.
    Uring,
    /// By a few threads, and never by io_uring.
    Epoll,
}

impl Backend {
    /// As `CORDBOARD_ENGINE` has it: `io_uring`, `epoll`; nothing or `auto` for
    /// [`Backend::Auto`].
    ///
    /// # Errors
    ///
    /// A word that names none.
    pub fn from_env() -> Result<Backend, BadBackend> {
        match std::env::var_os("CORDBOARD_ENGINE") {
            None => Ok(Backend::Auto),
            Some(word) => word.to_string_lossy().parse(),
        }
    }
}

/// A word that names no backend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("CORDBOARD_ENGINE: `{0}` is no engine: use io_uring, epoll or auto")]
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
