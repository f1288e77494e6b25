//! Transfers that the program's event loop drives: `cord_open`, `cord_step`.

use std::ffi::c_int;

use cordboard::Transfer;

use super::handle::{check, try_entry};
use super::run::read;
use super::splice::lend_both;
use crate::error::Error;
use crate::guard::{guard, guard_origin};
use crate::stepped::Stepped;
use crate::table::table;
use crate::types::{cord_report, cord_request, cord_transfer};

/// cord_open - prepare a transfer for the program's own event loop
///
/// Nothing moves until `cord_step` is called. No thread of the library takes the
/// steps. Duplicates both descriptors. The caller owns the handle and releases it
/// with `cord_close`.
///
/// # Returns
///
/// A handle, or -1 and errno.
///
/// # Errors
///
/// Those of cord_run that are known before any byte is moved, and
///
/// * ECHILD: this is a child that a signal handler has forked during the call,
///   which continues in the parent.
/// * EMFILE, ENFILE, ENOMEM: no descriptor or memory is available.
/// * ENOSPC: the limit of epoll(7) registrations is reached
///   (/proc/sys/fs/epoll/max_user_watches).
/// * EPERM, ENOSYS, or another errno of a seccomp filter: it refuses
///   epoll_create1(2), epoll_ctl(2), timerfd_create(2) or timerfd_settime(2), or both
///   pipe2(2) and eventfd2(2).
///
/// # Safety
///
/// `request` is valid for as many bytes as its `struct_size` says, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cord_open(request: *const cord_request) -> cord_transfer {
    guard_origin(-1, |origin| {
        // SAFETY: as the caller promises.
        let (from, request) = unsafe { read(request)? };
        let (source, sink) = lend_both(from.source, from.sink)?;
        let transfer = Transfer::duplicating(source, sink, request)
            .map_err(|failure| Error::from(&failure))?;
        Ok(table().insert_stepped(Stepped::new(transfer, origin)?))
    })
}

/// cord_step - take one step of a transfer of cord_open
///
/// Moves some bytes, if that is possible without waiting for the other side of a
/// descriptor. A call on a file may wait for its device, as read(2) does; fsync(2)
/// of CORD_SYNC runs in a call of its own. `cord_fd` polls readable when a step is
/// possible; a call when none is has no effect. An event loop with edge-triggered
/// events must poll the descriptor after each step. `report` may be NULL; it is
/// written at the end.
///
/// # Returns
///
/// 1 if the transfer has ended, 0 if it has not, or -1 and errno. A transfer that
/// has failed has ended: see `report->ended` and `report->error`.
///
/// # Errors
///
/// * EBADF: not an open handle of this process; or this thread has another
///   descriptor table than the one that called cord_open (`unshare(2)`,
///   CLONE_FILES).
/// * EINVAL: a handle of cord_start or cord_last, whose steps a thread of the
///   library takes; a `struct_size` that no version had.
///
/// # Safety
///
/// `report` is valid for as many bytes as its `struct_size` says, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cord_step(transfer: cord_transfer, report: *mut cord_report) -> c_int {
    guard(-1, || {
        let entry = table().get(transfer)?;
        // SAFETY: as the caller promises.
        unsafe { check(report)? };
        if !entry.step()? {
            return Ok(0);
        }
        // SAFETY: as the caller promises.
        unsafe { try_entry(&entry, report) }.map(c_int::from)
    })
}
