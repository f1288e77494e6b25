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

/// cord_wait - wait for a transfer's end
///
/// After it the callbacks of the transfer have returned, and it leaves both
/// descriptors alone. The handle stays open.
/// Any number of threads may wait, and no descriptor is needed for it. `report`
/// may be NULL.
///
/// # Returns
///
/// 0 however it ended: see `report->ended` and `report->error`. -1 and errno
/// where it could not be waited for.
///
/// # Errors
///
/// * EBADF: no open handle of this process.
/// * EDEADLK: called in a callback.
/// * EINVAL: a `struct_size` that no version had.
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

/// cord_try - the account of a transfer, if it has ended
///
/// Never waits. `report` may be NULL.
///
/// # Returns
///
/// 1 if it has ended, 0 if it still runs, -1 and errno.
///
/// # Errors
///
/// * EBADF: no open handle of this process.
/// * EINVAL: a `struct_size` that no version had.
///
/// # Safety
///
/// `report` is valid for as many bytes as its `struct_size` says, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cord_try(transfer: cord_transfer, report: *mut cord_report) -> c_int {
    // SAFETY: as the caller promises.
    guard(-1, || {
        unsafe { try_report(transfer, report) }.map(c_int::from)
    })
}

/// Writes the report if the transfer has ended; whether it has.
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
unsafe fn try_entry(entry: &Entry, report: *mut cord_report) -> Result<bool, Error> {
    match entry.report() {
        // SAFETY: as the caller promises.
        Some(from) => unsafe { write_report(from, report) },
        None => {
            // SAFETY: as the caller promises.
            unsafe { check(report)? };
            // `status` ends a transfer whose descriptors the program has closed.
            entry.running.status();
            Ok(false)
        }
    }
}

/// Refuses a wrong `struct_size` now rather than at the end.
///
/// # Safety
///
/// As for `cord_try`.
unsafe fn check(report: *const cord_report) -> Result<(), Error> {
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

/// cord_get_status - how far a transfer has come
///
/// # Returns
///
/// 0, or -1 and errno.
///
/// # Errors
///
/// * EBADF: no open handle of this process; CORD_LAST, which has ended.
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
        let now = table().get(transfer)?.running.status();
        let from = convert::status(&now);
        // SAFETY: as the caller promises.
        unsafe { sys::write_struct(status, &from)? };
        Ok(0)
    })
}

/// cord_fd - a descriptor to wait for the end with poll(2)
///
/// It polls readable once the transfer has ended, and stays so. It belongs to
/// the handle: not to be read, nor closed.
///
/// # Returns
///
/// The descriptor, or -1 and errno.
///
/// # Errors
///
/// * EBADF: no open handle of this process; or this thread has descriptors of
///   its own (`unshare(2)`), among which the handle's is not.
/// * EMFILE, ENFILE, ENOMEM: no descriptor or memory is available.
#[unsafe(no_mangle)]
pub extern "C" fn cord_fd(transfer: cord_transfer) -> c_int {
    guard(-1, || table().get(transfer)?.descriptor())
}

/// cord_on_end - have a function called at the end
///
/// Once, on a thread of the library before anyone who waits is told; at once
/// and on the calling thread, if the end has come. It is called even where the
/// handle is closed meanwhile. The report is valid for the call.
///
/// # Returns
///
/// 0, or -1 and errno.
///
/// # Errors
///
/// * EBADF: no open handle of this process.
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
        entry.running.on_end(move |report| {
            let report = convert::report(report);
            // SAFETY: the caller's function, with the caller's pointer for it.
            run_callback(|| unsafe { callback(transfer, &raw const report, user.get()) });
        });
        Ok(0)
    })
}

/// cord_cancel - end a transfer early
///
/// Returns at once; the end comes as any other, with an exact account. What
/// has ended already stays as it is. A system call that blocks and cannot be
/// interrupted returns first (docs/c.md).
///
/// # Returns
///
/// 0, or -1 and errno.
///
/// # Errors
///
/// * EBADF: no open handle of this process.
#[unsafe(no_mangle)]
pub extern "C" fn cord_cancel(transfer: cord_transfer) -> c_int {
    guard(-1, || {
        table().get(transfer)?.running.cancel();
        Ok(0)
    })
}

/// cord_stranded - bytes that were read from the source and not written
///
/// As read(2): the next of them, at most `size`. Datagrams come one a call and
/// whole, be it with no bytes.
///
/// # Returns
///
/// Bytes, or -1 and errno.
///
/// # Errors
///
/// * ENODATA: nothing is left, or nothing ever was.
/// * EMSGSIZE: the next datagram has more than `size` bytes. It stays.
/// * EBUSY: the transfer still runs.
/// * EDEADLK: called in a callback.
/// * EBADF: no open handle of this process.
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

/// cord_json - the whole account as one line of JSON
///
/// The same as the command's `--json`, which has the paths that were not taken
/// and why. As snprintf(3): at most `size` bytes with the ending 0.
///
/// # Returns
///
/// The length of the whole text, without its 0, or -1 and errno.
///
/// # Errors
///
/// * EBUSY: the transfer still runs.
/// * EDEADLK: called in a callback.
/// * EBADF: no open handle of this process.
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

/// cord_close - give a handle back; a transfer that still runs is cancelled
///
/// Stranded bytes that were not read are dropped with it: wait and read them
/// first, where they matter. Closing `CORD_LAST` frees what it keeps.
///
/// It does not wait. What had been read is still written after it, as far as
/// the sink takes it at once. To write something behind a transfer that was
/// ended early: `cord_cancel`, `cord_wait`, `cord_close`.
///
/// # Returns
///
/// 0, or -1 and errno.
///
/// # Errors
///
/// * EBADF: no open handle of this process.
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

/// cord_detach - give a handle back and let the transfer go on to its end
///
/// # Returns
///
/// 0, or -1 and errno.
///
/// # Errors
///
/// * EBADF: no open handle of this process.
#[unsafe(no_mangle)]
pub extern "C" fn cord_detach(transfer: cord_transfer) -> c_int {
    guard(-1, || table().detach(transfer).map(|()| 0))
}
