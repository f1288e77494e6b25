//! `cord_splice`, and the handle of an asynchronous `cord_splice`.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use cordboard::{Ended, Errno, Origin, Refusal, Report, Request, Side, Size, Transfer};
use libc::ssize_t;

use crate::failed::Failed;
use crate::fasync::Notification;
use crate::guard::{check, guard};
use crate::outcome::{Finished, set_last};
use crate::sys;
use crate::table::table;
use crate::types::{CORD_EOF, cord_transfer};

/// cord_splice - move bytes from any descriptor to any other
///
/// Moves `size` bytes, or with `CORD_EOF` all bytes up to the end of `src`,
/// from the file offset of `src` to that of `dst`, by the fastest path that the
/// kernel has for the pair. Moves fewer bytes if `src` ends earlier. Both file
/// offsets advance. The call waits even if a descriptor has O_NONBLOCK set, and
/// continues after a signal handler has run. It raises neither SIGPIPE nor
/// SIGXFSZ. It does not duplicate the descriptors: they must stay open until
/// the call has returned.
///
/// If either descriptor has FASYNC (O_ASYNC) set, the call duplicates both and
/// returns 0 as soon as the transfer has started. SIGIO, or the signal of
/// F_SETSIG, reports the end to the owner of F_SETOWN, or to the calling
/// process if no owner is set. See docs/c.md, "The paper's way". `cord_last`
/// returns the handle of the transfer.
///
/// # Returns
///
/// The number of bytes written (SSIZE_MAX for more), or -1 and errno. After a
/// failure `cord_try(CORD_LAST, &report)` reports the number of bytes moved,
/// and `cord_stranded(CORD_LAST, ...)` reads the bytes that were read from
/// `src` and not written. A datagram that is longer than `dst` accepts is
/// dropped, and does not count as written: `dropped` of the report counts it.
///
/// # Errors
///
/// * EBADF: a descriptor is not open, or not open for this direction.
/// * EISDIR: a descriptor is a directory.
/// * EINVAL: a listening socket; a descriptor that cannot be read or written at
///   all, such as an epoll instance; the first record of an eventfd, a timerfd,
///   a signalfd or inotify is longer than `size`; source and sink are the same
///   file, pipe or open file description, and the transfer would not end, or
///   its ranges overlap; CORDBOARD_ROUTE or CORDBOARD_WITHOUT contains a word
///   that is not a path; CORDBOARD_ENGINE or CORDBOARD_TUNE is not a value of
///   these variables.
/// * EPIPE, ECONNRESET: the reader of the sink is gone.
/// * ENODATA: the source was truncated while it was read, or it is a block
///   device that became smaller.
/// * EOPNOTSUPP: no allowed path takes this pair.
/// * Any errno of read(2) and write(2) on these descriptors: EIO, ENOSPC,
///   EFBIG, EDQUOT, and so on.
/// * ECHILD: this is a child that a signal handler has forked during the call,
///   before bytes have moved. The call continues in the parent.
/// * With FASYNC also EMFILE, ENFILE, ENOMEM, EAGAIN: no descriptor, memory or
///   thread is available; EPERM, ENOSYS, or another errno of a seccomp filter
///   that refuses epoll_pwait(2). The signal reports a failure after the start.
#[unsafe(no_mangle)]
pub extern "C" fn cord_splice(src: c_int, dst: c_int, size: usize) -> ssize_t {
    let origin = Origin::here();
    guard(-1, || {
        splice(src, dst, size, origin).map_err(Failed::set_last)
    })
}

fn splice(src: c_int, dst: c_int, size: usize, origin: Origin) -> Result<isize, Failed> {
    let request = Request {
        size: match size {
            CORD_EOF => Size::Eof,
            bytes => Size::Bytes(bytes as u64),
        },
        ..Request::default()
    };
    let (source, sink) = lend_both(src, dst)?;
    let notification = Notification::requested(source, sink, origin)?;
    // The parent may have cleared the flag since, and the child would not see it.
    check(origin)?;
    match notification {
        None => {
            let finished = synchronous(source, sink, request)?;
            let written = finished.report.written;
            set_last(finished);
            Ok(isize::try_from(written).unwrap_or(isize::MAX))
        }
        Some(notification) => {
            let running = cordboard::start_in(origin, source, sink, request)?;
            let at_end = move |report: &Report| notification.send(report);
            table().insert(running, Some([src, dst]), at_end);
            check(origin)?;
            Ok(0)
        }
    }
}

/// Runs a transfer on this thread. The caller stores the outcome.
pub(super) fn synchronous(
    source: BorrowedFd<'_>,
    sink: BorrowedFd<'_>,
    request: Request,
) -> Result<Finished, Failed> {
    let outcome = Transfer::new(source, sink, request)?.run();
    if outcome.report.ended == Ended::Idle {
        // Not a failure, even if bytes are stranded.
        return Ok(Finished::from(outcome));
    }
    Ok(Finished::new(outcome.into_result()?, None))
}

/// Borrows the caller's descriptors for the duration of the call.
pub(super) fn lend_both<'a>(
    source: c_int,
    sink: c_int,
) -> Result<(BorrowedFd<'a>, BorrowedFd<'a>), Refusal> {
    let lend = |number, side| sys::lend(number).map_err(|errno| Refusal::Unusable { side, errno });
    Ok((lend(source, Side::Source)?, lend(sink, Side::Sink)?))
}

/// cord_last - the handle of an asynchronous cord_splice
///
/// Returns the handle of the latest asynchronous cord_splice from or to
/// descriptor number `fd`, while it runs and after its end. The library owns
/// the handle, and keeps it until later asynchronous calls of cord_splice have
/// used each of its two descriptor numbers, or until `cord_close`. Must not be
/// called in a signal handler.
///
/// # Returns
///
/// A handle, or -1 and errno.
///
/// # Errors
///
/// * ENOENT: no asynchronous cord_splice has used this number, or its handle
///   was closed.
/// * EBADF: `fd` is below 0.
#[unsafe(no_mangle)]
pub extern "C" fn cord_last(fd: c_int) -> cord_transfer {
    guard(-1, || {
        if fd < 0 {
            return Err(Errno::EBADF.into());
        }
        table().latest(fd)
    })
}
