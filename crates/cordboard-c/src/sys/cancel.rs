//! Threads that are cancelled.

use std::marker::PhantomData;

unsafe extern "C" {
    // libc names it on some targets only.
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

/// `PTHREAD_CANCEL_DISABLE`, of glibc and musl.
const DISABLE: libc::c_int = 1;

/// While there is one, a `pthread_cancel(3)` of this thread stays pending. To
/// cancel a thread is to unwind its stack by force, and what Rust has there
/// cannot be unwound so: the C library aborts the process.
pub(crate) struct NotCancelled {
    before: libc::c_int,
    /// The state is the thread's.
    here: PhantomData<*const ()>,
}

impl NotCancelled {
    pub(crate) fn begin() -> NotCancelled {
        let mut before = 0;
        // SAFETY: the pointer is valid for writing.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        NotCancelled {
            before,
            here: PhantomData,
        }
    }
}

impl Drop for NotCancelled {
    fn drop(&mut self) {
        let mut before = 0;
        // SAFETY: a state that this thread has had; the pointer is valid. A
        // thread of the default type is not cancelled here.
        unsafe { pthread_setcancelstate(self.before, &raw mut before) };
    }
}
