//! Lengthens a file in ways that can never shorten it.
//!
//! `ftruncate(2)` to a greater length can: if another process has lengthened the
//! file further since the last `fstat(2)`, its bytes are lost.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::ReadWriteFlags;

use crate::endpoint::{Filesystem, reopen};
use crate::errno::Errno;
use crate::sys::{again, close_and_report};

/// Writes at the offset regardless of `O_APPEND`: `RWF_NOAPPEND` in `pwritev2(2)`,
/// since Linux 6.9.
pub(in crate::path) const NO_APPEND: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x20);

/// A hole that ends at a multiple of this can be punched up to its end.
const PAGE: u64 = 4096;

/// Lengthens a file to `end` bytes, if it is shorter. May write a zero as the last
/// byte, which must be in a range that the caller may overwrite. `closed` becomes the error
/// of the close of a private description, if there is no earlier one: it may belong to any
/// write to the file ([`close_and_report`]).
///
/// | way | requires | leaves |
/// |---|---|---|
/// | a byte, `RWF_NOAPPEND` | Linux 6.9; not with `O_DIRECT` | the last block |
/// | `fallocate(2)` of one byte | Linux 2.6.23; only after the others on xfs and btrfs; not NFS before 4.2, not FUSE without it | the last block, without data |
/// | a byte, through a private open file description, whose `O_APPEND` no other process can set | a procfs, permission | the last block |
///
/// # Errors
///
/// | errno | result | evidence |
/// |---|---|---|
/// | `EOPNOTSUPP`, `EINVAL`, `ENOSYS`, `ENODEV` | the next way | an older kernel, a file system without support, direct I/O |
/// | `EPERM`, `EACCES`, `ENOENT`, `EAGAIN`, `ETXTBSY`, `EROFS` | the next way | a seccomp filter, a seal; errors of [`reopen`] |
/// | anything else (`ENOSPC`, `EDQUOT`, `EFBIG`, `EIO`) | an error | the same for any way |
pub(crate) fn lengthen(
    fd: BorrowedFd<'_>,
    end: u64,
    closed: &mut Option<Errno>,
) -> Result<Lengthened, Errno> {
    let last = end.saturating_sub(1);
    let mut refused = Errno::EOPNOTSUPP;
    let mut no_append = false;
    for way in ways(fd, end) {
        let done = again(|| way.take(fd, last, closed)).map_err(Errno::from);
        // A kernel without the flag returns EOPNOTSUPP before it looks at the byte
        // (kiocb_set_rw_flags). EINVAL comes from direct I/O: one byte is too
        // short.
        no_append |= way == Way::Write && matches!(done, Ok(()) | Err(Errno::EINVAL));
        match done {
            Ok(()) => return Ok(Lengthened { no_append }),
            Err(
                errno @ (Errno::EOPNOTSUPP
                | Errno::EINVAL
                | Errno::ENOSYS
                | Errno::ENODEV
                | Errno::EPERM
                | Errno::EACCES
                | Errno::ENOENT
                | Errno::EAGAIN
                | Errno::ETXTBSY
                | Errno::EROFS),
            ) => refused = errno,
            Err(errno) => return Err(errno),
        }
    }
    Err(refused)
}

/// The file was lengthened, or is long enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lengthened {
    /// The kernel is known to support `RWF_NOAPPEND` here.
    pub(crate) no_append: bool,
}

/// A call that lengthens a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Writes a byte at its offset regardless of `O_APPEND`.
    Write,
    Reserve,
    OwnDescription,
}

/// Returns the ways to try, in order. If `end` lies within a block, that block
/// stays allocated, and `fallocate(2)` leaves it without data. On xfs and
/// btrfs, `fallocate(2)` comes last, because it marks the file: blocks that xfs has
/// preallocated past the end then stay after the close (`XFS_DIFLAG_PREALLOC`,
/// `xfs_can_free_eofblocks` in fs/xfs/xfs_bmap_util.c), and btrfs no longer compresses the
/// file (`BTRFS_INODE_PREALLOC`, `should_nocow` in fs/btrfs/inode.c).
fn ways(fd: BorrowedFd<'_>, end: u64) -> impl Iterator<Item = Way> {
    let may_mark = move || {
        let found = rustix::fs::fstatfs(fd);
        found.map_or(true, |fs| Filesystem::of(&fs).may_mark_at_fallocate())
    };
    let (first, others) = match end.is_multiple_of(PAGE) || may_mark() {
        true => (Way::Write, [Way::Reserve, Way::OwnDescription]),
        false => (Way::Reserve, [Way::Write, Way::OwnDescription]),
    };
    let others = std::iter::once_with(move || {
        let mut others = others;
        // Not reached on most kernels since 6.9, which saves the call.
        if first == Way::Write && may_mark() {
            others.reverse();
        }
        others
    });
    std::iter::once(first).chain(others.flatten())
}

impl Way {
    fn take(
        self,
        fd: BorrowedFd<'_>,
        last: u64,
        closed: &mut Option<Errno>,
    ) -> rustix::io::Result<()> {
        match self {
            Way::Write => {
                rustix::io::pwritev2(fd, &[IoSlice::new(&[0])], last, NO_APPEND).map(drop)
            }
            Way::Reserve => rustix::fs::fallocate(fd, FallocateFlags::empty(), last, 1),
            Way::OwnDescription => {
                let own = reopen(fd, OFlags::WRONLY)
                    .map_err(|errno| rustix::io::Errno::from_raw_os_error(errno.raw()))?;
                let written = rustix::io::pwrite(&own, &[0], last);
                if let Err(errno) = close_and_report(own) {
                    closed.get_or_insert(errno);
                }
                written.map(drop)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use testkit::refuse::{apart, refuse};

    use super::*;

    #[test]
    fn a_file_that_somebody_else_made_longer_stays_so() {
        let write = libc::SYS_pwritev2;
        let reserve = libc::SYS_fallocate;
        let no_direct = testkit::SourceKind::Direct.unavailable();
        no_direct.iter().for_each(testkit::skip::here);
        for calls in [&[][..], &[write], &[reserve], &[write, reserve]] {
            for direct in [OFlags::empty(), OFlags::DIRECT] {
                if direct == OFlags::DIRECT && no_direct.is_some() {
                    continue;
                }
                for end in [4096, 5000] {
                    let file = tempfile::tempfile().unwrap();
                    let length = || file.metadata().unwrap().len();
                    let reopened = reopen(file.as_fd(), OFlags::RDWR | direct).unwrap();
                    apart(|| {
                        refuse(&[libc::SYS_ftruncate], libc::EIO);
                        refuse(calls, libc::EOPNOTSUPP);
                        lengthen(reopened.as_fd(), end, &mut None).unwrap();
                        assert_eq!(length(), end, "{calls:?} {direct:?}");
                        file.write_all_at(b"theirs", 9000).unwrap();
                        lengthen(reopened.as_fd(), end, &mut None).unwrap();
                        assert_eq!(length(), 9006, "{calls:?} {direct:?}");
                    });
                }
            }
        }
    }

    #[test]
    fn no_byte_is_appended() {
        // `OVL_IOCB_MASK`, fs/backing-file.c.
        if testkit::skip::on_overlayfs("RWF_NOAPPEND has no effect") {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        for (number, calls) in [&[][..], &[libc::SYS_pwritev2, libc::SYS_fallocate]]
            .into_iter()
            .enumerate()
        {
            let name = dir.path().join(number.to_string());
            std::fs::write(&name, b"123").unwrap();
            let file = std::fs::File::options().append(true).open(&name).unwrap();
            apart(|| {
                refuse(calls, libc::EOPNOTSUPP);
                lengthen(file.as_fd(), 8192, &mut None).unwrap();
            });
            assert_eq!(file.metadata().unwrap().len(), 8192, "{calls:?}");
        }
    }
}
