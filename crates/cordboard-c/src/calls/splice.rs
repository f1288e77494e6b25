//! `cord_splice`, and the handle of an asynchronous one.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use cordboard::{Ended, Errno, Refusal, Report, Request, Side, Size, Transfer};
use libc::ssize_t;

use crate::failed::Failed;
use crate::fasync::Notification;
use crate::guard::guard;
use crate::outcome::{Finished, set_last};
use crate::sys;
use crate::table::table;
use crate::types::{CORD_EOF, cord_transfer};

/// cord_splice - move bytes from any descriptor to any other
///
/// Moves `size` bytes, or with `CORD_EOF` all there are, from where `src`
/// stands to where `dst` stands, by the fastest way this kernel has for the
/// pair. Fewer come where `src` ends before. Both positions move along. It
/// waits on descriptors with O_NONBLOCK too, and goes on after a signal's
/// handler. No SIGPIPE and no SIGXFSZ are raised. The descriptors are not
/// duplicated, and must stay open until it has returned.
///
/// If either descriptor has FASYNC (O_ASYNC) set, both are duplicated, it
/// returns 0 as soon as the transfer has started, and SIGIO tells of the end:
/// the signal of F_SETSIG, if one was set, to the owner of F_SETOWN, or to the
/// calling process where there is none. See docs/c.md, "The paper's way".
/// `cord_last` tells how it went.
///
/// # Returns
///
/// Bytes written (SSIZE_MAX for more), or -1 and errno. What had been moved
/// before a failure, be it nothing, is in `cord_try(CORD_LAST, &report)`, and
/// bytes that were read and not written are had with
/// `cord_stranded(CORD_LAST, ...)`.
///
/// # Errors
///
/// * EBADF: not open, or not for this direction.
/// * EISDIR: a directory.
/// * EINVAL: a listening socket; what cannot be read or written at all, as an
///   epoll descriptor; a record of an eventfd, a timerfd, a signalfd or inotify
///   that is longer than `size`; source and sink are one file or one open
///   description in a way that has no end, or that overlaps; a word in
///   CORDBOARD_ROUTE or CORDBOARD_WITHOUT that names no path.
///   With FASYNC, an end that is an error is reported by the signal.
/// * EPIPE, ECONNRESET: the sink has no reader any more.
/// * ENODATA: the source was truncated while it was read.
/// * EOPNOTSUPP: the switches leave no path for this pair.
/// * Any errno of read(2) and write(2) on these descriptors: EIO, ENOSPC,
///   EFBIG, EDQUOT, and so on.
#[unsafe(no_mangle)]
pub extern "C" fn cord_splice(src: c_int, dst: c_int, size: usize) -> ssize_t {
    guard(-1, || splice(src, dst, size).map_err(Failed::set_last))
}

fn splice(src: c_int, dst: c_int, size: usize) -> Result<isize, Failed> {
    let request = Request {
        size: match size {
            CORD_EOF => Size::Eof,
            bytes => Size::Bytes(bytes as u64),
        },
        ..Request::default()
    };
    let (source, sink) = lend_both(src, dst)?;
    match Notification::requested(source, sink)? {
        None => {
            let finished = synchronous(source, sink, request)?;
            let written = finished.report.written;
            set_last(finished);
            Ok(isize::try_from(written).unwrap_or(isize::MAX))
        }
        Some(notification) => {
            let running = cordboard::start(source, sink, request)?;
            let at_end = move |report: &Report| notification.send(report);
            table().insert(running, Some([src, dst]), at_end);
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
/// The latest that was started from or to the descriptor of this number, while
/// it runs and after. The library keeps it until the next one on both its
/// numbers, or until `cord_close`. Not to be called in a signal handler.
///
/// # Returns
///
/// A handle, or -1 and errno.
///
/// # Errors
///
/// * ENOENT: there is none, or it was closed.
/// * EBADF: a number below 0.
#[unsafe(no_mangle)]
pub extern "C" fn cord_last(fd: c_int) -> cord_transfer {
    guard(-1, || {
        if fd < 0 {
            return Err(Errno::EBADF.into());
        }
        table().latest(fd)
    })
}
