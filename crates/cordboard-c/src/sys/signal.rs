//! Sends a signal as the kernel does for I/O.

use cordboard::Errno;

use super::errno::{last, result};

/// The receiver of the signals: `F_SETOWN`, `F_SETOWN_EX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Thread(libc::pid_t),
    Process(libc::pid_t),
    Group(libc::pid_t),
}

/// A signal, its receiver and its `siginfo_t`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) owner: Owner,
    pub(crate) signal: libc::c_int,
    /// `si_fd`.
    pub(crate) number: libc::c_int,
    /// `si_band`: `POLLIN` and so on.
    pub(crate) band: libc::c_long,
    /// `si_errno`.
    pub(crate) error: libc::c_int,
}

/// Sends the signal, with a `siginfo_t` as the kernel fills it in for I/O. If
/// the queue is full (`RLIMIT_SIGPENDING`), sends a plain SIGIO, as the kernel
/// does (`fcntl(2)`, `F_SETSIG`).
///
/// # Errors
///
/// * `ESRCH`: the owner has exited, or the owner is group 1 and the caller is
///   not in it.
/// * `EPERM`: the owner's processes belong to another user.
pub(crate) fn notify(target: &Target) -> Result<(), Errno> {
    let info = info(target);
    let here = std::process::id() as libc::pid_t;
    let sent = match target.owner {
        // No call sends a siginfo_t to a group.
        Owner::Group(group) => return send_to_group(group, target.signal),
        Owner::Process(process) => queue(&[libc::SYS_rt_sigqueueinfo, process.into()], &info),
        Owner::Thread(thread) => queue(
            &[libc::SYS_rt_tgsigqueueinfo, here.into(), thread.into()],
            &info,
        ),
    };
    match (sent, target.owner) {
        (Err(Errno::EAGAIN), Owner::Process(process)) => {
            // SAFETY: takes integers only.
            result(unsafe { libc::kill(process, libc::SIGIO) }).map(drop)
        }
        (Err(Errno::EAGAIN), Owner::Thread(thread)) => send_to_thread(thread, libc::SIGIO),
        // A thread of another process, whose id is not known here.
        (Err(Errno::ESRCH), Owner::Thread(thread)) => send_to_thread(thread, target.signal),
        (sent, _) => sent,
    }
}

/// Sends a signal to a process group. `kill(2)` takes -1 for all processes, so
/// group 1, the first group of a container, can only be signalled as 0, by a
/// process in it.
fn send_to_group(group: libc::pid_t, signal: libc::c_int) -> Result<(), Errno> {
    // SAFETY: takes nothing and returns an integer.
    let own = unsafe { libc::getpgrp() };
    let target = match group {
        _ if group == own => 0,
        2.. => -group,
        _ => return Err(Errno::ESRCH),
    };
    // SAFETY: takes integers only.
    result(unsafe { libc::kill(target, signal) }).map(drop)
}

fn send_to_thread(thread: libc::pid_t, signal: libc::c_int) -> Result<(), Errno> {
    // SAFETY: takes integers only.
    match unsafe { libc::syscall(libc::SYS_tkill, thread, signal) } {
        0 => Ok(()),
        _ => Err(last()),
    }
}

/// Calls `rt_sigqueueinfo(2)` or `rt_tgsigqueueinfo(2)`; `call` is the number
/// of the system call and the receiver.
fn queue(call: &[libc::c_long], info: &Info) -> Result<(), Errno> {
    let pointer = std::ptr::from_ref(info);
    let result = match *call {
        // SAFETY: `Info` is as long as the siginfo_t that the call reads.
        [call, process] => unsafe { libc::syscall(call, process, info.signal, pointer) },
        [call, process, thread] =>
        // SAFETY: as above.
        unsafe { libc::syscall(call, process, thread, info.signal, pointer) },
        _ => return Err(Errno::EINVAL),
    };
    match result {
        0 => Ok(()),
        _ => Err(last()),
    }
}

/// A `siginfo_t` with the member of its union that I/O uses (`sigaction(2)`).
/// Without padding, because the kernel reads every byte.
#[repr(C)]
struct Info {
    signal: libc::c_int,
    error: libc::c_int,
    code: libc::c_int,
    /// The union is aligned as a pointer.
    #[cfg(target_pointer_width = "64")]
    align: libc::c_int,
    band: libc::c_long,
    number: libc::c_int,
    rest: [libc::c_int; REST],
}

#[cfg(target_pointer_width = "64")]
const REST: usize = 25;
#[cfg(target_pointer_width = "32")]
const REST: usize = 27;
const _: () = assert!(size_of::<Info>() == size_of::<libc::siginfo_t>());

/// Makes a `siginfo_t` with `SI_SIGIO`, an `si_code` for programs. `POLL_IN`
/// would be `EPERM` from any thread but the first (kernel/signal.c,
/// `do_rt_sigqueueinfo`: codes of 0 or more are the kernel's).
fn info(target: &Target) -> Info {
    Info {
        signal: target.signal,
        error: target.error,
        code: libc::SI_SIGIO,
        #[cfg(target_pointer_width = "64")]
        align: 0,
        band: target.band,
        number: target.number,
        rest: [0; REST],
    }
}
