//! Blocks the signals that a write can raise.

use std::mem::MaybeUninit;
use std::ptr;

use super::procfs::hexadecimal;
use super::table::Thread;

/// Blocks `SIGPIPE` (a closed reader) and `SIGXFSZ` (the file-size limit) in
/// this thread until it is dropped. Then removes the pending signals that the
/// transfer has raised. Signals that were pending before stay pending, and so do
/// signals from other senders. The host's handlers are never changed.
///
/// A signal that a call raises is pending for the thread that made it
/// (`send_sig` in `pipe_write`, fs/pipe.c), and a signal from another sender
/// mostly for the process. Both can be pending at once, and are taken one after
/// the other.
pub(crate) struct SignalGuard {
    before: libc::sigset_t,
    /// Whether each signal was pending for this thread before.
    pending: [bool; 2],
}

const HELD: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

impl SignalGuard {
    /// Blocks the signals. `None` if the mask could not be changed.
    pub(crate) fn start() -> Option<SignalGuard> {
        let held = set(&HELD);
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: both sets are valid for the call, which fills in the second.
        let done = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &held, before.as_mut_ptr()) };
        if done != 0 {
            return None;
        }
        // SAFETY: filled in by the successful call above.
        let before = unsafe { before.assume_init() };
        // A signal that was not blocked before cannot have been pending. This
        // saves a call in nearly every process.
        let already = members(&before).contains(&true);
        let mut waits = [false; 2];
        if already {
            waits = pending();
            waits = for_this_thread(waits).unwrap_or(waits);
        }
        Some(SignalGuard {
            before,
            pending: waits,
        })
    }
}

impl SignalGuard {
    /// Restores the mask without a query of pending signals, if the transfer
    /// cannot have raised one.
    pub(crate) fn end_quietly(self) {
        let hold = std::mem::ManuallyDrop::new(self);
        hold.restore();
    }

    fn restore(&self) {
        // SAFETY: restores the mask that was read at the start.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}

impl Drop for SignalGuard {
    fn drop(&mut self) {
        let now = pending();
        let here = for_this_thread(now);
        for (index, signal) in HELD.into_iter().enumerate() {
            let waits = here.unwrap_or(now)[index];
            if waits
                && !self.pending[index]
                && let Some(info) = take(signal)
                && !is_the_kernels(&info)
            {
                // It is from another sender; only one of a kind is pending at a
                // time.
                give_back(&info, here.is_some());
            }
        }
        self.restore();
    }
}

/// Blocks all signals in this thread until it is dropped. A thread that is
/// started meanwhile inherits the mask: it never runs a handler of the host, and
/// gets `EPIPE` and `EFBIG` instead of a signal.
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

/// Whether `SIGPIPE` is ignored, as in every Rust program by default. A transfer
/// to a pipe or a socket then need not block it, and one call replaces three.
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

/// Returns which of the pending signals are pending for this thread and not for
/// the process (`proc_pid_status(5)`, `SigPnd`); `None` without a procfs.
fn for_this_thread(pending: [bool; 2]) -> Option<[bool; 2]> {
    if pending == [false; 2] {
        return Some(pending);
    }
    let thread = Thread::this().number();
    let status = format!("/proc/self/task/{thread}/status");
    let mask = hexadecimal(&status, "SigPnd:")?;
    Some(HELD.map(|signal| mask >> (signal - 1) & 1 == 1))
}

/// Takes a pending, blocked signal off the queue: the one for this thread
/// first. Calls `rt_sigtimedwait(2)` directly: the GNU C library's wrapper does
/// not tell `SI_TKILL` from `SI_USER`.
fn take(signal: libc::c_int) -> Option<libc::siginfo_t> {
    // Bytes of the kernel's signal set (_NSIG in asm/signal.h).
    const SET: usize = match cfg!(any(target_arch = "mips", target_arch = "mips64")) {
        true => 16,
        false => 8,
    };
    let one = set(&[signal]);
    // Zero seconds and nanoseconds, of any width.
    let zero = [0u64; 2];
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let number = libc::SYS_rt_sigtimedwait;
    // SAFETY: the set and the timeout outlive the call, and `info` is valid for
    // what it fills in.
    let taken = unsafe { libc::syscall(number, &raw const one, info.as_mut_ptr(), &zero, SET) };
    // SAFETY: zeroed, which is a valid value, and filled in by the kernel.
    (taken == libc::c_long::from(signal)).then(|| unsafe { info.assume_init() })
}

/// Whether a call of this process raised the signal, as far as its fields show
/// (`SEND_SIG_NOINFO` in kernel/signal.c).
fn is_the_kernels(info: &libc::siginfo_t) -> bool {
    let this = Thread::first().number();
    // SAFETY: SI_USER comes with the sender's number.
    info.si_code == libc::SI_USER && unsafe { info.si_pid() } == this
}

/// Queues a taken signal again by `rt_tgsigqueueinfo(2)`, since Linux 2.6.31.
/// That call may set the sender, because the receiver is the caller itself.
fn give_back(info: &libc::siginfo_t, to_this_thread: bool) {
    let process = Thread::first().number();
    let thread = Thread::this().number();
    let (signal, words) = (info.si_signo, &raw const *info);
    if to_this_thread || info.si_code == libc::SI_TKILL {
        let number = libc::SYS_rt_tgsigqueueinfo;
        // SAFETY: takes integers, and reads a siginfo_t that is valid.
        unsafe { libc::syscall(number, process, thread, signal, words) };
        return;
    }
    let number = libc::SYS_rt_sigqueueinfo;
    // SAFETY: as above.
    if unsafe { libc::syscall(number, process, signal, words) } != 0 {
        // Only the first thread may queue it to the process (`EPERM`,
        // do_rt_sigqueueinfo in kernel/signal.c).
        // SAFETY: takes integers.
        unsafe { libc::kill(process, signal) };
    }
}

fn members(set: &libc::sigset_t) -> [bool; 2] {
    // SAFETY: the set is initialised.
    HELD.map(|signal| unsafe { libc::sigismember(set, signal) } == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case 55: a write to a closed pipe is EPIPE, and no signal stays pending.
    #[test]
    fn a_closed_pipe_raises_nothing() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        assert_eq!(pending(), [false, false]);
        {
            let _hold = SignalGuard::start().unwrap();
            assert_eq!(
                rustix::io::write(&writer, b"x"),
                Err(rustix::io::Errno::PIPE)
            );
            assert_eq!(pending(), [true, false]);
        }
        assert_eq!(pending(), [false, false]);
    }

    /// Without procfs the fields of a signal identify its sender.
    #[test]
    fn what_others_sent_is_theirs_without_a_procfs_too() {
        let fine = testkit::child::in_a_child(|| {
            testkit::refuse::refuse(testkit::refuse::OPEN, libc::EACCES);
            assert_eq!(for_this_thread([true, false]), None);
            let _own = SignalGuard::start().unwrap();
            without_procfs();
            // Another thread than the first, with the same mask.
            crate::sys::on_another(without_procfs).is_some()
        });
        assert!(fine);
    }

    fn without_procfs() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        let this = Thread::first().number();
        for sends in [0, 1, 2] {
            let hold = SignalGuard::start().unwrap();
            match sends {
                0 => {}
                // SAFETY: takes an integer.
                1 => assert_eq!(unsafe { libc::raise(libc::SIGPIPE) }, 0),
                _ => assert!(testkit::child::in_a_child(|| {
                    // SAFETY: takes integers.
                    unsafe { libc::kill(this, libc::SIGPIPE) == 0 }
                })),
            }
            if sends != 2 {
                let refused = rustix::io::write(&writer, b"x");
                assert_eq!(refused, Err(rustix::io::Errno::PIPE));
            }
            drop(hold);
            let left = take(libc::SIGPIPE).map(|info| info.si_code);
            let expected = [None, Some(libc::SI_TKILL), Some(libc::SI_USER)];
            assert_eq!((left, pending()), (expected[sends], [false; 2]));
        }
    }
}
