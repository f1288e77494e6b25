//! `-p`: owner, mode, extended attributes and times, in an order in which none
//! undoes another.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use cordboard::Side;
use rustix::fs::{Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::Job;
use super::place::Place;
use super::told::Told;
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
        let failed = |what: &str, errno: Errno| {
            let errno = cordboard::Errno::from(errno);
            let text = format!("{errno} setting the {what}; its contents are complete");
            Problem::refused(to.shown(), Side::Sink, errno, text)
        };
        let (uid, gid) = owner(stat);
        let mut mode = stat.st_mode & 0o7777;
        match rustix::fs::fchown(sink, uid, gid) {
            Ok(()) => {}
            // Only root gives files away (EPERM), and only to those whom its
            // user namespace knows (EINVAL, user_namespaces(7)); but a group of
            // one's own can be set. What runs as its owner must then not run as
            // another.
            Err(Errno::PERM | Errno::INVAL) => {
                let _ = rustix::fs::fchown(sink, None, gid);
                mode &= 0o777;
            }
            Err(errno) => return Err(failed("owner", errno)),
        }
        extended(source, sink, to, told).map_err(|e| failed("extended attributes", e))?;
        rustix::fs::fchmod(sink, Mode::from_raw_mode(mode)).map_err(|e| failed("mode", e))?;
        rustix::fs::futimens(sink, &times(stat)).map_err(|e| failed("times", e))
    }
}

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
    for name in names.split_inclusive(|b| *b == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else {
            continue;
        };
        let text = name.to_bytes();
        // The rest is the policy of the machine, not of the file.
        let users = text.starts_with(b"user.");
        if !users && !text.starts_with(b"system.") && text != b"security.capability" {
            continue;
        }
        let value = match whole(|buffer| rustix::fs::fgetxattr(source, name, buffer)) {
            // It went away, or is not for us to see.
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) => continue,
            value => value?,
        };
        match rustix::fs::fsetxattr(sink, name, &value, XattrFlags::empty()) {
            Ok(()) => {}
            Err(errno @ (Errno::OPNOTSUPP | Errno::PERM)) => {
                if users {
                    let errno = cordboard::Errno::from(errno);
                    let name = name.to_string_lossy();
                    told.line(format_args!(
                        "cordboard: {to}: warning: without its attribute {name}: {errno}"
                    ));
                }
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// A value whose length is not known beforehand.
fn whole(mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
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
