//! The message of a failure, and the version.

use std::ffi::c_char;

use crate::guard::message;

/// cord_error - the message of this thread's last failed call
///
/// Says which side failed, why, and what may help. Valid until the next call of
/// this thread that fails. Never NULL; empty before the first failure, and while
/// the thread exits (also in atexit(3) functions).
#[unsafe(no_mangle)]
pub extern "C" fn cord_error() -> *const c_char {
    message()
}

/// cord_version - the version of the library, `"0.1.0"`
#[unsafe(no_mangle)]
pub extern "C" fn cord_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
