//! Queries about a descriptor.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::last_errno::last_errno;
use crate::errno::Errno;

/// Returns the size of a block device in bytes. `ioctl(2)`, `BLKGETSIZE64`, since Linux
/// 2.4.
pub(crate) fn block_device_size(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    // libc does not define it. The number depends on the architecture: on the width of
    // size_t, and on the bits of the direction.
    const BLKGETSIZE64: libc::Ioctl =
        rustix::ioctl::opcode::read::<usize>(0x12, 114) as libc::Ioctl;
    let mut size: u64 = 0;
    // SAFETY: BLKGETSIZE64 writes one u64 to the pointer, which is valid for it.
    match unsafe { libc::ioctl(fd.as_raw_fd(), BLKGETSIZE64, &raw mut size) } {
        0 => Ok(size),
        _ => Err(last_errno()),
    }
}

/// Returns the alignments of memory and offset that direct I/O requires: `statx(2)`
/// with `STATX_DIOALIGN`, since Linux 6.1. `Ok(None)` if the file does not support
/// direct I/O, `Err` if the kernel does not report it.
pub(crate) fn direct_alignment(fd: BorrowedFd<'_>) -> Result<Option<(u32, u32)>, Errno> {
    const STATX_DIOALIGN: u32 = 0x2000;
    let mut out = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is an empty C string, which AT_EMPTY_PATH allows, and
    // `out` is valid for one struct statx.
    let done = unsafe {
        libc::statx(
            fd.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            STATX_DIOALIGN,
            out.as_mut_ptr(),
        )
    };
    if done != 0 {
        return Err(last_errno());
    }
    // SAFETY: zeroed above and filled in by the kernel; every bit pattern is valid.
    let out = unsafe { out.assume_init() };
    if out.stx_mask & STATX_DIOALIGN == 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    match (out.stx_dio_mem_align, out.stx_dio_offset_align) {
        (_, 0) => Ok(None),
        (memory, offset) => Ok(Some((memory, offset))),
    }
}

/// `linux/stat.h`.
pub(crate) const STATX_ATTR_COMPRESSED: u64 = 0x4;
/// `linux/stat.h`.
pub(crate) const STATX_ATTR_NODUMP: u64 = 0x40;
/// `linux/stat.h`.
pub(crate) const STATX_ATTR_ENCRYPTED: u64 = 0x800;

/// The attributes of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// Those that the file can have (`stx_attributes_mask`). At least one since Linux 5.8
    /// (`vfs_getattr_nosec`, fs/stat.c).
    pub(crate) known: u64,
    /// Those that it has (`stx_attributes`).
    pub(crate) set: u64,
}

/// Returns the attributes of a file: `statx(2)`, since Linux 4.11. An overlay returns those of the
/// file below (`ovl_getattr`, fs/overlayfs/inode.c). None are known if the call fails. Does not ask
/// a server, and does not wait for a writer longer than `fstat(2)`.
pub(crate) fn attributes(fd: BorrowedFd<'_>) -> Attributes {
    let mut out = MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: the path is an empty C string, which AT_EMPTY_PATH allows, and `out` is valid
    // for one struct statx.
    let done = unsafe { libc::statx(fd.as_raw_fd(), c"".as_ptr(), flags, 0, out.as_mut_ptr()) };
    // SAFETY: zeroed above, and filled in by the kernel on success; every bit pattern is valid.
    let out = unsafe { out.assume_init() };
    match done {
        0 => Attributes {
            known: out.stx_attributes_mask,
            set: out.stx_attributes,
        },
        _ => Attributes::default(),
    }
}

/// Returns how many pages of a range are in the page cache. `cachestat(2)`, since Linux
/// 6.5.
pub(crate) fn cached_pages(fd: BorrowedFd<'_>, offset: u64, length: u64) -> Result<u64, Errno> {
    // The same number on every architecture; libc does not define it on all.
    const SYS_CACHESTAT: libc::c_long = 451;
    #[repr(C)]
    struct Range {
        offset: u64,
        length: u64,
    }
    #[repr(C)]
    #[derive(Default)]
    struct Stat {
        cached: u64,
        dirty: u64,
        writeback: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    let range = Range { offset, length };
    let mut stat = Stat::default();
    // SAFETY: both pointers are valid for the two structures of cachestat(2).
    let done = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            fd.as_raw_fd(),
            &raw const range,
            &raw mut stat,
            0,
        )
    };
    match done {
        0 => Ok(stat.cached),
        _ => Err(last_errno()),
    }
}

/// Whether two descriptors share one open file description: the same number,
/// `F_DUPFD_QUERY` (since Linux 6.10), or `kcmp(2)` (since Linux 3.5, where configured
/// and not filtered). `None` if the kernel cannot compare them.
pub(crate) fn same_description(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> Option<bool> {
    const F_DUPFD_QUERY: libc::c_int = 1024 + 3;
    const KCMP_FILE: libc::c_int = 0;
    if a.as_raw_fd() == b.as_raw_fd() {
        return Some(true);
    }
    // SAFETY: takes and returns integers only.
    let same = unsafe { libc::fcntl(a.as_raw_fd(), F_DUPFD_QUERY, b.as_raw_fd()) };
    if same >= 0 {
        return Some(same == 1);
    }
    // Of the calling thread, which may have a descriptor table of its own.
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    // SAFETY: takes and returns integers only.
    let order = unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            thread,
            thread,
            KCMP_FILE,
            a.as_raw_fd(),
            b.as_raw_fd(),
        )
    };
    (order >= 0).then_some(order == 0)
}
