//! A file by its directory and name, and by the path that messages show.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Stat, statat};

use crate::signals::retry;

/// Where a file is.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Its directory.
    pub directory: BorrowedFd<'a>,
    /// Its name there.
    pub name: &'a Path,
    /// The directory's path, for people.
    above: &'a Path,
    /// It is inside a tree and was not given as an operand: no symlink at its
    /// name is followed, and nothing but what was found there is opened.
    pub beneath: bool,
    /// Its directory was made by this command: nothing is there already that
    /// is to be replaced.
    pub new: bool,
    /// Another source of the same directory has this name in another case.
    pub collides: bool,
}

impl<'a> Place<'a> {
    /// A path as it was given.
    pub fn top(path: &'a Path) -> Place<'a> {
        Place {
            directory: CWD,
            name: path,
            above: Path::new(""),
            beneath: false,
            new: false,
            collides: false,
        }
    }

    /// A path of which only the directory was given.
    pub fn inside(path: &'a Path) -> Place<'a> {
        Place {
            beneath: true,
            ..Place::top(path)
        }
    }

    /// A name in a directory, of which this is the path.
    pub fn below(directory: BorrowedFd<'a>, above: &'a Path, name: &'a Path) -> Place<'a> {
        Place {
            directory,
            name,
            above,
            beneath: true,
            new: false,
            collides: false,
        }
    }

    /// The same in a directory that this command has made, or has not.
    pub fn in_new(self, new: bool) -> Place<'a> {
        Place { new, ..self }
    }

    /// The same, as a [twin](Place::twin) or not.
    pub fn with_collision(self, collides: bool) -> Place<'a> {
        Place { collides, ..self }
    }

    /// What is there; a symlink is not followed.
    pub fn stat(&self) -> rustix::io::Result<Stat> {
        retry(|| statat(self.directory, self.name, AtFlags::SYMLINK_NOFOLLOW))
    }

    /// The path, for people and for what has no other way.
    pub fn path(&self) -> Cow<'a, Path> {
        match self.above.as_os_str().is_empty() {
            true => Cow::Borrowed(self.name),
            false => Cow::<Path>::Owned(PathBuf::from(self.above).join(self.name)),
        }
    }

    /// The path, for messages and lines.
    pub fn shown(&self) -> Shown {
        Shown(self.path().into_owned())
    }
}

/// A path that is to be printed: as text, or as the bytes it is.
#[derive(Debug, Clone)]
pub struct Shown(PathBuf);

impl From<Shown> for String {
    fn from(shown: Shown) -> String {
        shown.0.to_string_lossy().into_owned()
    }
}

impl AsRef<OsStr> for Shown {
    fn as_ref(&self) -> &OsStr {
        self.0.as_os_str()
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path().display().fmt(f)
    }
}
