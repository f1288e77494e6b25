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
/// does (`fcntl(2)`, `F_SETSIG`). If a filter refuses `rt_sigqueueinfo(2)` or
/// `rt_tgsigqueueinfo(2)`, sends the signal without these fields.
///
/// # Errors
///
/// * `ESRCH`: the owner has exited, or the owner is group 1 and the caller is
///   not in it.
/// * `EPERM`: the owner's processes belong to another user.
/// * The errno of a filter that refuses the plain signal, too.
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
    let plain = match sent {
        Err(Errno::EAGAIN) => libc::SIGIO,
        // The thread belongs to another process, whose id is unknown; or a filter refuses the
        // call. The plain call returns any other error again.
        Err(_) => target.signal,
        Ok(()) => return Ok(()),
    };
    match target.owner {
        Owner::Process(process) => send_to_process(process, plain),
        Owner::Thread(thread) => send_to_thread(thread, plain),
        Owner::Group(group) => send_to_group(group, plain),
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

fn send_to_process(process: libc::pid_t, signal: libc::c_int) -> Result<(), Errno> {
    // SAFETY: takes integers only.
    result(unsafe { libc::kill(process, signal) }).map(drop)
}

/// Sends a signal to a thread: of this process, else of another one.
fn send_to_thread(thread: libc::pid_t, signal: libc::c_int) -> Result<(), Errno> {
    let here = std::process::id() as libc::pid_t;
    // SAFETY: takes integers only.
    if unsafe { libc::syscall(libc::SYS_tgkill, here, thread, signal) } == 0 {
        return Ok(());
    }
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

#[cfg(test)]
mod tests {
    use testkit::child;
    use testkit::refuse::refuse;

    use super::*;

    /// Blocks a signal in this thread, and returns the set with it.
    fn blocked(signal: libc::c_int) -> libc::sigset_t {
        let mut set = std::mem::MaybeUninit::uninit();
        // SAFETY: valid for one sigset_t.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: initialized above.
        unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
        // SAFETY: initialized above.
        let set = unsafe { set.assume_init() };
        // SAFETY: the first pointer is valid, and the other one may be null.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        set
    }

    /// Takes a signal of the set that is pending, and returns it; -1 if there is none.
    fn taken(set: &libc::sigset_t) -> libc::c_int {
        let now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the pointers are valid, and that of the siginfo_t may be null.
        unsafe { libc::sigtimedwait(set, std::ptr::null_mut(), &raw const now) }
    }

    /// A program of the paper sleeps until the signal arrives.
    #[test]
    fn a_plain_signal_is_sent_where_one_with_information_is_refused() {
        let refused = [
            &[libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo][..],
            &[
                libc::SYS_rt_sigqueueinfo,
                libc::SYS_rt_tgsigqueueinfo,
                libc::SYS_tkill,
            ],
            &[
                libc::SYS_rt_sigqueueinfo,
                libc::SYS_rt_tgsigqueueinfo,
                libc::SYS_tgkill,
            ],
        ];
        for errno in [libc::EPERM, libc::ENOSYS, libc::EACCES, libc::EINVAL] {
            for refused in refused {
                assert!(child::in_a_child(|| {
                    let signal = libc::SIGRTMIN() + 1;
                    let set = blocked(signal);
                    refuse(refused, errno);
                    let here = std::process::id() as libc::pid_t;
                    // The process has one thread.
                    [Owner::Process(here), Owner::Thread(here)]
                        .into_iter()
                        .all(|owner| {
                            let target = Target {
                                owner,
                                signal,
                                number: 0,
                                band: 0,
                                error: 0,
                            };
                            notify(&target) == Ok(()) && taken(&set) == signal
                        })
                }));
            }
        }
    }
}
