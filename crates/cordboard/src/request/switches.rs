//! Switches that disable paths, or force one.

use std::convert::Infallible;

use super::data_path::{BadSwitch, DataPath};
use crate::sys::PerProcess;

/// Which paths may be used.
///
/// A path can be disabled if it is suspected of corruption (a file system's
/// block cloning has corrupted data before), and a test or a measurement can
/// force one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Switches {
    allowed: u32,
}

impl Default for Switches {
    fn default() -> Switches {
        Switches::all()
    }
}

impl Switches {
    /// Allows every path.
    pub const fn all() -> Switches {
        Switches { allowed: u32::MAX }
    }

    /// Allows only these paths.
    pub fn only(paths: &[DataPath]) -> Switches {
        Switches {
            allowed: paths.iter().fold(0, |bits, path| bits | path.bit()),
        }
    }

    /// Returns the same switches with this path.
    #[must_use]
    pub(crate) fn with(self, path: DataPath) -> Switches {
        Switches {
            allowed: self.allowed | path.bit(),
        }
    }

    /// Returns the same switches without this path.
    #[must_use]
    pub fn without(self, path: DataPath) -> Switches {
        Switches {
            allowed: self.allowed & !path.bit(),
        }
    }

    /// Returns whether this path may be used.
    pub fn allows(self, path: DataPath) -> bool {
        self.allowed & path.bit() != 0
    }

    /// Returns the path if only one is allowed. A transfer that this path
    /// cannot carry then fails, since there is no fallback.
    pub fn forced(self) -> Option<DataPath> {
        let mut left = DataPath::ALL.iter().copied().filter(|p| self.allows(*p));
        match (left.next(), left.next()) {
            (Some(path), None) => Some(path),
            _ => None,
        }
    }

    /// Parses two lists of path names, separated by commas: the allowed ones
    /// (empty: all), and the disabled ones.
    ///
    /// # Errors
    ///
    /// A word is not the name of a path.
    pub fn parse(only: &str, without: &str) -> Result<Switches, BadSwitch> {
        let words = |list: &str| -> Result<Vec<DataPath>, BadSwitch> {
            list.split(',')
                .filter(|word| !word.trim().is_empty())
                .map(str::parse)
                .collect()
        };
        let only = words(only)?;
        let mut switches = if only.is_empty() {
            Switches::all()
        } else {
            Switches::only(&only)
        };
        for path in words(without)? {
            switches = switches.without(path);
        }
        Ok(switches)
    }

    /// Reads the environment, once per process: `CORDBOARD_ROUTE` lists the
    /// allowed paths, `CORDBOARD_WITHOUT` the disabled ones.
    ///
    /// # Errors
    ///
    /// A word in either variable is not the name of a path.
    pub fn from_env() -> Result<Switches, BadSwitch> {
        static ENV: PerProcess<Result<Switches, BadSwitch>> = PerProcess::new();
        let read = |parents: Option<&'static _>| parents.cloned().unwrap_or_else(Switches::read);
        let Ok(switches) = ENV.get(|parents| Ok::<_, Infallible>(read(parents)));
        switches.clone()
    }

    fn read() -> Result<Switches, BadSwitch> {
        // Text that is not UTF-8 is no path name, and is reported as such.
        let read = |name| match std::env::var_os(name) {
            Some(words) => words.to_string_lossy().into_owned(),
            None => String::new(),
        };
        let from = |origin| move |bad| BadSwitch { origin, ..bad };
        let only = read("CORDBOARD_ROUTE");
        let without = read("CORDBOARD_WITHOUT");
        Switches::parse(&only, "").map_err(from("CORDBOARD_ROUTE: "))?;
        Switches::parse("", &without).map_err(from("CORDBOARD_WITHOUT: "))?;
        Switches::parse(&only, &without)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_allow_and_turn_off() {
        let s = Switches::parse("", "clone, splice").unwrap();
        assert!(!s.allows(DataPath::Clone) && !s.allows(DataPath::Splice));
        assert!(s.allows(DataPath::ReadWrite));
        let s = Switches::parse("rw", "").unwrap();
        assert_eq!(s.forced(), Some(DataPath::ReadWrite));
        assert_eq!(
            Switches::parse("teleport", "").unwrap_err().word,
            "teleport"
        );
        assert_eq!(Switches::all().forced(), None);
    }
}
