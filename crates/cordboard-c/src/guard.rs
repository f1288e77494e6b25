//! The boundary of the C library: a failure sets errno and stores a message,
//! and neither a panic nor a thread's cancellation crosses it.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use cordboard::{Errno, Origin};

use crate::error::Error;
use crate::{sys, table};

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Runs a call. If it fails, sets `errno`, stores the message and returns
/// `failed`, the call's value for a failure. A panic, a bug in this library,
/// becomes `ENOTRECOVERABLE`. The thread is not cancelled during the call.
pub(crate) fn guard<T>(failed: T, call: impl FnOnce() -> Result<T, Error>) -> T {
    let _not_cancelled = sys::NotCancelled::begin();
    let call = AssertUnwindSafe(|| {
        // In a child of fork(2) the first call closes inherited descriptors.
        table::table();
        call()
    });
    let error = match catch_unwind(call) {
        Ok(Ok(value)) => return value,
        Ok(Err(error)) => error,
        Err(_) => Error::new(
            Errno::ENOTRECOVERABLE,
            "bug in cordboard: please report it with the message on standard error",
        ),
    };
    // While a thread exits, its thread-local values may be gone.
    let _ = MESSAGE.try_with(|message| {
        let text = error.message.replace('\0', " ");
        *message.borrow_mut() = CString::new(text).unwrap_or_default();
    });
    sys::set_errno(error.errno);
    failed
}

/// As [`guard`], for a call that makes a transfer or a control descriptor. Passes the process and
/// the thread in which the call has begun. If a signal handler forks during the call, it fails in
/// the child and continues in the parent.
pub(crate) fn guard_origin<T>(failed: T, call: impl FnOnce(Origin) -> Result<T, Error>) -> T {
    let origin = Origin::here();
    guard(failed, || {
        let value = call(origin)?;
        check(origin)?;
        Ok(value)
    })
}

/// # Errors
///
/// `ECHILD`: a signal handler has forked since the call has begun, and this is the child.
pub(crate) fn check(origin: Origin) -> Result<(), Error> {
    match origin.is_this_process() {
        true => Ok(()),
        false => Err(Error::new(
            Errno::ECHILD,
            "a signal handler has forked during the call, which continues in the parent process",
        )),
    }
}

/// The message of this thread's last failure, valid until its next failure.
pub(crate) fn message() -> *const c_char {
    MESSAGE
        .try_with(|message| message.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn stored() -> String {
        // SAFETY: never NULL, and no call fails in between.
        #[allow(unsafe_code)]
        let text = unsafe { CStr::from_ptr(message()) };
        text.to_str().unwrap().to_owned()
    }

    fn errno() -> Option<i32> {
        std::io::Error::last_os_error().raw_os_error()
    }

    #[test]
    fn failures_and_panics_are_errnos() {
        assert_eq!(guard(-1, || Ok(7)), 7);
        assert_eq!(stored(), "");
        assert_eq!(guard(-1, || Err(Errno::EBADF.into())), -1);
        assert_eq!(
            (errno(), stored()),
            (Some(libc::EBADF), "Bad file descriptor (EBADF)".into())
        );
        assert_eq!(
            guard(-1, || -> Result<i32, Error> {
                panic!("a panic of the test")
            }),
            -1
        );
        assert_eq!(errno(), Some(libc::ENOTRECOVERABLE));
        assert!(stored().contains("bug in cordboard"), "{}", stored());
    }
}
