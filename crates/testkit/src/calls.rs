//! Counts system calls, by `ptrace(2)`.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

// The libc crate has these with a type that depends on the C library.
const SYSCALL: u32 = 24;
const SETOPTIONS: u32 = 0x4200;
const GET_SYSCALL_INFO: u32 = 0x420e;

/// Runs `what` in a child of this process, as [`crate::child::in_a_child`] does, and
/// returns the number of system calls that the child's thread makes.
///
/// # Errors
///
/// Those of `ptrace(2)`, which may be forbidden. It needs `PTRACE_GET_SYSCALL_INFO`,
/// since Linux 5.3.
///
/// # Panics
///
/// If `what` returns false or panics in the child.
pub fn count(what: impl FnOnce() -> bool) -> io::Result<usize> {
    const REFUSED: libc::c_int = 111;
    let _held = crate::child::with_child();
    let parent = std::process::id();
    // SAFETY: the child runs the given function, and ends below.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    if child == 0 {
        crate::child::ends_with(parent);
        // SAFETY: takes integers; the arguments that it ignores are 0.
        let traced = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
        // SAFETY: stops the child until the parent resumes it.
        let stopped = traced == 0 && unsafe { libc::raise(libc::SIGSTOP) } == 0;
        let status = match stopped {
            true => i32::from(!catch_unwind(AssertUnwindSafe(what)).unwrap_or(false)),
            false => REFUSED,
        };
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(status) };
    }
    let mut entered = 0;
    let mut begun = false;
    loop {
        let mut status = 0;
        // SAFETY: waits for the child just made.
        let waited = unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(waited, child);
        if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == REFUSED {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        }
        if !libc::WIFSTOPPED(status) {
            assert_eq!(status, 0, "the child failed");
            return Ok(entered);
        }
        let mut signal = libc::WSTOPSIG(status);
        if !begun {
            begun = true;
            signal = 0;
            trace(SETOPTIONS, child, 0, libc::PTRACE_O_TRACESYSGOOD as usize)?;
        } else if signal == libc::SIGTRAP | 0x80 {
            signal = 0;
            entered += usize::from(is_entry(child)?);
        }
        trace(SYSCALL, child, 0, signal as usize)?;
    }
}

/// Whether the child is stopped before a call, not after one.
fn is_entry(child: libc::pid_t) -> io::Result<bool> {
    const ENTRY: u8 = 1;
    // struct ptrace_syscall_info, whose first byte is the kind of stop.
    let mut info = [0u8; 128];
    let address = info.as_mut_ptr() as usize;
    trace(GET_SYSCALL_INFO, child, info.len(), address)?;
    Ok(info[0] == ENTRY)
}

fn trace(request: u32, child: libc::pid_t, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: the child is stopped; `data` is null or points to at least `address`
    // bytes.
    let done = unsafe { libc::ptrace(request as _, child, address, data) };
    if done >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    // SAFETY: takes integers; a child that cannot be traced must end.
    unsafe { libc::kill(child, libc::SIGKILL) };
    // SAFETY: waits for the child.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    Err(error)
}
