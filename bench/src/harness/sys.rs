//! System calls without a safe wrapper: waiting for a child with its processor
//! time, passing descriptors to it, private namespaces. Only this module, `ring`
//! and `mapping` contain `unsafe`.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};

use super::cpu::Cpu;

/// The first descriptor number that [`hand_over`] uses in a child.
pub const FIRST_INHERITED: i32 = 3;
const LAST_INHERITED: i32 = 12;

/// Waits for a child; its status, and the processor time of it and its reaped
/// children. `wait4(2)`.
pub fn wait_with_usage(pid: u32) -> io::Result<(ExitStatus, Cpu)> {
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    let mut status = 0;
    loop {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: both pointers are valid for writing values of their type.
        let got = unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) };
        if got == pid {
            // SAFETY: a zeroed rusage is valid, and wait4 has written it.
            let usage = unsafe { usage.assume_init() };
            let cpu = Cpu {
                user: seconds(usage.ru_utime),
                system: seconds(usage.ru_stime),
            };
            return Ok((ExitStatus::from_raw(status), cpu));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// The number of voluntary context switches of this process. `getrusage(2)`.
pub fn voluntary_switches() -> io::Result<i64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is valid for writing a value of its type.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a zeroed rusage is valid, and getrusage has written it.
    let usage = unsafe { usage.assume_init() };
    Ok(usage.ru_nvcsw)
}

/// The seconds since the epoch. `gettimeofday(2)`, which the paper on `cue()`
/// calls in a loop.
pub fn time_of_day() -> i64 {
    let mut time = std::mem::MaybeUninit::<libc::timeval>::zeroed();
    // SAFETY: the pointer is valid for writing a value of its type; no time zone
    // is asked for.
    unsafe { libc::gettimeofday(time.as_mut_ptr(), std::ptr::null_mut()) };
    // SAFETY: a zeroed timeval is valid.
    unsafe { time.assume_init() }.tv_sec
}

/// The capacity of a pipe; `None` if the descriptor is not a pipe. `fcntl(2)`.
pub fn pipe_capacity(number: i32) -> Option<usize> {
    // SAFETY: F_GETPIPE_SZ takes and returns integers, and fails with EBADF if
    // the descriptor is not a pipe.
    let capacity = unsafe { libc::fcntl(number, libc::F_GETPIPE_SZ) };
    usize::try_from(capacity).ok()
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Installs handlers: `SIGINT` and `SIGTERM` only request an early end, so that
/// files and mounts are removed. `sigaction(2)`.
pub fn end_orderly_on_signals() -> io::Result<()> {
    extern "C" fn note(_: libc::c_int) {
        INTERRUPTED.store(true, Ordering::Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        let fields = action.as_mut_ptr();
        // SAFETY: a zeroed sigaction is valid: an empty mask and no flags.
        let fields = unsafe { &mut *fields };
        fields.sa_sigaction = note as *const () as libc::sighandler_t;
        // SAFETY: the handler only stores to an atomic; `fields` is valid.
        if unsafe { libc::sigaction(signal, fields, std::ptr::null_mut()) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Whether a signal has requested an early end.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

fn seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}

/// Occupies descriptors 3 to 12 until the process ends, so that [`hand_over`]
/// can use these numbers in a child without replacing another descriptor.
pub fn reserve_low_descriptors() -> io::Result<()> {
    loop {
        let null = OwnedFd::from(std::fs::File::open("/dev/null")?);
        if null.as_raw_fd() > LAST_INHERITED {
            return Ok(());
        }
        std::mem::forget(null);
    }
}

/// Makes `command` inherit these as descriptors 3, 4, …
///
/// # Panics
///
/// If [`reserve_low_descriptors`] was not called before they were opened.
pub fn hand_over(command: &mut Command, descriptors: Vec<OwnedFd>) {
    for fd in &descriptors {
        assert!(
            fd.as_raw_fd() > LAST_INHERITED,
            "reserve_low_descriptors was not called first"
        );
    }
    let place = move || {
        for (target, fd) in (FIRST_INHERITED..).zip(&descriptors) {
            // SAFETY: dup2 takes integers; the target is a reserved number,
            // which nothing else in this process uses.
            if unsafe { libc::dup2(fd.as_raw_fd(), target) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the closure runs between fork and exec and calls only dup2,
    // which is async-signal-safe; it allocates nothing.
    unsafe { command.pre_exec(place) };
}

/// Descriptor `number`, which this process has inherited.
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD takes an integer and fails with EBADF if it is not open.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, was inherited, and the baselines take each number
    // once.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Gives this process a private mount namespace: its mounts end with it, even
/// if it is killed. `unshare(2)`, root only.
pub fn private_mounts() -> io::Result<()> {
    // SAFETY: CLONE_NEWNS changes no memory of this process.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } < 0 {
        return Err(io::Error::last_os_error());
    }
    use rustix::mount::MountPropagationFlags as Flags;
    rustix::mount::mount_change("/", Flags::PRIVATE | Flags::REC)?;
    Ok(())
}
