//! The paper's own way: a descriptor with FASYNC makes `cord_splice` return
//! at once, and a signal tells of the end.
//!
//! On Linux the kernel sends that signal too, whenever such a descriptor
//! becomes ready. So the flag is taken off for the length of the transfer
//! (`taken`), and put back before the end is told: the one signal in between
//! is the end's. Regular files do not keep the flag at all; `marks` keeps it
//! for those who set it with `cord_set_flags`.

mod description;
mod marks;
mod taken;

use std::os::fd::BorrowedFd;

use cordboard::{Errno, Refusal, Report, Side};

pub(crate) use marks::Marks;
pub(crate) use taken::{Asked, Taken};

use crate::sys::{self, Owner, Target};

/// `F_GETFL`, with `O_ASYNC` where it is only remembered.
pub(crate) fn flags(fd: BorrowedFd<'_>) -> Result<libc::c_int, Errno> {
    let flags = sys::flags(fd)?;
    if flags & libc::O_ASYNC != 0 {
        return Ok(flags);
    }
    match taken::comes_back(fd) {
        Some(false) => Ok(flags),
        None if !marks::is_marked(fd) => {
            // The transfer that had it may have put it back between the two.
            sys::flags(fd)
        }
        _ => Ok(flags | libc::O_ASYNC),
    }
}

/// `F_SETFL`, which also takes `O_ASYNC` on and off where the kernel ignores
/// it, or where it is off for the length of a transfer.
pub(crate) fn set_flags(fd: BorrowedFd<'_>, flags: libc::c_int) -> Result<(), Errno> {
    if let Some(done) = taken::set_flags(fd, flags) {
        return done;
    }
    let wanted = flags & libc::O_ASYNC != 0;
    sys::set_flags(fd, flags)?;
    let kept = sys::flags(fd)? & libc::O_ASYNC != 0;
    match (wanted, kept) {
        (true, false) => marks::mark(fd),
        (false, _) => marks::unmark(fd),
        (true, true) => Ok(()),
    }
}

/// Puts the flags back and sends the signal: the transfer's end.
pub(crate) fn tell(asked: Asked, report: &Report) {
    let target = target(&asked, report);
    asked.put_back();
    if let Some(target) = target {
        // Whoever was to be told may have gone; nobody else is waiting for it.
        let _ = sys::notify(&target);
    }
}

/// Whom to tell, and how, as the descriptor says by now: as the kernel, which
/// looks when something happens. Of two the one that has an owner, the source
/// first. Nobody's is the calling process's, as the paper has it; but where an
/// owner has gone nobody is told, as the kernel does, since SIGIO would end a
/// process that has never meant to get it.
fn target(asked: &Asked, report: &Report) -> Option<Target> {
    let owned = |side| taken::Asking::owner(side).map(|owner| (side, owner));
    let (side, owner) = match asked.sides().find_map(owned) {
        Some(found) => found,
        None if asked.sides().any(taken::Asking::has_lost_its_owner) => return None,
        None => {
            let here = std::process::id() as libc::pid_t;
            (asked.first(), Owner::Process(here))
        }
    };
    let error = report.errno.map_or(0, Errno::raw);
    let band = match side.which {
        Side::Source => libc::POLLIN,
        Side::Sink => libc::POLLOUT,
    };
    let band = if error == 0 {
        band
    } else {
        band | libc::POLLERR
    };
    Some(Target {
        owner,
        signal: match side.fd().map(sys::signal) {
            Some(Ok(signal)) if signal > 0 => signal,
            _ => libc::SIGIO,
        },
        number: side.number,
        band: band.into(),
        error,
    })
}

/// Whether either asks for it, and if so takes the flag off for the time.
///
/// # Errors
///
/// `EBADF`: not an open descriptor. `EMFILE`, `ENFILE`: none is left for the
/// duplicate that is kept.
pub(crate) fn asked(
    source: BorrowedFd<'_>,
    sink: BorrowedFd<'_>,
) -> Result<Option<Asked>, Refusal> {
    let mut asked = None;
    for (fd, side) in [(source, Side::Source), (sink, Side::Sink)] {
        let unusable = |errno| Refusal::Unusable { side, errno };
        let flags = flags(fd).map_err(unusable)?;
        if flags & libc::O_ASYNC != 0 {
            asked
                .get_or_insert_with(Asked::default)
                .take(fd, flags, side)
                .map_err(|errno| match errno {
                    Errno::EMFILE | Errno::ENFILE => Refusal::NoDescriptor { errno },
                    _ => unusable(errno),
                })?;
        }
    }
    Ok(asked)
}
