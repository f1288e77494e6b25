//! Terminals.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::fs::{FileType, OFlags};

use super::reopen::reopen;
use crate::sys;

/// `isatty(3)`; true also for a terminal that has hung up, whose `ioctl(2)` fails with
/// `EIO` (`hung_up_tty_ioctl`, drivers/tty/tty_io.c).
pub(super) fn is_terminal(fd: BorrowedFd<'_>) -> bool {
    match rustix::termios::tcgetwinsize(fd) {
        Err(rustix::io::Errno::IO) => has_hung_up(fd),
        done => done.is_ok(),
    }
}

/// Whether a terminal has hung up for good: `poll(2)` then shows `POLLERR` and
/// `POLLHUP` on all descriptors that were open at the hang-up (`hung_up_tty_poll`,
/// drivers/tty/tty_io.c). The master of a pseudoterminal without a slave shows no
/// error. `false` if no call shows it.
pub(crate) fn has_hung_up(fd: BorrowedFd<'_>) -> bool {
    let none = PollFlags::empty();
    sys::poll_now(fd, none).is_ok_and(|shown| {
        let flags = [PollFlags::HUP, PollFlags::ERR];
        flags.map(|flag| shown.shows(flag)) == [Some(true); 2]
    })
}

/// Whether this is the master of a pseudoterminal (`pty(7)`): opened through
/// `/dev/ptmx`, or of the BSD style (Documentation/admin-guide/devices.txt). All other
/// terminals have other device numbers.
pub(crate) fn is_pty_master(fd: BorrowedFd<'_>) -> bool {
    use rustix::fs::{major, minor};
    let device = match sys::fstat(fd) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice => {
            stat.st_rdev
        }
        _ => return false,
    };
    (major(device), minor(device)) == (5, 2) || major(device) == 2
}

/// Opens a terminal again with `O_NONBLOCK`. A blocking write to a terminal that polls
/// writable accepts a few bytes and blocks on the rest, as long as the terminal is not
/// read or its output is stopped (`n_tty_write`, drivers/tty/n_tty.c).
///
/// `None` if that fails, could open another terminal, or has side effects: opening the
/// master of a pseudoterminal makes a new one; `/dev/tty`, `/dev/tty0` and
/// `/dev/console` may refer to another terminal by now; opening a serial line raises
/// its modem signals (Documentation/admin-guide/devices.txt has the numbers).
pub(super) fn reopen_terminal(fd: BorrowedFd<'_>, flags: OFlags) -> Option<OwnedFd> {
    use rustix::fs::{major, minor};
    const VIRTUAL: u32 = 4;
    const SLAVES: std::ops::RangeInclusive<u32> = 136..=143;
    let device = sys::fstat(fd).ok()?.st_rdev;
    let stays = match major(device) {
        VIRTUAL => (1..64).contains(&minor(device)),
        major => SLAVES.contains(&major),
    };
    // EBUSY: TIOCEXCL; EACCES: another user's terminal; EIO: it has hung up.
    stays.then(|| reopen(fd, flags | OFlags::NOCTTY).ok())?
}
