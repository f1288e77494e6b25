//! Threads, the end of the process, and its job.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

/// Starts a detached thread with a small stack. It may use what a signal
/// handler may use.
pub fn start_plain_thread(body: extern "C" fn(*mut libc::c_void) -> *mut libc::c_void) {
    /// Four times the minimum (`PTHREAD_STACK_MIN`).
    const STACK: libc::size_t = 64 << 10;
    let mut how = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: pthread_attr_init(3) fills in the attributes.
    if unsafe { libc::pthread_attr_init(how.as_mut_ptr()) } != 0 {
        return;
    }
    // SAFETY: they were filled in above.
    unsafe { libc::pthread_attr_setstacksize(how.as_mut_ptr(), STACK) };
    let detached = libc::PTHREAD_CREATE_DETACHED;
    // SAFETY: as above.
    unsafe { libc::pthread_attr_setdetachstate(how.as_mut_ptr(), detached) };
    let none = std::ptr::null_mut();
    // SAFETY: all three are valid for the call; the body takes any argument.
    unsafe { libc::pthread_create(thread.as_mut_ptr(), how.as_ptr(), body, none) };
    // SAFETY: as above; they are not used any more.
    unsafe { libc::pthread_attr_destroy(how.as_mut_ptr()) };
}

/// Ends the process at once. Async-signal-safe.
pub fn exit_at_once(status: libc::c_int) -> ! {
    // SAFETY: _exit(2) ends the process; it may be called anywhere.
    unsafe { libc::_exit(status) }
}

/// Lowers the priority of the calling thread, if that is permitted. On Linux it is an
/// attribute of each thread (`setpriority(2)`, "C library/kernel differences").
pub fn be_nice(nice: i32) {
    let thread = rustix::thread::gettid();
    let _ = rustix::process::setpriority_process(Some(thread), nice);
}

/// Returns whether this process is in the foreground of a terminal. One that does not control
/// this process has no foreground (`ENOTTY`, `ioctl_tty(2)`): `true`, as for other files.
/// Async-signal-safe.
///
/// A group of another PID namespace has the number 0 (`pid_vnr`, kernel/pid.c), which rustix's
/// `getpgrp` does not expect: the group of a process in a namespace may have been created
/// outside of it.
pub fn is_foreground(terminal: impl AsFd) -> bool {
    // SAFETY: tcgetpgrp(3) takes an integer.
    let foreground = unsafe { libc::tcgetpgrp(terminal.as_fd().as_raw_fd()) };
    // SAFETY: getpgrp(2) has no argument, and always succeeds.
    foreground < 0 || foreground == unsafe { libc::getpgrp() }
}
