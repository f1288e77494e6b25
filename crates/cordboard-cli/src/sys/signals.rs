//! Signals: dispositions, handlers, masks.

use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};

/// A signal handler. It may use only atomics, the functions of this module that
/// are async-signal-safe, and system calls.
pub type Handler = extern "C" fn(libc::c_int);

/// A handler that gets the origin of the signal (`SA_SIGINFO`).
pub type OriginHandler = extern "C" fn(libc::c_int, &libc::siginfo_t, *mut libc::c_void);

/// Whether a signal is ignored.
pub fn ignores(signal: libc::c_int) -> bool {
    disposition(signal) == libc::SIG_IGN
}

/// Whether a signal has its default action. `true` for a signal that does not
/// exist.
pub fn is_by_default(signal: libc::c_int) -> bool {
    disposition(signal) == libc::SIG_DFL
}

fn disposition(signal: libc::c_int) -> libc::sighandler_t {
    let mut action = no_action();
    // SAFETY: reads the present action into a valid sigaction.
    unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    action.sa_sigaction
}

/// Whether this thread has a signal blocked.
pub fn blocks(signal: libc::c_int) -> bool {
    let mut set = set_of(&[]);
    // SAFETY: fills in the set, which is valid for writing.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set) };
    // SAFETY: reads a set that is filled in.
    unsafe { libc::sigismember(&raw const set, signal) == 1 }
}

/// Ignores a signal. Async-signal-safe.
pub fn ignore(signal: libc::c_int) {
    let mut action = no_action();
    action.sa_sigaction = libc::SIG_IGN;
    // SAFETY: the action is valid; sigaction(2) is fit for a signal handler.
    unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
}

/// Ends or stops this process by the default action of the signal. Returns if
/// that action does neither, or once the process continues. Async-signal-safe.
pub fn raise_by_default(signal: libc::c_int) {
    let action = no_action();
    // SAFETY: the action is valid: the default one.
    unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    unblock(&[signal]);
    // SAFETY: takes an integer.
    unsafe { libc::raise(signal) };
}

/// Sets a handler, which runs with all signals blocked. The system call that it
/// interrupts is not restarted.
pub fn handle(signal: libc::c_int, handler: Handler) {
    install(signal, handler as libc::sighandler_t, 0);
}

/// Has a signal handled, unless it is ignored. A signal that was ignored at the
/// start stays ignored: `nohup`, and shells without job control for background
/// jobs, intend that.
pub fn handle_unless_ignored(signal: libc::c_int, handler: Handler) {
    if !ignores(signal) {
        handle(signal, handler);
    }
}

/// [`handle`] with a handler that gets the origin of the signal.
pub fn handle_with_origin(signal: libc::c_int, handler: OriginHandler) {
    install(signal, handler as libc::sighandler_t, libc::SA_SIGINFO);
}

fn install(signal: libc::c_int, handler: libc::sighandler_t, flags: libc::c_int) {
    let mut action = no_action();
    (action.sa_sigaction, action.sa_flags) = (handler, flags);
    // SAFETY: fills in a signal set that is valid for writing.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    // SAFETY: the action is valid; see `Handler` for what a handler may do.
    unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
}

fn no_action() -> libc::sigaction {
    // SAFETY: all zeros is a valid sigaction: default action, empty mask.
    unsafe { std::mem::zeroed() }
}

/// Returns the set of these signals.
fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset(3) fills in the set, which is valid for writing.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in signals {
        // SAFETY: the set was filled in above.
        unsafe { libc::sigaddset(set.as_mut_ptr(), *signal) };
    }
    // SAFETY: as above.
    unsafe { set.assume_init() }
}

/// Unblocks these signals, whatever the inherited mask is.
pub fn unblock(signals: &[libc::c_int]) {
    let set = set_of(signals);
    // SAFETY: reads a set that is filled in.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) };
}

/// Returns a descriptor that is readable while one of these signals is pending
/// for the process, or for the thread that polls it. Reading it takes the
/// signal.
pub fn pending_signals(signals: &[libc::c_int]) -> Result<OwnedFd, rustix::io::Errno> {
    let set = set_of(signals);
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: signalfd(2) reads a set that is filled in.
    let number = unsafe { libc::signalfd(-1, &raw const set, flags) };
    if number < 0 {
        return Err(super::last_errno());
    }
    // SAFETY: the call has returned it, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Runs `body` with all signals blocked. A thread that it starts keeps them
/// blocked.
pub fn without_signals<T>(body: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset(3) fills in the set, which is valid for writing.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: reads the set filled in above, and fills in the one before.
    let blocked =
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    let done = body();
    // If a filter refuses the call, nothing was blocked or filled in.
    if blocked == 0 {
        // SAFETY: reads the set that the call before filled in.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    done
}

/// Runs the body of a handler, and restores errno.
pub fn keeping_errno(body: impl FnOnce()) {
    // SAFETY: the address of this thread's errno is always valid.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { errno.read() };
    body();
    // SAFETY: as above.
    unsafe { errno.write(before) };
}
