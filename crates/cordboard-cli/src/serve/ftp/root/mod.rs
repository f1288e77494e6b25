//! The served directory. Every name is resolved beneath it by `openat2(2)` with
//! `RESOLVE_BENEATH`, or one component at a time if that call is missing (`cap-std`), so
//! no symlink and no concurrent rename leads out of it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;

use crate::files::Id;

pub use about::About;
pub use uploads::Running;
use uploads::Uploads;

mod about;
mod entries;
mod uploads;

/// A path as the client sees it: components below the root, without `.` and `..`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place(Vec<OsString>);

impl Place {
    /// Returns the place of a path, relative to this one. `..` of the root is the root.
    pub fn join(&self, path: &[u8]) -> Place {
        let mut parts = match path.first() {
            Some(b'/') => Vec::new(),
            _ => self.0.clone(),
        };
        for part in path.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => drop(parts.pop()),
                name => parts.push(OsString::from_vec(name.to_vec())),
            }
        }
        Place(parts)
    }

    /// Returns the path as the client sees it.
    pub fn shown(&self) -> Vec<u8> {
        let mut path = Vec::new();
        for part in &self.0 {
            path.push(b'/');
            path.extend_from_slice(part.as_bytes());
        }
        if path.is_empty() { b"/".to_vec() } else { path }
    }

    /// Returns the last component.
    pub fn name(&self) -> Option<&[u8]> {
        self.0.last().map(|name| name.as_bytes())
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    fn path(&self) -> PathBuf {
        match self.0.is_empty() {
            true => PathBuf::from("."),
            false => self.0.iter().collect(),
        }
    }
}

/// What an upload does with an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upload {
    /// Replaces its content.
    Replace,
    /// Writes from this offset on.
    From(u64),
    /// Appends.
    Append,
    /// Fails.
    New,
}

/// The access to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    Append,
}

impl Access {
    /// The flags of open(2). With `O_NONBLOCK`, the call does not wait for the holder of a lease.
    fn flags(self) -> OFlags {
        let common = OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        common
            | match self {
                Access::Read => OFlags::RDONLY,
                Access::Write => OFlags::WRONLY,
                Access::Append => OFlags::WRONLY | OFlags::APPEND,
            }
    }

    fn options(self) -> OpenOptions {
        let mut options = OpenOptions::new();
        match self {
            Access::Read => options.read(true),
            Access::Write => options.write(true),
            Access::Append => options.append(true),
        };
        options
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .mode(0o666);
        options
    }
}

/// A file that is open for an upload.
pub struct Opened {
    pub file: File,
    pub upload: Running,
}

/// The number of times that an upload opens its file, if another upload removes it each time.
const TRIES: u32 = 16;

/// The stored time of modification may differ from the requested one by less than this number
/// of seconds: FAT stores even seconds.
const COARSE: u64 = 2;

/// The served directory.
pub struct Root {
    dir: Dir,
    uploads: Arc<Uploads>,
}

impl Root {
    /// Opens the directory.
    pub fn open(path: &Path) -> io::Result<Root> {
        Ok(Root {
            dir: Dir::open_ambient_dir(path, ambient_authority())?,
            uploads: Arc::default(),
        })
    }

    /// Opens a regular file for reading, at an offset.
    pub fn read(&self, place: &Place, offset: u64) -> io::Result<File> {
        let mut file = self.open_regular(place, Access::Read)?;
        if offset > 0 {
            if offset > file.metadata()?.len() {
                return Err(io::Error::other("the offset is beyond the end of the file"));
            }
            file.seek(SeekFrom::Start(offset))?;
        }
        Ok(file)
    }

    /// Opens or creates a regular file for writing. The caller truncates a file whose content
    /// is replaced, because the upload may still fail before its first byte.
    pub fn write(&self, place: &Place, upload: Upload) -> io::Result<Opened> {
        let access = match upload {
            Upload::Append => Access::Append,
            Upload::New | Upload::Replace | Upload::From(_) => Access::Write,
        };
        let mut opened = self.begin(place, || match upload {
            Upload::New => Ok((
                self.open_by_name(place, access.options().create_new(true))?,
                true,
            )),
            _ => self.open_or_create(place, access),
        })?;
        if let Upload::From(offset) = upload
            && opened.file.seek(SeekFrom::Start(offset)).is_err()
        {
            self.remove_new(place, &opened.upload);
            return Err(io::Error::other("the offset is too large"));
        }
        Ok(opened)
    }

    /// Opens a file by `open`, and again if another upload has removed it before this one was
    /// in the list of uploads. `open` returns whether it has created the file.
    fn begin(
        &self,
        place: &Place,
        mut open: impl FnMut() -> io::Result<(File, bool)>,
    ) -> io::Result<Opened> {
        for _ in 0..TRIES {
            let removals = self.uploads.removals();
            let (file, is_new) = open()?;
            let id = About::of(&file)?.id;
            let upload = self.uploads.begin(id, is_new);
            // The number of links would not tell: FUSE and NFS rename a removed file that is
            // open.
            if self.uploads.removals() == removals
                || self.metadata(place).is_ok_and(|about| about.id == id)
            {
                return Ok(Opened { file, upload });
            }
        }
        Err(io::Error::other("the file was removed at each try"))
    }

    /// Opens a regular file, or creates it. Returns whether this call has created it.
    fn open_or_create(&self, place: &Place, access: Access) -> io::Result<(File, bool)> {
        let is_missing = |opened: &io::Result<File>| {
            (opened.as_ref()).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        let opened = self.open_regular(place, access);
        if !is_missing(&opened) {
            return Ok((opened?, false));
        }
        match self.open_by_name(place, access.options().create_new(true)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return Ok((created?, true)),
        }
        // Another process has just created the file, or it is a symlink to a missing file.
        let opened = self.open_regular(place, access);
        if !is_missing(&opened) {
            return Ok((opened?, false));
        }
        let opened = self.open_by_name(place, access.options().create(true));
        Ok((opened?, false))
    }

    /// Removes the file that this upload has created, if it is empty and no other upload
    /// writes to it.
    pub fn remove_new(&self, place: &Place, upload: &Running) {
        if let Some(removal) = upload.begin_removal() {
            self.remove_empty(place, upload.id);
            drop(removal);
        }
    }

    /// Removes the file with this identity, if it is empty. The name is looked up twice, so
    /// the caller holds a `Removal`: another upload that creates a file of this name in between
    /// opens it again.
    fn remove_empty(&self, place: &Place, id: Id) {
        if let Some((name, folder)) = place.0.split_last()
            && let Ok(folder) = self.dir.open_dir(Place(folder.to_vec()).path())
        {
            remove_empty(&folder, name, id);
        }
    }

    /// Opens a regular file that exists. To open another file has effects: it would wake the
    /// process that waits for the other end of a FIFO, and those of a device are unknown.
    fn open_regular(&self, place: &Place, access: Access) -> io::Result<File> {
        let file = self.open_path(&place.path())?;
        if !About::of(&file)?.is_file() {
            return Err(not_regular());
        }
        match rustix::fs::open(link_to(file.as_fd()), access.flags(), Mode::empty()) {
            Ok(file) => Ok(file.into()),
            // Without /proc.
            Err(Errno::NOENT) => self.open_by_name(place, &access.options()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Opens or creates a file, and closes it if it is not regular.
    fn open_by_name(&self, place: &Place, options: &OpenOptions) -> io::Result<File> {
        let opened = self.dir.open_with(place.path(), options);
        match opened.map(cap_std::fs::File::into_std) {
            Ok(file) if About::of(&file)?.is_file() => Ok(file),
            Ok(_) => Err(not_regular()),
            // A FIFO without a reader, a socket, or a device without a driver (open(2)).
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Err(not_regular()),
            Err(error) => Err(error),
        }
    }

    /// Returns the metadata of a file, or of the target of a symlink.
    pub fn metadata(&self, place: &Place) -> io::Result<About> {
        About::of(self.open_path(&place.path())?)
    }

    /// Returns the metadata of a file, which may be a symlink.
    pub fn own_metadata(&self, place: &Place) -> io::Result<About> {
        match place.0.split_last() {
            None => About::of(&self.dir),
            Some((name, [])) => About::entry(&self.dir, name),
            Some((name, folder)) => {
                About::entry(self.dir.open_dir(Place(folder.to_vec()).path())?, name)
            }
        }
    }

    /// Opens a file, or the target of a symlink, without any access to it (`O_PATH`).
    fn open_path(&self, path: &Path) -> io::Result<cap_std::fs::File> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_PATH);
        self.dir.open_with(path, &options)
    }

    /// Checks that a place is a directory in which names may be looked up.
    pub fn enter(&self, place: &Place) -> io::Result<()> {
        // To look up `.` requires the permission to search (path_resolution(7)).
        self.open_path(&place.path().join(".")).map(drop)
    }

    pub fn remove_file(&self, place: &Place) -> io::Result<()> {
        self.dir.remove_file(place.path())
    }

    pub fn remove_directory(&self, place: &Place) -> io::Result<()> {
        match place.is_root() {
            true => Err(io::ErrorKind::PermissionDenied.into()),
            false => self.dir.remove_dir(place.path()),
        }
    }

    pub fn make_directory(&self, place: &Place) -> io::Result<()> {
        self.dir.create_dir(place.path())
    }

    pub fn rename(&self, from: &Place, to: &Place) -> io::Result<()> {
        match from.is_root() || to.is_root() {
            true => Err(io::ErrorKind::PermissionDenied.into()),
            false => {
                let done = self.dir.rename(from.path(), &self.dir, to.path());
                done.map_err(|error| self.explained(error, from, to))
            }
        }
    }

    /// Replaces `EINVAL` by its reason: that of a directory is usually its destination
    /// (rename(2)).
    fn explained(&self, error: io::Error, from: &Place, to: &Place) -> io::Error {
        let is_directory = || self.metadata(from).is_ok_and(|about| about.is_dir());
        match error.raw_os_error() {
            Some(libc::EINVAL) if to.0.starts_with(&from.0) => {
                io::Error::other("a directory cannot be moved into itself")
            }
            // `to` may lead through a symlink.
            Some(libc::EINVAL) if is_directory() => io::Error::other(
                "the directory would be moved into itself, or its new name is not allowed",
            ),
            _ => error,
        }
    }

    /// Sets the time of modification of a file or directory.
    ///
    /// # Errors
    ///
    /// `ERANGE`: the file system cannot store this time. The time of the file is restored. The
    /// kernel itself returns no error, and stores the nearest time that the file system
    /// supports (`timestamp_truncate`, fs/inode.c).
    pub fn set_modified(&self, place: &Place, seconds: i64) -> io::Result<()> {
        // The owner of the file needs no permission to read it.
        let file = self.open_path(&place.path())?;
        let modified = |tv_sec, tv_nsec| Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_OMIT,
            },
            last_modification: Timespec { tv_sec, tv_nsec },
        };
        let (before, nanoseconds) = About::of(&file)?.modified;
        set_times(file.as_fd(), &modified(seconds, 0))?;
        if About::of(&file)?.modified.0.abs_diff(seconds) < COARSE {
            return Ok(());
        }
        let before = modified(before, nanoseconds as _);
        set_times(file.as_fd(), &before)?;
        Err(io::Error::from_raw_os_error(libc::ERANGE))
    }
}

/// Removes the file of this name and identity, if it is empty. The directory is open: a path could
/// lead to another directory at the second look-up.
fn remove_empty(folder: &Dir, name: &OsStr, id: Id) {
    let is_it = |about: About| about.is_file() && about.length == 0 && about.id == id;
    if About::entry(folder, name).is_ok_and(is_it) {
        let _ = folder.remove_file(name);
    }
}

/// Sets the times of a file that is open with `O_PATH`.
fn set_times(file: BorrowedFd<'_>, times: &Timestamps) -> rustix::io::Result<()> {
    match rustix::fs::utimensat(file, c"", times, AtFlags::EMPTY_PATH) {
        // Since Linux 5.8 (`do_utimes_path`, fs/utimes.c).
        Err(Errno::INVAL) => set_times_by_name(file, times),
        done => done,
    }
}

fn set_times_by_name(file: BorrowedFd<'_>, times: &Timestamps) -> rustix::io::Result<()> {
    rustix::fs::utimensat(rustix::fs::CWD, link_to(file), times, AtFlags::empty())
}

/// Returns the name of a link that leads to the open file, also if it was renamed
/// (proc_pid_fd(5)).
fn link_to(file: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn not_regular() -> io::Error {
    io::Error::other("not a regular file")
}

#[cfg(test)]
mod tests;
