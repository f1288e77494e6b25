//! A file by its directory and name, and by the path that messages show.

use std::borrow::Cow;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::CWD;

/// Where a file is.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Its directory.
    pub directory: BorrowedFd<'a>,
    /// Its name there.
    pub name: &'a Path,
    /// Its path, for people.
    pub path: &'a Path,
}

impl<'a> Place<'a> {
    /// A path as it was given.
    pub fn top(path: &'a Path) -> Place<'a> {
        Place {
            directory: CWD,
            name: path,
            path,
        }
    }

    /// The path as text.
    pub fn shown(&self) -> Cow<'a, str> {
        self.path.to_string_lossy()
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}
