//! Cancellation of threads.

use std::marker::PhantomData;

unsafe extern "C" {
    // The libc crate has it on some targets only.
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

/// `PTHREAD_CANCEL_DISABLE` of glibc and musl.
const DISABLE: libc::c_int = 1;

/// While it exists, a `pthread_cancel(3)` of this thread stays pending.
/// Cancellation unwinds the thread's stack by force, which aborts the process
/// if there are Rust frames.
pub(crate) struct NotCancelled {
    before: libc::c_int,
    /// The state belongs to the thread: not `Send`.
    not_send: PhantomData<*const ()>,
}

impl NotCancelled {
    pub(crate) fn begin() -> NotCancelled {
        let mut before = 0;
        // SAFETY: the pointer is valid for writing.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        NotCancelled {
            before,
            not_send: PhantomData,
        }
    }
}

impl Drop for NotCancelled {
    fn drop(&mut self) {
        let mut before = 0;
        // SAFETY: a state that this thread had before; the pointer is valid. A
        // thread of the default type (deferred) is not cancelled here.
        unsafe { pthread_setcancelstate(self.before, &raw mut before) };
    }
}
