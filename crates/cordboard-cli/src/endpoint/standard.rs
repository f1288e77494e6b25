//! Descriptors that we were started with.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};

use cordboard::Side;
use rustix::event::epoll;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::hints::Doing;
use crate::problem::Problem;
use crate::removal::id;
use crate::signals::again;
use crate::sys;

/// Bits of the standard descriptors that were closed when we were started. A
/// [placeholder] is opened in their place.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Whether this standard descriptor was closed when we were started.
pub fn was_closed(number: u8) -> bool {
    CLOSED.load(Ordering::Relaxed) & (1 << number) != 0
}

/// Looks which are closed. It is called before `main`: atomics and fcntl(2)
/// alone.
pub fn look() {
    for number in 0..3u8 {
        if sys::descriptor_flags(RawFd::from(number)) == Err(Errno::BADF) {
            CLOSED.fetch_or(1 << number, Ordering::Relaxed);
        }
    }
}

/// What stands for a standard descriptor that was closed: a descriptor of a
/// symlink itself (`O_PATH` with `O_NOFOLLOW`, since Linux 2.6.39).
///
/// No call moves bytes by it (`EBADF`), and it cannot be opened again by a name
/// such as `/dev/stdout`, as `/dev/null` can: `ELOOP` (`may_open`, fs/namei.c).
/// Where there is no procfs, nothing has such a name: an epoll instance, which
/// cannot be opened again either (`ENXIO`).
///
/// # Errors
///
/// As `epoll_create1(2)`.
pub fn placeholder() -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let link = rustix::fs::open("/proc/self", flags, Mode::empty());
    // Without procfs, anything may have this name.
    let is_link = |link: &OwnedFd| {
        let stat = rustix::fs::fstat(link);
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_symlink())
    };
    let link = link.ok().filter(is_link);
    link.map_or_else(|| epoll::create(epoll::CreateFlags::CLOEXEC), Ok)
}

/// The problem with a path that could not be opened. It may lead to a standard
/// descriptor that was closed, as `/dev/stdout` does.
pub fn not_opened(path: &Path, shown: impl Into<String>, side: Side, errno: Errno) -> Problem {
    if errno != Errno::LOOP || !leads_to_closed(path) {
        return Problem::call(shown, side, errno, Doing::Opening);
    }
    let closed = Problem::call(shown, side, Errno::BADF, Doing::Opening);
    closed.help("it is a standard descriptor that the program that started this command has closed")
}

fn leads_to_closed(path: &Path) -> bool {
    if CLOSED.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let Ok(there) = again(|| rustix::fs::stat(path)) else {
        return false;
    };
    let standard = [
        rustix::stdio::stdin(),
        rustix::stdio::stdout(),
        rustix::stdio::stderr(),
    ];
    (0u8..).zip(standard).any(|(number, held)| {
        let is_it = |held| rustix::fs::fstat(held).is_ok_and(|held| id(&held) == id(&there));
        was_closed(number) && is_it(held)
    })
}

/// A descriptor that was handed to us; `EBADF` for one that is not open, or
/// that this process opened itself.
pub fn inherited(number: RawFd) -> Result<BorrowedFd<'static>, Errno> {
    if u8::try_from(number).is_ok_and(|n| n < 3 && was_closed(n)) {
        return Err(Errno::BADF);
    }
    sys::started_with(number)
}
