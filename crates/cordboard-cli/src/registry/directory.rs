//! The directory of entries, to which only its owner may write.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use cordboard::{Errno as Named, fstat};
use rustix::fs::{Access, AtFlags, Dir, FileType, Mode, OFlags, accessat, mkdir, open, openat};
use rustix::io::Errno;
use rustix::process::{geteuid, getpid};

use super::entry::{Entry, Registered};
use crate::problem::Problem;
use crate::user;

/// The maximum length of an entry in bytes.
const LONGEST: usize = 64 << 10;
/// The end of the name of each entry.
const SUFFIX: &str = ".json";

/// The directory of this user, open.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

impl Directory {
    /// Opens this directory; creates it if there is none.
    pub fn at(path: PathBuf) -> Result<Directory, Problem> {
        match mkdir(&path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => Directory::existing(path),
            Err(errno) => Err(failed(&path, errno, "creating")),
        }
    }

    /// Opens this directory.
    ///
    /// A directory that belongs to another user, or to which others may write, is refused:
    /// another user could add entries, and this user would steer the wrong process.
    pub(super) fn existing(path: PathBuf) -> Result<Directory, Problem> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd =
            open(&path, flags, Mode::empty()).map_err(|errno| failed(&path, errno, "opening"))?;
        let stat = fstat(&fd).map_err(|errno| failed(&path, errno, "checking"))?;
        let others = Mode::WGRP | Mode::WOTH;
        // No other user may write to it.
        let is_certain = || {
            user::is_certain(stat.st_uid)
                || accessat(&fd, c".", Access::WRITE_OK, AtFlags::empty()).is_ok()
        };
        let refused = match () {
            () if stat.st_uid != geteuid().as_raw() || !is_certain() => "belongs to another user",
            () if Mode::from_raw_mode(stat.st_mode).intersects(others) => {
                "other users may write to it"
            }
            () => return Ok(Directory { fd, path }),
        };
        let problem = Problem::unsided(path.to_string_lossy(), Named::EPERM, refused);
        Err(problem.help("remove it, or set CORDBOARD_RUNTIME_DIR to a directory of your own"))
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a new path for a socket in the directory.
    pub(super) fn socket(&self) -> PathBuf {
        self.path.join(format!("{}.sock", unique()))
    }

    /// Adds an entry, which is removed when the result is dropped. The socket must already
    /// listen.
    pub fn register(&self, entry: &Entry) -> Result<Registered, Errno> {
        let text = serde_json::to_vec(entry).map_err(|_| Errno::INVAL)?;
        // Before the entry is written: without it, the entry could not be removed.
        let directory = cordboard::duplicate(self.fd.as_fd())
            .map_err(|errno| Errno::from_raw_os_error(errno.raw()))?;
        let (name, partial) = (unique() + SUFFIX, unique() + ".new");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(&self.fd, &partial, flags, Mode::RUSR | Mode::WUSR)?;
        // A concurrent reader sees only whole entries.
        let written = match rustix::io::write(&file, &text) {
            Ok(n) if n == text.len() => rustix::fs::renameat(&self.fd, &partial, &self.fd, &name),
            Ok(_) => Err(Errno::NOSPC),
            Err(errno) => Err(errno),
        };
        if let Err(errno) = written {
            let _ = rustix::fs::unlinkat(&self.fd, &partial, AtFlags::empty());
            return Err(errno);
        }
        Ok(Registered::new(directory, self.path.clone(), name))
    }

    /// As [`Directory::register`], with the error as a problem.
    pub(super) fn add(&self, entry: &Entry) -> Result<Registered, Problem> {
        let done = self.register(entry);
        done.map_err(|errno| self.not_added(errno))
    }

    pub(super) fn not_added(&self, errno: Errno) -> Problem {
        failed(&self.path, errno, "adding an entry to")
    }

    /// Returns all entries with their names. Other files are skipped.
    ///
    /// Of several entries with the same socket, those of processes that were killed are
    /// removed.
    pub fn entries(&self) -> Result<Vec<(OsString, Entry)>, Problem> {
        let unreadable = |errno| failed(&self.path, errno, "reading");
        let mut all = Vec::new();
        for item in Dir::read_from(&self.fd).map_err(unreadable)? {
            let item = item.map_err(unreadable)?;
            let name = OsStr::from_bytes(item.file_name().to_bytes());
            if !name.as_bytes().ends_with(SUFFIX.as_bytes()) {
                continue;
            }
            if let Some(entry) = self.read(name) {
                all.push((name.to_owned(), entry));
            }
        }
        // A name begins with the time of the start.
        all.sort_by(|a: &(OsString, Entry), b| a.0.cmp(&b.0));
        let last: HashMap<OsString, OsString> = (all.iter())
            .map(|(name, entry)| (entry.socket.clone(), name.clone()))
            .collect();
        all.retain(|(name, entry)| {
            let stays = last.get(&entry.socket) == Some(name) || entry.may_run();
            if !stays {
                let _ = rustix::fs::unlinkat(&self.fd, name, AtFlags::empty());
            }
            stays
        });
        Ok(all)
    }

    fn read(&self, name: &OsStr) -> Option<Entry> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.fd, name, flags, Mode::empty()).ok()?;
        let stat = fstat(&file).ok()?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !regular || stat.st_uid != geteuid().as_raw() {
            return None;
        }
        let mut text = vec![0; LONGEST];
        let length = rustix::io::read(&file, &mut text[..]).ok()?;
        serde_json::from_slice(&text[..length]).ok()
    }

    /// Removes an entry at whose socket another process listens, unless its process may run.
    pub fn forget(&self, name: &OsStr, entry: &Entry) {
        if entry.is_here() && !entry.may_run() {
            let _ = rustix::fs::unlinkat(&self.fd, name, AtFlags::empty());
        }
    }

    /// Removes an entry at whose socket no process listens, and the socket if that is in this
    /// directory, unless its process may run: another socket may be one of another network or
    /// mount namespace.
    pub fn remove(&self, name: &OsStr, entry: &Entry) {
        let socket = Path::new(&entry.socket);
        let file = socket.file_name();
        let own = file.filter(|_| socket.parent() == Some(self.path.as_path()));
        // The namespace may have ended. A socket of this directory is the same in each.
        let is_closed = own.is_some() && entry.is_elsewhere();
        if entry.may_run() && !is_closed {
            return;
        }
        let _ = rustix::fs::unlinkat(&self.fd, name, AtFlags::empty());
        if let Some(file) = own {
            let _ = rustix::fs::unlinkat(&self.fd, file, AtFlags::empty());
        }
    }
}

fn failed(path: &Path, errno: impl Into<Named>, doing: &str) -> Problem {
    let errno = errno.into();
    let text = format!("{errno} {doing} the directory of control sockets");
    Problem::unsided(path.to_string_lossy(), errno, text)
}

/// Returns a name that no other process and no other call gets. So the entry of a later
/// process with the same PID has another name.
fn unique() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let process = getpid().as_raw_nonzero();
    format!("{:016x}-{process}-{number}", now.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn entry(socket: &[u8]) -> Entry {
        let socket = OsStr::from_bytes(socket).to_owned();
        Entry {
            // No process has so large a number.
            pid: i32::MAX as u32,
            ..Entry::new("splice", "a -> b".to_owned(), socket)
        }
    }

    #[test]
    fn entries_last_until_they_are_dropped() {
        let base = tempfile::tempdir().unwrap();
        let directory = Directory::at(base.path().join("cordboard")).unwrap();
        let mode = std::fs::metadata(directory.path()).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o700);
        let first = directory.register(&entry(b"/tmp/\xff")).unwrap();
        let second = directory.register(&entry(b"@name")).unwrap();
        let all = directory.entries().unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].1, entry(b"/tmp/\xff"));
        drop(first);
        assert_eq!(directory.entries().unwrap().len(), 1);
        drop(second);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    /// A process was killed, and another one listens at the same socket.
    #[test]
    fn of_entries_with_one_socket_the_last_one_stays() {
        let base = tempfile::tempdir().unwrap();
        let directory = Directory::at(base.path().join("cordboard")).unwrap();
        std::mem::forget(directory.register(&entry(b"@name")).unwrap());
        let mut later = entry(b"@name");
        later.pid -= 1;
        let _later = directory.register(&later).unwrap();
        let all = directory.entries().unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].1, later);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    /// In another PID namespace, the process has another number.
    #[test]
    fn an_entry_of_another_namespace_stays() {
        let base = tempfile::tempdir().unwrap();
        let directory = Directory::at(base.path().join("cordboard")).unwrap();
        let mut elsewhere = entry(b"@name");
        elsewhere.namespace = Some(1);
        for (entry, left) in [(&elsewhere, 1), (&entry(b"@other"), 1)] {
            std::mem::forget(directory.register(entry).unwrap());
            for (name, entry) in directory.entries().unwrap() {
                directory.remove(&name, &entry);
            }
            assert_eq!(directory.entries().unwrap().len(), left, "{entry:?}");
        }
        assert_eq!(directory.entries().unwrap()[0].1, elsewhere);
        // No process of any namespace listens at a socket of this directory.
        let mut own = entry(directory.path().join("s").as_os_str().as_bytes());
        own.namespace = Some(1);
        std::mem::forget(directory.register(&own).unwrap());
        for (name, entry) in directory.entries().unwrap() {
            directory.remove(&name, &entry);
        }
        let all = directory.entries().unwrap();
        assert_eq!((all.len(), &all[0].1), (1, &elsewhere));
        // One without a namespace is of an earlier version.
        let text = br#"{"pid":1,"command":"cat","label":"","socket":{"Unix":[47]}}"#;
        std::fs::write(directory.path().join("1.json"), text).unwrap();
        assert_eq!(directory.entries().unwrap().len(), 2);
    }

    #[test]
    fn garbage_and_links_are_no_entries() {
        let base = tempfile::tempdir().unwrap();
        let directory = Directory::at(base.path().join("cordboard")).unwrap();
        let other = base.path().join("other");
        std::fs::write(&other, serde_json::to_vec(&entry(b"/s")).unwrap()).unwrap();
        std::os::unix::fs::symlink(&other, directory.path().join("1.json")).unwrap();
        std::fs::write(directory.path().join("2.json"), "{").unwrap();
        std::fs::create_dir(directory.path().join("3.json")).unwrap();
        assert_eq!(directory.entries().unwrap(), []);
    }

    /// There, all users without a number have the same one, also this process.
    #[test]
    fn in_a_user_namespace_without_numbers_the_owner_may_write() {
        use testkit::child::{in_a_child, own_users};
        if !in_a_child(own_users) {
            return testkit::skip::here("no user namespaces here");
        }
        let base = tempfile::tempdir().unwrap();
        let [own, other] = ["own", "other"].map(|name| base.path().join(name));
        std::fs::create_dir(&own).unwrap();
        std::fs::create_dir(&other).unwrap();
        for path in [&own, &other] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let other = match geteuid().is_root() {
            true => std::os::unix::fs::chown(&other, Some(1), Some(1)).map(|()| other),
            // It belongs to root.
            false => Ok(PathBuf::from("/")),
        };
        // In a namespace with few users, root cannot give a file away.
        let Ok(other) = other else {
            return testkit::skip::here("giving a directory to another user needs root");
        };
        assert!(in_a_child(|| own_users()
            && Directory::existing(own).is_ok()
            && Directory::existing(other).is_err()));
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("cordboard");
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o770)).unwrap();
        let refused = Directory::at(path.clone()).unwrap_err();
        assert!(refused.to_string().contains("other users may write to it"));
        std::fs::remove_dir(&path).unwrap();
        std::os::unix::fs::symlink(base.path(), &path).unwrap();
        assert!(Directory::at(path).is_err(), "a symlink");
    }
}
