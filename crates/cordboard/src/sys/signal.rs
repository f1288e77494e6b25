//! Blocks the signals that a write can raise.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use super::last_errno::last_errno;
use super::procfs::hexadecimal;
use super::table::Thread;
use crate::errno::Errno;

/// Blocks `SIGPIPE` (a closed reader) and `SIGXFSZ` (the file-size limit) in
/// this thread until it is dropped. Then removes the pending signals that the
/// transfer has raised. Signals that were pending before stay pending, and so do
/// signals from other senders. The host's handlers are never changed.
///
/// A signal that a call raises is pending for the thread that made it
/// (`send_sig` in `pipe_write`, fs/pipe.c), and a signal from another sender
/// mostly for the process. Both can be pending at once, and are taken one after
/// the other.
///
/// A signal that cannot be taken, because a filter refuses `rt_sigtimedwait(2)` and
/// `signalfd4(2)`, stays blocked: it would end the host.
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
            let now = pending();
            let here = for_this_thread(now.unwrap_or([true; 2]));
            // If that is unknown, a signal that the host has blocked counts as pending before,
            // and is not taken: it stays blocked.
            waits = here.or(now).unwrap_or(members(&before));
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
        restore(&hold.before);
    }
}

impl Drop for SignalGuard {
    fn drop(&mut self) {
        let now = pending();
        let here = for_this_thread(now.unwrap_or([true; 2]));
        let known = here.or(now);
        let mut mask = self.before;
        for (index, signal) in HELD.into_iter().enumerate() {
            // If it is unknown whether a signal is pending, taking it shows that.
            if self.pending[index] || known.is_some_and(|pending| !pending[index]) {
                continue;
            }
            match take(signal) {
                // It is from another sender; only one of a kind is pending at a
                // time.
                Ok(Some(info)) if !is_the_kernels(&info) => give_back(&info, here.is_some()),
                Ok(_) => {}
                // SAFETY: the set is initialised and the number is a real signal's.
                Err(_) if known.is_some() => _ = unsafe { libc::sigaddset(&mut mask, signal) },
                Err(_) => {}
            }
        }
        restore(&mask);
    }
}

fn restore(mask: &libc::sigset_t) {
    // SAFETY: the set is initialised.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, ptr::null_mut()) };
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

/// `None` if a filter refuses `rt_sigpending(2)`.
fn pending() -> Option<[bool; 2]> {
    let mut pending = set(&[]);
    // SAFETY: the set is valid for the kernel to fill in.
    let done = unsafe { libc::sigpending(&mut pending) };
    (done == 0).then(|| members(&pending))
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

/// Bytes of the kernel's signal set (_NSIG in asm/signal.h).
const SET: usize = match cfg!(any(target_arch = "mips", target_arch = "mips64")) {
    true => 16,
    false => 8,
};

/// Takes a pending, blocked signal off the queue: the one for this thread
/// first. Calls `rt_sigtimedwait(2)` directly: the GNU C library's wrapper does
/// not tell `SI_TKILL` from `SI_USER`. `None` if it is not pending.
///
/// # Errors
///
/// The errno of a filter that refuses this call, if `signalfd4(2)` fails as well.
fn take(signal: libc::c_int) -> Result<Option<libc::siginfo_t>, Errno> {
    let one = set(&[signal]);
    // Zero seconds and nanoseconds, of any width.
    let zero = [0u64; 2];
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let number = libc::SYS_rt_sigtimedwait;
    // SAFETY: the set and the timeout outlive the call, and `info` is valid for
    // what it fills in.
    let taken = unsafe { libc::syscall(number, &raw const one, info.as_mut_ptr(), &zero, SET) };
    if taken == libc::c_long::from(signal) {
        // SAFETY: zeroed, which is a valid value, and filled in by the kernel.
        return Ok(Some(unsafe { info.assume_init() }));
    }
    match last_errno() {
        Errno::EAGAIN => Ok(None),
        errno => take_by_descriptor(&one).map_err(|_| errno),
    }
}

/// As [`take`], by `signalfd4(2)` (since Linux 2.6.27), whose `read(2)` takes signals in the same
/// order.
fn take_by_descriptor(one: &libc::sigset_t) -> Result<Option<libc::siginfo_t>, Errno> {
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: the set outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_signalfd4, -1, ptr::from_ref(one), SET, flags) };
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: made above, and owned by nothing else.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) };
    let mut sent = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
    let length = size_of::<libc::signalfd_siginfo>();
    // SAFETY: valid for so many bytes.
    let read = unsafe { libc::read(fd.as_raw_fd(), sent.as_mut_ptr().cast(), length) };
    if read != length as isize {
        return match last_errno() {
            Errno::EAGAIN => Ok(None),
            errno => Err(errno),
        };
    }
    // SAFETY: zeroed, which is a valid value, and filled in by the kernel.
    let sent = unsafe { sent.assume_init() };
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: all-zero bytes are valid.
    let fields = unsafe { info.assume_init_mut() };
    fields.si_signo = sent.ssi_signo as libc::c_int;
    fields.si_errno = sent.ssi_errno;
    fields.si_code = sent.ssi_code;
    let union = (3 * size_of::<libc::c_int>()).next_multiple_of(align_of::<usize>());
    let words = [sent.ssi_pid, sent.ssi_uid];
    // The members of the union that `kill(2)` and `sigqueue(3)` use (`sigaction(2)`).
    let fields = info.as_mut_ptr().cast::<u8>().wrapping_add(union);
    let value = fields.wrapping_add(size_of_val(&words));
    // SAFETY: a siginfo_t has 128 bytes, and the union is aligned as a pointer.
    unsafe { fields.cast::<[u32; 2]>().write(words) };
    // SAFETY: as above.
    unsafe { value.cast::<usize>().write(sent.ssi_ptr as usize) };
    // SAFETY: filled in.
    Ok(Some(unsafe { info.assume_init() }))
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
        if unsafe { libc::syscall(number, process, thread, signal, words) } != 0 {
            // A filter refuses the call.
            // SAFETY: takes integers.
            unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) };
        }
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
        assert_eq!(pending(), Some([false, false]));
        {
            let _hold = SignalGuard::start().unwrap();
            assert_eq!(
                rustix::io::write(&writer, b"x"),
                Err(rustix::io::Errno::PIPE)
            );
            assert_eq!(pending(), Some([true, false]));
        }
        assert_eq!(pending(), Some([false, false]));
    }

    /// Without procfs the fields of a signal identify its sender.
    #[test]
    fn what_others_sent_is_theirs_without_a_procfs_too() {
        for refused in [&[][..], &[libc::SYS_rt_sigtimedwait]] {
            let fine = testkit::child::in_a_child(|| {
                let refused = [testkit::refuse::OPEN, refused].concat();
                testkit::refuse::refuse(&refused, libc::EACCES);
                assert_eq!(for_this_thread([true, false]), None);
                let _own = SignalGuard::start().unwrap();
                without_procfs();
                // Another thread than the first, with the same mask.
                crate::sys::on_another(without_procfs).is_some()
            });
            assert!(fine, "{refused:?}");
        }
    }

    /// A filter refuses the calls that show and take a signal.
    #[test]
    fn a_closed_pipe_does_not_kill_where_signals_cannot_be_taken() {
        let (take, show) = (libc::SYS_rt_sigtimedwait, libc::SYS_rt_sigpending);
        let all = [take, libc::SYS_signalfd4];
        for (refused, stays) in [(&[take, show][..], false), (&all, true)] {
            for errno in [libc::EPERM, libc::ENOSYS] {
                assert!(testkit::child::in_a_child(|| {
                    let (reader, writer) = rustix::pipe::pipe().unwrap();
                    drop(reader);
                    // SAFETY: the signal has no handler, and no other thread exists here.
                    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
                    testkit::refuse::refuse(refused, errno);
                    let hold = SignalGuard::start().unwrap();
                    let written = rustix::io::write(&writer, b"x");
                    drop(hold);
                    // One that stays is blocked.
                    let kept = SignalGuard::start().unwrap();
                    written.is_err() && members(&kept.before) == [stays, false]
                }));
            }
        }
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
            let left = take(libc::SIGPIPE).unwrap().map(|info| info.si_code);
            let expected = [None, Some(libc::SI_TKILL), Some(libc::SI_USER)];
            assert_eq!((left, pending()), (expected[sends], Some([false; 2])));
        }
    }
}
