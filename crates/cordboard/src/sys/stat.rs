//! The metadata of an open file, even if a filter refuses `fstat(2)`.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{AtFlags, Stat, makedev, statat};
use rustix::io::{Errno as Refused, Result};

use super::last_errno::last_errno;
use crate::errno::Errno;

/// `fstat(2)`; `newfstatat(2)` or `statx(2)` (since Linux 4.11) of the descriptor itself if a
/// filter refuses that. With these arguments the kernel does not return `EINVAL`
/// (`vfs_statx` and `do_statx`, fs/stat.c). Async-signal-safe.
///
/// # Errors
///
/// Those of `fstat(2)`: `EBADF`; any errno of the server of the file; the errno of a filter
/// that refuses all of these calls.
pub fn fstat(fd: impl AsFd) -> Result<Stat> {
    let fd = fd.as_fd();
    match rustix::fs::fstat(fd) {
        Err(errno) if Errno::from(errno).is_refusal_or_invalid() => {
            let by_name = statat(fd, c"", AtFlags::EMPTY_PATH);
            by_name.or_else(|_| by_statx(fd)).map_err(|_| errno)
        }
        done => done,
    }
}

/// Calls `statx(2)` without rustix, which would remember for the whole process that a filter
/// refuses the call to one thread.
fn by_statx(fd: BorrowedFd<'_>) -> Result<Stat> {
    let mut told = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is an empty C string, which AT_EMPTY_PATH allows, and `told` is valid
    // for one struct statx.
    let done = unsafe {
        libc::statx(
            fd.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_BASIC_STATS,
            told.as_mut_ptr(),
        )
    };
    if done != 0 {
        return Err(Refused::from_raw_os_error(last_errno().raw()));
    }
    // SAFETY: zeroed above and filled in by the kernel; every bit pattern is valid.
    let told = unsafe { told.assume_init() };
    // SAFETY: all-zero bytes are a valid stat, which has integers only.
    let mut stat: Stat = unsafe { std::mem::zeroed() };
    stat.st_dev = makedev(told.stx_dev_major, told.stx_dev_minor) as _;
    stat.st_rdev = makedev(told.stx_rdev_major, told.stx_rdev_minor) as _;
    stat.st_ino = told.stx_ino as _;
    stat.st_mode = told.stx_mode as _;
    stat.st_nlink = told.stx_nlink as _;
    stat.st_uid = told.stx_uid as _;
    stat.st_gid = told.stx_gid as _;
    stat.st_size = told.stx_size as _;
    stat.st_blocks = told.stx_blocks as _;
    stat.st_blksize = told.stx_blksize as _;
    stat.st_atime = told.stx_atime.tv_sec as _;
    stat.st_atime_nsec = told.stx_atime.tv_nsec as _;
    stat.st_mtime = told.stx_mtime.tv_sec as _;
    stat.st_mtime_nsec = told.stx_mtime.tv_nsec as _;
    stat.st_ctime = told.stx_ctime.tv_sec as _;
    stat.st_ctime_nsec = told.stx_ctime.tv_nsec as _;
    Ok(stat)
}

/// On 32 bits, rustix itself calls `statx(2)` first.
#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use testkit::refuse;

    use super::*;

    fn all(stat: &Stat) -> Vec<i128> {
        let numbers = [
            stat.st_dev as i128,
            stat.st_rdev as i128,
            stat.st_ino as i128,
            stat.st_mode as i128,
            stat.st_nlink as i128,
            stat.st_uid as i128,
            stat.st_gid as i128,
            stat.st_size as i128,
            stat.st_blocks as i128,
            stat.st_blksize as i128,
        ];
        let times = [
            stat.st_mtime as i128,
            stat.st_mtime_nsec as i128,
            stat.st_ctime as i128,
            stat.st_ctime_nsec as i128,
        ];
        numbers.into_iter().chain(times).collect()
    }

    #[test]
    fn the_next_call_reports_the_same() {
        let name = "the_next_call_reports_the_same";
        if testkit::needs::missing(name, &[testkit::needs::Need::Statx]) {
            return;
        }
        let file = tempfile::tempfile().unwrap();
        rustix::io::write(&file, b"five!").unwrap();
        let (pipe, _writer) = rustix::pipe::pipe().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        for fd in [file.as_fd(), pipe.as_fd(), null.as_fd()] {
            let plain = all(&fstat(fd).unwrap());
            assert_eq!(all(&by_statx(fd).unwrap()), plain);
            for errno in [libc::ENOSYS, libc::EPERM, libc::EACCES, libc::EINVAL] {
                for refused in 1..refuse::STAT.len() {
                    refuse::apart(|| {
                        refuse::refuse(&refuse::STAT[..refused].concat(), errno);
                        assert_eq!(all(&fstat(fd).unwrap()), plain, "{errno}, {refused}");
                    });
                }
                refuse::apart(|| {
                    refuse::refuse(&refuse::STAT.concat(), errno);
                    let told = fstat(fd).map(|_| ());
                    assert_eq!(told, Err(Refused::from_raw_os_error(errno)));
                });
            }
        }
    }
}
