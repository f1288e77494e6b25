//! Signals, queued for the calling thread.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

/// Signals that are blocked and queued for this thread. Dropping this removes them from
/// the queue.
#[derive(Debug)]
pub(super) struct Signals {
    set: Mask,
    before: Mask,
}

#[derive(Clone, Copy)]
struct Mask(libc::sigset_t);

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mask")
    }
}

impl Signals {
    pub(super) fn queue(count: u64) -> io::Result<Signals> {
        let signal = libc::SIGRTMIN() + 3;
        let set = Mask(one(signal));
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: both pointers are to whole signal sets.
        let done = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set.0, before.as_mut_ptr())
        };
        if done != 0 {
            return Err(io::Error::from_raw_os_error(done));
        }
        // SAFETY: zeroed, and then filled in by pthread_sigmask.
        let before = Mask(unsafe { before.assume_init() });
        let signals = Signals { set, before };
        for value in 0..count {
            send(signal, u32::try_from(value).map_err(io::Error::other)?)?;
        }
        Ok(signals)
    }

    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        // SAFETY: the pointer is to a whole signal set; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const self.set.0, libc::SFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nothing else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // A signal left on the queue would end the process once it is unblocked.
        if let Ok(fd) = self.descriptor() {
            let _ = crate::wire::set_nonblocking(fd.as_fd(), true);
            let mut records = [0u8; 4096];
            while rustix::io::read(&fd, &mut records).is_ok_and(|n| n > 0) {}
        }
        // SAFETY: the pointer is to a whole signal set.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before.0,
                std::ptr::null_mut(),
            )
        };
    }
}

fn one(signal: i32) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the pointer is to a whole signal set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the pointer is to a whole signal set, initialised above.
    unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    // SAFETY: initialised by sigemptyset.
    unsafe { set.assume_init() }
}

/// Queues a signal with a value for the calling thread:
/// `rt_tgsigqueueinfo(2)`, since Linux 2.6.31.
fn send(signal: i32, value: u32) -> io::Result<()> {
    const SI_QUEUE: i32 = -1;
    // siginfo_t: signal, errno, code; then, where a pointer may stand, pid, uid,
    // value.
    let union = if cfg!(target_pointer_width = "64") {
        4
    } else {
        3
    };
    let mut info = [0u32; 32];
    info[0] = signal.cast_unsigned();
    info[2] = SI_QUEUE.cast_unsigned();
    info[union] = std::process::id();
    info[union + 2] = value;
    let process = std::process::id();
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    // SAFETY: the pointer is to the 128 bytes of a siginfo_t.
    let done = unsafe {
        libc::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            process,
            thread,
            signal,
            info.as_ptr(),
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
