//! Transfers with all options: `cord_run`, `cord_start`.

use std::ffi::c_int;

use cordboard::Request;

use super::splice::{lend_both, synchronous};
use crate::error::Error;
use crate::failed::Failed;
use crate::guard::{guard, guard_origin};
use crate::outcome::Finished;
use crate::table::table;
use crate::types::{cord_report, cord_request, cord_transfer};
use crate::{convert, outcome, sys};

/// cord_run - run a transfer and wait for its end
///
/// As cord_splice, with all options of a request. Never asynchronous: ignores
/// FASYNC. `report` may be NULL. A call that fails writes the report too,
/// unless `report->struct_size` is wrong.
///
/// # Returns
///
/// 0, or -1 and errno. An end by `idle_ms` is not a failure: the call returns
/// 0, even if `report->stranded` is not 0; `cord_stranded` reads these bytes.
///
/// # Errors
///
/// * EFAULT: `request` is NULL.
/// * EINVAL: a `struct_size` that no version had; an unknown flag, path or
///   value of `direct`; an offset below 0; an offset for a sink with O_APPEND
///   that is no block device; CORD_SYNC for a sink that stores nothing;
///   CORD_SPARSE with CORD_DENSE.
/// * E2BIG: a field that this version does not know is not 0.
/// * ESPIPE: an offset for a descriptor that cannot seek.
/// * EOVERFLOW: an offset past 2^63-1.
/// * Those of cord_splice.
///
/// # Safety
///
/// `request` and `report` are valid for as many bytes as their `struct_size`
/// says, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cord_run(request: *const cord_request, report: *mut cord_report) -> c_int {
    guard(-1, || {
        if !report.is_null() {
            // Checked before the transfer moves bytes. SAFETY: as the caller
            // promises.
            unsafe {
                sys::check_size(report)
                    .map_err(Failed::from)
                    .map_err(Failed::set_last)?
            };
        }
        // SAFETY: as the caller promises.
        let (finished, error) = match unsafe { run(request) } {
            Ok(finished) => (finished, None),
            Err(failed) => {
                let (finished, error) = failed.into_parts();
                (finished, Some(error))
            }
        };
        if !report.is_null() {
            // Not read from CORD_LAST, which an exiting thread no longer has.
            let from = convert::report(&finished.report);
            // SAFETY: as the caller promises.
            unsafe { sys::write_struct(report, &from)? };
        }
        outcome::set_last(finished);
        error.map_or(Ok(0), Err)
    })
}

/// # Safety
///
/// As for `cord_run`.
unsafe fn run(request: *const cord_request) -> Result<Finished, Failed> {
    // SAFETY: as the caller promises.
    let (from, request) = unsafe { read(request)? };
    let (source, sink) = lend_both(from.source, from.sink)?;
    synchronous(source, sink, request)
}

/// cord_start - start an asynchronous transfer
///
/// Duplicates both descriptors. The caller owns the handle and releases it with
/// `cord_close` or `cord_detach`.
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
/// * EMFILE, ENFILE, ENOMEM, EAGAIN: no descriptor, memory or thread is
///   available.
/// * EPERM, ENOSYS, or another errno of a seccomp filter that refuses
///   epoll_pwait(2).
/// * EBADF: this thread has its own descriptor table (`unshare(2)`,
///   CLONE_FILES).
///
/// # Safety
///
/// `request` is valid for as many bytes as its `struct_size` says, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cord_start(request: *const cord_request) -> cord_transfer {
    guard_origin(-1, |origin| {
        // SAFETY: as the caller promises.
        let (from, request) = unsafe { read(request)? };
        let (source, sink) = lend_both(from.source, from.sink)?;
        let running = cordboard::start_in(origin, source, sink, request)
            .map_err(|failure| Error::from(&failure))?;
        Ok(table().insert(running, None, |_| {}))
    })
}

/// # Safety
///
/// As for `cord_start`.
pub(super) unsafe fn read(request: *const cord_request) -> Result<(cord_request, Request), Error> {
    // SAFETY: as the caller promises.
    let from = unsafe { sys::read_struct(request)? };
    // SAFETY: a string or NULL, as the caller promises.
    let paths = unsafe { sys::string(from.paths)? };
    let request = convert::request(&from, paths)?;
    Ok((from, request))
}
