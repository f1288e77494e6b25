//! The metadata of a file.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Stat, fstat, readlinkat, statat};
use rustix::io::Errno;

use crate::files::Id;

/// The metadata of a file. The type of `cap-std` converts the times, and panics at a time of
/// `i64::MIN` seconds, which some file systems store.
#[derive(Debug, Clone)]
pub struct About {
    kind: FileType,
    /// The target of a symlink to a directory.
    pub target: Option<Vec<u8>>,
    pub mode: u32,
    pub links: u64,
    pub user: u32,
    pub group: u32,
    pub length: u64,
    /// The time of the last modification, in seconds since 1970 and nanoseconds.
    pub modified: (i64, u32),
    pub id: Id,
}

impl About {
    /// The metadata of a file of which only the name is known. It is listed as a special file.
    pub const UNKNOWN: About = About {
        kind: FileType::Unknown,
        target: None,
        mode: 0,
        links: 1,
        user: 0,
        group: 0,
        length: 0,
        modified: (0, 0),
        id: (0, 0),
    };

    /// Returns the metadata of an open file.
    pub fn of(file: impl AsFd) -> io::Result<About> {
        Ok(About::from(fstat(file)?))
    }

    /// Returns the metadata of an entry of a directory, which may be a symlink.
    pub fn entry(folder: impl AsFd, name: &OsStr) -> io::Result<About> {
        Ok(About::from(statat(
            folder,
            name,
            AtFlags::SYMLINK_NOFOLLOW,
        )?))
    }

    /// Adds the target of this symlink, which is an entry of a directory.
    pub(super) fn leading_to(self, folder: impl AsFd, name: &OsStr) -> io::Result<About> {
        let target = match readlinkat(folder, name, Vec::new()) {
            Ok(target) => target.into_bytes(),
            // Another process has just replaced the symlink.
            Err(Errno::INVAL) => Vec::new(),
            Err(errno) => return Err(errno.into()),
        };
        Ok(About {
            target: Some(target),
            ..self
        })
    }

    /// Whether only the name is known.
    pub fn is_unknown(&self) -> bool {
        self.kind == FileType::Unknown
    }

    pub fn is_dir(&self) -> bool {
        self.kind.is_dir()
    }

    pub fn is_file(&self) -> bool {
        self.kind.is_file()
    }

    pub fn is_symlink(&self) -> bool {
        self.kind.is_symlink()
    }
}

#[allow(clippy::unnecessary_cast, reason = "their width is the architecture's")]
impl From<Stat> for About {
    fn from(stat: Stat) -> About {
        About {
            kind: FileType::from_raw_mode(stat.st_mode as _),
            target: None,
            mode: stat.st_mode as u32,
            links: stat.st_nlink as u64,
            user: stat.st_uid,
            group: stat.st_gid,
            length: stat.st_size as u64,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as u32),
            id: (stat.st_dev as u64, stat.st_ino as u64),
        }
    }
}
