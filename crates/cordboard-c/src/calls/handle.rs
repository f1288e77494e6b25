//! Operations on handles.

use std::ffi::{c_char, c_int, c_void};

use cordboard::{Errno, Report};
use libc::ssize_t;

use crate::error::Error;
use crate::guard::guard;
use crate::outcome::{self, Finished};
use crate::table::{Entry, run_callback, table};
use crate::types::{CORD_LAST, cord_callback, cord_report, cord_status, cord_transfer};
use crate::{convert, sys};

/// cord_wait - wait for the end of a transfer
///
/// When the call returns, the callbacks of the transfer have returned, and the
/// transfer no longer uses the descriptors. The handle stays open. Any number
/// of threads may wait. The call needs no descriptor. `report` may be NULL.
/// For a handle of `cord_open`, the call takes the steps of the transfer on the
/// calling thread.
///
/// # Returns
///
/// 0 after the end, also after a failure of the transfer: see `report->ended`
/// and `report->error`. -1 and errno if the call cannot wait.
///
/// # Errors
///
/// * EBADF: not an open handle of this process; for a handle of cord_open, as
///   cord_step.
/// * EDEADLK: called in a callback, in which a wait would deadlock.
/// * EINVAL: a `struct_size` that no version had.
/// * For a handle of cord_open, the errno of a seccomp filter that refuses
///   ppoll(2), poll(2) and pselect6(2).
///
/// # Safety
///
/// `report` is valid for as many bytes as its `struct_size` says, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cord_wait(transfer: cord_transfer, report: *mut cord_report) -> c_int {
    guard(-1, || {
        if transfer == CORD_LAST {
            // SAFETY: as the caller promises.
            return unsafe { try_report(transfer, report) }.map(|_| 0);
        }
        // A reference: another thread may close the handle during the wait.
        let entry = table().get(transfer)?;
        // SAFETY: as the caller promises.
        unsafe { check(report)? };
        entry.wait()?;
        // SAFETY: as the caller promises.
        unsafe { try_entry(&entry, report) }.map(|_| 0)
    })
}

/// cord_try - get the report of a transfer if it has ended
///
/// Never waits. `report` may be NULL. The callbacks of a transfer that has ended
/// may still run on another thread: cord_wait waits for them.
///
/// # Returns
///
/// 1 if the transfer has ended, 0 if it still runs, or -1 and errno.
///
/// # Errors
///
/// * EBADF: not an open handle of this process.
/// * EINVAL: a `struct_size` that no version had.
///
/// # Safety
///
/// `report` is valid for as many bytes as its `struct_size` says, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cord_try(transfer: cord_transfer, report: *mut cord_report) -> c_int {
    guard(-1, || {
        // SAFETY: as the caller promises.
        unsafe { try_report(transfer, report) }.map(c_int::from)
    })
}

/// Writes the report if the transfer has ended. Returns whether it has.
///
/// # Safety
///
/// As for `cord_try`.
unsafe fn try_report(transfer: cord_transfer, report: *mut cord_report) -> Result<bool, Error> {
    if transfer == CORD_LAST {
        // SAFETY: as the caller promises.
        return outcome::with_last(|last| unsafe { write_report(&last.report, report) });
    }
    let entry = table().get(transfer)?;
    // SAFETY: as the caller promises.
    unsafe { try_entry(&entry, report) }
}

/// # Safety
///
/// As for `cord_try`.
pub(super) unsafe fn try_entry(entry: &Entry, report: *mut cord_report) -> Result<bool, Error> {
    match entry.report() {
        // SAFETY: as the caller promises.
        Some(from) => unsafe { write_report(from, report) },
        None => {
            // SAFETY: as the caller promises.
            unsafe { check(report)? };
            // The query ends a transfer whose descriptors the program has
            // closed.
            entry.status()?;
            Ok(false)
        }
    }
}

/// Refuses a wrong `struct_size` before the end of the transfer.
///
/// # Safety
///
/// As for `cord_try`.
pub(super) unsafe fn check(report: *const cord_report) -> Result<(), Error> {
    if report.is_null() {
        return Ok(());
    }
    // SAFETY: as the caller promises.
    unsafe { sys::check_size(report) }.map_err(Error::from)
}

/// # Safety
///
/// As for `cord_try`.
unsafe fn write_report(from: &Report, report: *mut cord_report) -> Result<bool, Error> {
    if !report.is_null() {
        // SAFETY: as the caller promises.
        unsafe { sys::write_struct(report, &convert::report(from)) }?;
    }
    Ok(true)
}

/// cord_get_status - get the progress of a transfer
///
/// # Returns
///
/// 0, or -1 and errno.
///
/// # Errors
///
/// * EBADF: not an open handle of this process, or CORD_LAST.
/// * EFAULT: `status` is NULL.
/// * EINVAL: a `struct_size` that no version had.
///
/// # Safety
///
/// `status` is valid for as many bytes as its `struct_size` says, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cord_get_status(
    transfer: cord_transfer,
    status: *mut cord_status,
) -> c_int {
    guard(-1, || {
        let from = table().get(transfer)?.status()?;
        // SAFETY: as the caller promises.
        unsafe { sys::write_struct(status, &from)? };
        Ok(0)
    })
}

/// cord_fd - a descriptor for waiting with poll(2)
///
/// The descriptor is readable (POLLIN) once the transfer has ended and its
/// callbacks have returned, and stays readable. With FASYNC, the signal is sent
/// before. For a handle of `cord_open`, it is also readable when a step is
/// possible. It belongs to the handle: the caller must neither read nor close it.
///
/// # Returns
///
/// The descriptor, or -1 and errno.
///
/// # Errors
///
/// * EBADF: not an open handle of this process; or this thread has its own
///   descriptor table (`unshare(2)`, CLONE_FILES), which lacks the handle's
///   descriptor.
/// * EMFILE, ENFILE, ENOMEM: no descriptor or memory is available.
#[unsafe(no_mangle)]
pub extern "C" fn cord_fd(transfer: cord_transfer) -> c_int {
    guard(-1, || table().get(transfer)?.descriptor())
}

/// cord_on_end - register a function to be called at the end
///
/// The callback runs once, before waiting threads return: on a thread of the
/// library, or, for a handle of `cord_open`, in the `cord_step`, `cord_wait` or
/// `cord_close` that takes the last step. If the transfer has already ended,
/// cord_on_end itself runs it. It runs even if the handle has been closed
/// meanwhile. The report is valid only during the callback. Free `user` in the
/// callback, or once cord_wait has returned: cord_try and cord_step may return 1
/// while the callback runs on another thread.
///
/// # Returns
///
/// 0, or -1 and errno.
///
/// # Errors
///
/// * EBADF: not an open handle of this process.
/// * EFAULT: `callback` is NULL.
///
/// # Safety
///
/// `callback` may be called with `user` on another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cord_on_end(
    transfer: cord_transfer,
    callback: cord_callback,
    user: *mut c_void,
) -> c_int {
    guard(-1, || {
        let entry = table().get(transfer)?;
        let callback = callback.ok_or(Errno::EFAULT)?;
        let user = sys::UserData::new(user);
        entry.on_end(move |report| {
            let report = convert::report(report);
            // SAFETY: the caller's function, with the caller's pointer for it.
            run_callback(|| unsafe { callback(transfer, &raw const report, user.get()) });
        });
        Ok(0)
    })
}

/// cord_cancel - cancel a transfer
///
/// Returns at once. The transfer ends later, with exact counts: up to 20 ms later
/// if one side is a file and the transfer waits for the other side or for a
/// schedule. If it has ended already, nothing changes. A system call that blocks
/// and cannot be interrupted delays the end until it returns (docs/c.md).
///
/// # Returns
///
/// 0, or -1 and errno.
///
/// # Errors
///
/// * EBADF: not an open handle of this process.
#[unsafe(no_mangle)]
pub extern "C" fn cord_cancel(transfer: cord_transfer) -> c_int {
    guard(-1, || {
        table().get(transfer)?.cancel();
        Ok(0)
    })
}

/// cord_stranded - get bytes that were read from the source and not written
///
/// Reads the next stranded bytes, at most `size`, as read(2) does. If they are
/// datagrams, each call reads one whole datagram, which may be empty. Waits for
/// callbacks of the transfer that run on another thread.
///
/// # Returns
///
/// The number of bytes, or -1 and errno.
///
/// # Errors
///
/// * ENODATA: no bytes are left, or none were stranded.
/// * EMSGSIZE: the next datagram has more than `size` bytes. It is not removed.
/// * EBUSY: the transfer still runs.
/// * EDEADLK: called in a callback, in which a wait would deadlock.
/// * EBADF: not an open handle of this process.
/// * EFAULT: `buffer` is NULL and `size` is not 0.
///
/// # Safety
///
/// `buffer` is valid for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cord_stranded(
    transfer: cord_transfer,
    buffer: *mut c_void,
    size: usize,
) -> ssize_t {
    guard(-1, || {
        // SAFETY: as the caller promises.
        let buffer = unsafe { sys::buffer(buffer.cast(), size)? };
        let read = with_finished(transfer, |finished| finished.stranded(buffer))?;
        Ok(isize::try_from(read).unwrap_or(isize::MAX))
    })
}

/// cord_json - get the report as one line of JSON
///
/// Writes the line that the command prints with `--json`. It includes the paths
/// that were not taken, and why. docs/json.md lists the members. As snprintf(3),
/// writes at most `size` bytes, including the terminating 0. Waits for callbacks of
/// the transfer that run on another thread.
///
/// # Returns
///
/// The length of the whole line, without the terminating 0, or -1 and errno.
///
/// # Errors
///
/// * EBUSY: the transfer still runs.
/// * EDEADLK: called in a callback, in which a wait would deadlock.
/// * EBADF: not an open handle of this process.
/// * EFAULT: `buffer` is NULL and `size` is not 0.
///
/// # Safety
///
/// `buffer` is valid for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cord_json(
    transfer: cord_transfer,
    buffer: *mut c_char,
    size: usize,
) -> ssize_t {
    guard(-1, || {
        // SAFETY: as the caller promises.
        let buffer = unsafe { sys::buffer(buffer.cast(), size)? };
        let text = with_finished(transfer, |finished| finished.json())?;
        Ok(isize::try_from(sys::write_string(buffer, &text)).unwrap_or(isize::MAX))
    })
}

fn with_finished<T>(
    transfer: cord_transfer,
    f: impl FnOnce(&mut Finished) -> Result<T, Error>,
) -> Result<T, Error> {
    match transfer {
        CORD_LAST => outcome::with_last(f),
        open => Entry::finished(&*table().get(open)?, f),
    }
}

/// cord_close - release a handle, and cancel its transfer if that still runs
///
/// Discards unread stranded bytes: to keep them, call `cord_wait` and
/// `cord_stranded` first. Closing `CORD_LAST` frees its report and stranded
/// bytes.
///
/// For a handle of cord_start, the call does not wait. The transfer may still
/// write bytes that it has read, as long as the sink accepts them without waiting.
/// To write to the sink after a cancelled transfer, call `cord_cancel`, `cord_wait`
/// and `cord_close`, in this order.
///
/// For a handle of cord_open, the call takes the last steps itself: it waits for
/// blocks of direct I/O that are in flight, and runs the callbacks.
///
/// # Returns
///
/// 0, or -1 and errno.
///
/// # Errors
///
/// * EBADF: not an open handle of this process; for a handle of cord_open, as
///   cord_step. The handle then stays open.
#[unsafe(no_mangle)]
pub extern "C" fn cord_close(transfer: cord_transfer) -> c_int {
    guard(-1, || {
        match transfer {
            CORD_LAST => outcome::close_last()?,
            open => table().close(open)?,
        }
        Ok(0)
    })
}

/// cord_detach - release a handle, and let its transfer run to its end
///
/// # Returns
///
/// 0, or -1 and errno.
///
/// # Errors
///
/// * EINVAL: a handle of `cord_open`, which does not continue by itself.
/// * EBADF: not an open handle of this process.
#[unsafe(no_mangle)]
pub extern "C" fn cord_detach(transfer: cord_transfer) -> c_int {
    guard(-1, || table().detach(transfer).map(|()| 0))
}
