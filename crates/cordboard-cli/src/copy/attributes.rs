//! `-p`: owner, extended attributes, access control lists, mode and times, in an
//! order in which none undoes another.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use cordboard::Side;
use rustix::fs::{FileType, Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::place::Place;
use super::told::Told;
use super::{Job, acl, kind};
use crate::problem::Problem;

/// Owner and group of a file.
pub fn owner(stat: &Stat) -> (Option<Uid>, Option<Gid>) {
    (
        Some(Uid::from_raw(stat.st_uid)),
        Some(Gid::from_raw(stat.st_gid)),
    )
}

/// Access and modification time, to the nanosecond.
pub fn times(stat: &Stat) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: stat.st_atime as _,
            tv_nsec: stat.st_atime_nsec as _,
        },
        last_modification: Timespec {
            tv_sec: stat.st_mtime as _,
            tv_nsec: stat.st_mtime_nsec as _,
        },
    }
}

/// What it means that one of them could not be set.
pub fn refused(to: &Place<'_>, what: &str, errno: Errno) -> Problem {
    let errno = cordboard::Errno::from(errno);
    let text = format!("{errno} setting the {what}; its contents are complete");
    Problem::refused(to.shown(), Side::Sink, errno, text)
}

impl Job {
    /// Gives `sink` the attributes of `source`, whose `stat` is from before it
    /// was read.
    pub fn keep(
        &self,
        source: BorrowedFd<'_>,
        sink: BorrowedFd<'_>,
        stat: &Stat,
        to: &Place<'_>,
        told: &mut Told,
    ) -> Result<(), Problem> {
        // What one of them is refused takes nothing from the others; the first
        // is told.
        let mut problem = None;
        let mut done = |what: &str, done: Result<(), Errno>| {
            if let Err(errno) = done {
                problem.get_or_insert_with(|| refused(to, what, errno));
            }
        };
        let (uid, gid) = owner(stat);
        let mut mode = stat.st_mode & 0o7777;
        if let Err(errno) = rustix::fs::fchown(sink, uid, gid) {
            // A group of one's own can be set. What runs as its owner must then
            // not run as another.
            let _ = rustix::fs::fchown(sink, None, gid);
            mode &= 0o777;
            match errno {
                // Only root gives files away (EPERM), and only to those whom its
                // user namespace knows (EINVAL, user_namespaces(7)).
                Errno::PERM | Errno::INVAL => {}
                errno => done("owner", Err(errno)),
            }
        }
        // Those of users while it may be written to, which its mode may forbid.
        done("extended attributes", extended(source, sink, to, told));
        let directory = kind(stat) == FileType::Directory;
        let (mode, listed) = acl::keep(source, sink, mode, directory);
        done("access control list", listed);
        done("mode", rustix::fs::fchmod(sink, Mode::from_raw_mode(mode)));
        done("times", rustix::fs::futimens(sink, &times(stat)));
        problem.map_or(Ok(()), Err)
    }
}

/// All but the access control lists; of several that fail, the first is told.
fn extended(
    source: BorrowedFd<'_>,
    sink: BorrowedFd<'_>,
    to: &Place<'_>,
    told: &mut Told,
) -> Result<(), Errno> {
    let names = match whole(|buffer| rustix::fs::flistxattr(source, buffer)) {
        Err(Errno::OPNOTSUPP) => return Ok(()),
        names => names?,
    };
    let mut done = Ok(());
    for name in names.split_inclusive(|b| *b == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else {
            continue;
        };
        let text = name.to_bytes();
        // The rest is the policy of the machine, not of the file.
        let users = text.starts_with(b"user.");
        let others = text.starts_with(b"system.") || text == b"security.capability";
        if acl::is_list(name) || !users && !others {
            continue;
        }
        let value = match whole(|buffer| rustix::fs::fgetxattr(source, name, buffer)) {
            Ok(value) => value,
            // It went away, or is not for us to see.
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) => continue,
            Err(errno) => {
                done = done.and(Err(errno));
                continue;
            }
        };
        match set(sink, name, &value) {
            Ok(()) => {}
            // Not every file system has them, nor may everybody set them.
            Err(Errno::OPNOTSUPP | Errno::PERM) if !users => {}
            // setxattr(2): there is no room for it (ENOSPC, EDQUOT), or never
            // is for one so large (ERANGE, E2BIG). xattr(7): those of users
            // need write permission (EACCES).
            Err(
                errno @ (Errno::OPNOTSUPP
                | Errno::PERM
                | Errno::ACCESS
                | Errno::NOSPC
                | Errno::DQUOT
                | Errno::RANGE
                | Errno::TOOBIG),
            ) => {
                let errno = cordboard::Errno::from(errno);
                let name = name.to_string_lossy();
                told.line(format_args!(
                    "cordboard: {to}: warning: without its attribute {name}: {errno}"
                ));
            }
            Err(errno) => done = done.and(Err(errno)),
        }
    }
    done
}

/// Sets one of them, which takes write permission, and not only a descriptor
/// that has it (xattr(7)): a read-only file gets it until its final mode.
fn set(sink: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> Result<(), Errno> {
    let set = || rustix::fs::fsetxattr(sink, name, value, XattrFlags::empty());
    match set() {
        Err(Errno::ACCESS) => {
            let now = rustix::fs::fstat(sink)?.st_mode & 0o777;
            // Who may not do this was refused the attribute.
            rustix::fs::fchmod(sink, Mode::from_raw_mode(now | 0o200))
                .map_err(|_| Errno::ACCESS)?;
            set()
        }
        done => done,
    }
}

/// A value whose length is not known beforehand.
pub fn whole(mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; 256];
    loop {
        match read(&mut buffer) {
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
            // 64 KiB is the most that Linux keeps.
            Err(Errno::RANGE) if buffer.len() < 1 << 17 => buffer.resize(buffer.len() * 16, 0),
            Err(errno) => return Err(errno),
        }
    }
}
