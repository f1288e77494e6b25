//! Telling a process by a signal, as the kernel tells of I/O.

use cordboard::Errno;

use super::done;

/// Who is to be told: `F_SETOWN`, `F_SETOWN_EX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Thread(libc::pid_t),
    Process(libc::pid_t),
    Group(libc::pid_t),
}

/// What is told, and to whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) owner: Owner,
    pub(crate) signal: libc::c_int,
    /// `si_fd`.
    pub(crate) number: libc::c_int,
    /// `si_band`: `POLLIN` and its like.
    pub(crate) band: libc::c_long,
    /// `si_errno`.
    pub(crate) error: libc::c_int,
}

/// Sends the signal, with a `siginfo_t` as the kernel fills it in for I/O. A
/// queue that is full (`RLIMIT_SIGPENDING`) makes it a plain SIGIO, as the
/// kernel does (`fcntl(2)`, `F_SETSIG`).
///
/// # Errors
///
/// `ESRCH`: the owner has exited; or the owner is group 1, and the caller is in
/// another group. `EPERM`: the owner's processes are another user's.
pub(crate) fn notify(target: &Target) -> Result<(), Errno> {
    let info = info(target);
    let here = std::process::id() as libc::pid_t;
    let sent = match target.owner {
        // A group can only be told without the rest.
        Owner::Group(group) => return to_group(group, target.signal),
        Owner::Process(process) => queue(&[libc::SYS_rt_sigqueueinfo, process.into()], &info),
        Owner::Thread(thread) => queue(
            &[libc::SYS_rt_tgsigqueueinfo, here.into(), thread.into()],
            &info,
        ),
    };
    match (sent, target.owner) {
        (Err(Errno::EAGAIN), Owner::Process(process)) => {
            // SAFETY: takes integers only.
            done(unsafe { libc::kill(process, libc::SIGIO) }).map(drop)
        }
        (Err(Errno::EAGAIN), Owner::Thread(thread)) => direct(thread, libc::SIGIO),
        // A thread of another process: its process is not known.
        (Err(Errno::ESRCH), Owner::Thread(thread)) => direct(thread, target.signal),
        (sent, _) => sent,
    }
}

/// To `kill(2)`, -1 is every process that may be signalled. So only a process in
/// group 1, the first group of a container, can signal that group, as 0.
fn to_group(group: libc::pid_t, signal: libc::c_int) -> Result<(), Errno> {
    // SAFETY: takes nothing and returns an integer.
    let own = unsafe { libc::getpgrp() };
    let target = match group {
        _ if group == own => 0,
        2.. => -group,
        _ => return Err(Errno::ESRCH),
    };
    // SAFETY: takes integers only.
    done(unsafe { libc::kill(target, signal) }).map(drop)
}

fn direct(thread: libc::pid_t, signal: libc::c_int) -> Result<(), Errno> {
    // SAFETY: takes integers only.
    match unsafe { libc::syscall(libc::SYS_tkill, thread, signal) } {
        0 => Ok(()),
        _ => Err(super::last()),
    }
}

/// `rt_sigqueueinfo(2)`, `rt_tgsigqueueinfo(2)`: the call's number and whom.
fn queue(call: &[libc::c_long], info: &Info) -> Result<(), Errno> {
    let pointer = std::ptr::from_ref(info);
    let result = match *call {
        // SAFETY: what it reads is as long as a siginfo_t.
        [call, process] => unsafe { libc::syscall(call, process, info.signal, pointer) },
        [call, process, thread] =>
        // SAFETY: the same.
        unsafe { libc::syscall(call, process, thread, info.signal, pointer) },
        _ => return Err(Errno::EINVAL),
    };
    match result {
        0 => Ok(()),
        _ => Err(super::last()),
    }
}

/// A `siginfo_t` with the branch of its union that I/O uses (`sigaction(2)`).
/// Without padding, since the kernel reads every byte.
#[repr(C)]
struct Info {
    signal: libc::c_int,
    error: libc::c_int,
    code: libc::c_int,
    /// The union begins at a multiple of a pointer's size.
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

/// Only the kernel itself may send `POLL_IN` from a thread other than the
/// first (kernel/signal.c, `do_rt_sigqueueinfo`: a code of 0 and more is
/// `EPERM` there); `SI_SIGIO` is the code it keeps for programs.
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

/// What `errno` is to the caller.
pub(crate) fn set_errno(errno: Errno) {
    // SAFETY: always the address of this thread's errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: valid for writing.
    unsafe { place.write(errno.raw()) };
}
