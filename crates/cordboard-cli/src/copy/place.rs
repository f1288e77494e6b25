//! A file by its directory and name, and by the path that messages show.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Stat, statat};

use crate::signals::retry;

/// The place of a file.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Its directory.
    pub directory: BorrowedFd<'a>,
    /// Its name there.
    pub name: &'a Path,
    /// The path of the directory, for messages.
    above: &'a Path,
    /// It is inside a tree and is not an operand: no symlink of its name is
    /// followed, and nothing but the file found there is opened.
    pub beneath: bool,
    /// This command has made its directory: nothing there is to be replaced.
    pub new: bool,
    /// Another source of the same directory has this name in another case.
    pub collides: bool,
}

impl<'a> Place<'a> {
    /// An operand.
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

    /// A path of which only the directory is an operand.
    pub fn inside(path: &'a Path) -> Place<'a> {
        Place {
            beneath: true,
            ..Place::top(path)
        }
    }

    /// A name in a directory of this path.
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

    /// The same place, in a directory that this command has made or not.
    pub fn in_new(self, new: bool) -> Place<'a> {
        Place { new, ..self }
    }

    /// The same place, with a [case collision](Place::collides) or not.
    pub fn with_collision(self, collides: bool) -> Place<'a> {
        Place { collides, ..self }
    }

    /// The status of the file. A symlink is not followed.
    pub fn stat(&self) -> rustix::io::Result<Stat> {
        retry(|| statat(self.directory, self.name, AtFlags::SYMLINK_NOFOLLOW))
    }

    /// The path, for messages and for calls that need one.
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

/// A path to print: as text, or as its bytes.
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
