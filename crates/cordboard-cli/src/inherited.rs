//! What this process was started with: its standard descriptors, and the
//! disposition of SIGPIPE.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use rustix::event::epoll;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::sys;

/// Bits of the standard descriptors that were closed at the start. A
/// [placeholder] is opened in their place.
static CLOSED: AtomicU8 = AtomicU8::new(0);
/// SIGPIPE was neither ignored nor blocked at the start.
static SIGPIPE_KILLS: AtomicBool = AtomicBool::new(false);

/// Records both. Called before `main`, and before SIGPIPE is ignored: uses only
/// atomics and system calls.
pub fn record() {
    for number in 0..3u8 {
        if sys::descriptor_flags(RawFd::from(number)) == Err(Errno::BADF) {
            CLOSED.fetch_or(1 << number, Ordering::Relaxed);
        }
    }
    let kills = !sys::ignores(libc::SIGPIPE) && !sys::blocks(libc::SIGPIPE);
    SIGPIPE_KILLS.store(kills, Ordering::Relaxed);
}

/// Whether this standard descriptor was closed at the start.
pub fn was_closed(number: u8) -> bool {
    CLOSED.load(Ordering::Relaxed) & (1 << number) != 0
}

/// Whether any standard descriptor was closed at the start.
pub fn was_any_closed() -> bool {
    CLOSED.load(Ordering::Relaxed) != 0
}

/// Whether a program started the same way is killed if it writes to a pipe
/// without a reader.
pub fn sigpipe_kills() -> bool {
    SIGPIPE_KILLS.load(Ordering::Relaxed)
}

/// Opens a placeholder for a standard descriptor that was closed: a descriptor
/// of a symlink itself (`O_PATH` with `O_NOFOLLOW`, since Linux 2.6.39).
///
/// No call moves bytes by it (`EBADF`). Unlike `/dev/null`, it cannot be opened
/// again by a name such as `/dev/stdout`: `ELOOP` (`may_open`, fs/namei.c).
/// Without procfs, nothing has such a name. The placeholder is then an epoll
/// instance, which cannot be opened again either (`ENXIO`).
///
/// # Errors
///
/// As `epoll_create1(2)`.
pub fn placeholder() -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let link = rustix::fs::open("/proc/self", flags, Mode::empty());
    // Without procfs, any file may have this name.
    let is_link = |link: &OwnedFd| {
        let stat = cordboard::fstat(link);
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_symlink())
    };
    let link = link.ok().filter(is_link);
    link.map_or_else(|| epoll::create(epoll::CreateFlags::CLOEXEC), Ok)
}

/// Returns an inherited descriptor; `EBADF` if it is not open, or if this process
/// has opened it itself.
pub fn inherited(number: RawFd) -> Result<BorrowedFd<'static>, Errno> {
    if u8::try_from(number).is_ok_and(|n| n < 3 && was_closed(n)) {
        return Err(Errno::BADF);
    }
    sys::inherited(number)
}
