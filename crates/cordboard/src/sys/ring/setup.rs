//! Setup of an `io_uring(7)` ring, and its registrations.

use std::os::fd::{AsFd, AsRawFd};

use io_uring::IoUring;

use crate::errno::Errno;
use crate::sys::blocks::SLOTS;
use crate::sys::high::is_beyond;
use crate::sys::last_errno::last_errno;
use crate::sys::wake_fd::WakeFd;

pub(super) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

/// Makes the eventfd of the ring's completions. The kernel accepts no pipe in
/// its place (`io_eventfd_register` in io_uring/eventfd.c).
fn completion_event(ring: &IoUring) -> Result<WakeFd, Errno> {
    let event = WakeFd::event()?;
    let registered = (ring.submitter()).register_eventfd(event.as_fd().as_raw_fd());
    registered.map_err(|error| errno(&error))?;
    Ok(event)
}

/// Checks whether a ring is available: sets one up and drops it.
///
/// # Errors
///
/// As [`super::Uring::new`].
pub(crate) fn try_io_uring() -> Result<(), Errno> {
    set_up().map(drop)
}

/// Sets up a ring, and the eventfd of its completions. Requires
/// `IORING_FEAT_RSRC_TAGS`, Linux 5.13, which implies linked requests (5.3),
/// reads and writes of any memory (5.6), rings that do not count as locked
/// memory (5.12), and tags that complete once a resource is released.
pub(super) fn set_up() -> Result<(IoUring, WakeFd), Errno> {
    let ring = made_beyond(build).map_err(|error| errno(&error))?;
    let event = completion_event(&ring)?;
    try_to_enter(&ring)?;
    if ring.params().is_feature_resource_tagging() {
        Ok((ring, event))
    } else {
        Err(Errno::ENOSYS)
    }
}

/// Checks that `io_uring_enter(2)` is not refused: a filter may allow
/// `io_uring_setup(2)` alone. Other errors are left to the first submission.
fn try_to_enter(ring: &IoUring) -> Result<(), Errno> {
    // SAFETY: nothing is queued, and the call has no argument of its own.
    let entered = unsafe { ring.submitter().enter::<libc::sigset_t>(0, 0, 0, None) };
    match entered.map_err(|error| errno(&error)) {
        Err(refused) if refused.is_refusal() => Err(refused),
        _ => Ok(()),
    }
}

/// `IORING_REGISTER_FILES2` of `io_uring_register(2)`, since Linux 5.13, with
/// the tags that complete once each file is released.
pub(super) fn register_files(ring: &IoUring, files: [i32; 3], tags: [u64; 3]) -> Result<(), Errno> {
    const REGISTER_FILES2: libc::c_uint = 13;
    /// `struct io_uring_rsrc_register`.
    #[repr(C)]
    struct Files {
        count: u32,
        flags: u32,
        reserved: u64,
        files: u64,
        tags: u64,
    }
    let all = Files {
        count: files.len() as u32,
        flags: 0,
        reserved: 0,
        files: files.as_ptr() as u64,
        tags: tags.as_ptr() as u64,
    };
    let (ring, size) = (ring.as_raw_fd(), std::mem::size_of::<Files>());
    // SAFETY: the kernel reads the structure and both arrays, which outlive
    // the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring,
            REGISTER_FILES2,
            &raw const all,
            size,
        )
    };
    if done < 0 { Err(last_errno()) } else { Ok(()) }
}

/// Makes a descriptor with a number above 2. For a descriptor that must not be
/// duplicated: makes it again while the lower numbers are taken.
fn made_beyond<T: AsRawFd>(make: impl Fn() -> std::io::Result<T>) -> std::io::Result<T> {
    use rustix::event::epoll::{CreateFlags, create};
    let made = make()?;
    if is_beyond(&made) {
        return Ok(made);
    }
    drop(made);
    let mut taken = Vec::new();
    while taken.last().is_none_or(|last| !is_beyond(last)) {
        // An epoll instance can be neither read nor written.
        taken.push(create(CreateFlags::CLOEXEC)?);
    }
    make()
}

/// `IORING_SETUP_SINGLE_ISSUER` and `IORING_SETUP_DEFER_TASKRUN`, since Linux
/// 6.1: the kernel processes completions only in `io_uring_enter(2)`. Older
/// kernels return `EINVAL` for flags they do not know.
fn build() -> std::io::Result<IoUring> {
    let entries = SLOTS as u32 * 2;
    let deferred = IoUring::builder()
        .dontfork()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(entries);
    match deferred {
        Err(error) if errno(&error) == Errno::EINVAL => {
            IoUring::builder().dontfork().build(entries)
        }
        done => done,
    }
}

/// Repeats a call while it returns `EINTR`.
pub(super) fn again<T>(mut call: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
