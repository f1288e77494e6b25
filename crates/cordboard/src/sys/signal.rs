//! Holding back the signals that writing can raise.

use std::mem::MaybeUninit;
use std::ptr;

/// While it lives, `SIGPIPE` (a closed reader) and `SIGXFSZ` (the file-size
/// limit) do not reach this thread; what the transfer raised meanwhile is
/// taken back at the end, and what was pending before stays pending. The
/// host's handlers are never touched.
pub(crate) struct Hold {
    before: libc::sigset_t,
    pending: [bool; 2],
}

const HELD: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

impl Hold {
    /// Starts holding. `None` if the mask could not be changed.
    pub(crate) fn start() -> Option<Hold> {
        let held = set(&HELD);
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: both sets are valid for the call, which fills in the second.
        let done = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &held, before.as_mut_ptr()) };
        if done != 0 {
            return None;
        }
        // SAFETY: filled in by the successful call above.
        let before = unsafe { before.assume_init() };
        // What was not held back before cannot have been pending: one call
        // less for nearly everyone.
        let already = members(&before).contains(&true);
        Some(Hold {
            before,
            pending: if already { pending() } else { [false; 2] },
        })
    }
}

impl Hold {
    /// Ends it without asking what was raised, where nothing can have been.
    pub(crate) fn end_quietly(self) {
        let hold = std::mem::ManuallyDrop::new(self);
        hold.restore();
    }

    fn restore(&self) {
        // SAFETY: restores the mask that was read at the start.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let now = pending();
        for (index, signal) in HELD.into_iter().enumerate() {
            if now[index] && !self.pending[index] {
                let one = set(&[signal]);
                let zero = libc::timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                };
                // SAFETY: takes a pending, blocked signal off the queue; the
                // set and the timeout outlive the call.
                unsafe { libc::sigtimedwait(&one, ptr::null_mut(), &zero) };
            }
        }
        self.restore();
    }
}

/// While it lives, no signal reaches this thread; a thread that is started
/// meanwhile begins with all of them blocked, and so never runs a handler of
/// the host's, and finds `EPIPE` and `EFBIG` where there would be a signal.
pub(crate) struct NoSignals {
    before: libc::sigset_t,
}

impl NoSignals {
    pub(crate) fn start() -> NoSignals {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: fills in the whole set.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        let mut before = set(&[]);
        // SAFETY: the first set is filled in above; the call fills in the other.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), &mut before) };
        NoSignals { before }
    }
}

impl Drop for NoSignals {
    fn drop(&mut self) {
        // SAFETY: restores the mask that was read at the start.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}

/// Whether `SIGPIPE` is ignored, as it is in every Rust program unless it says
/// otherwise. Then nothing needs to be held back from a pipe or a socket, and
/// one call does for three.
pub(crate) fn sigpipe_is_ignored() -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: nothing is set; the kernel fills the second in.
    let done = unsafe { libc::sigaction(libc::SIGPIPE, ptr::null(), action.as_mut_ptr()) };
    if done != 0 {
        return false;
    }
    // SAFETY: filled in by the successful call above.
    unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

fn set(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the whole set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in signals {
        // SAFETY: the set is initialised and the number is a real signal's.
        unsafe { libc::sigaddset(set.as_mut_ptr(), *signal) };
    }
    // SAFETY: initialised above.
    unsafe { set.assume_init() }
}

fn pending() -> [bool; 2] {
    let mut pending = set(&[]);
    // SAFETY: the set is valid for the kernel to fill in.
    unsafe { libc::sigpending(&mut pending) };
    members(&pending)
}

fn members(set: &libc::sigset_t) -> [bool; 2] {
    // SAFETY: the set is initialised.
    HELD.map(|signal| unsafe { libc::sigismember(set, signal) } == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case 55: writing to a closed pipe is EPIPE and leaves nothing behind.
    #[test]
    fn a_closed_pipe_raises_nothing() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        assert_eq!(pending(), [false, false]);
        {
            let _hold = Hold::start().unwrap();
            assert_eq!(
                rustix::io::write(&writer, b"x"),
                Err(rustix::io::Errno::PIPE)
            );
            assert_eq!(pending(), [true, false]);
        }
        assert_eq!(pending(), [false, false]);
    }
}
