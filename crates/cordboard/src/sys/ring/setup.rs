//! Making a ring of `io_uring(7)`, and what it is registered with.

use std::os::fd::{AsFd, AsRawFd};

use io_uring::IoUring;

use crate::errno::Errno;
use crate::sys::blocks::SLOTS;
use crate::sys::eventfd::EventFd;
use crate::sys::high::is_beyond;
use crate::sys::last_errno::last_errno;

pub(super) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

/// The kernel rings eventfds only (`io_eventfd_register` in io_uring/eventfd.c).
fn bell(ring: &IoUring) -> Result<EventFd, Errno> {
    let bell = EventFd::event()?;
    let rings = (ring.submitter()).register_eventfd(bell.as_fd().as_raw_fd());
    rings.map_err(|error| errno(&error))?;
    Ok(bell)
}

/// Whether a ring is to be had: sets one up and drops it.
///
/// # Errors
///
/// As [`super::Uring::new`].
pub(crate) fn try_io_uring() -> Result<(), Errno> {
    set_up().map(drop)
}

/// A ring, of a kernel that has `IORING_FEAT_RSRC_TAGS`, Linux 5.13: with the
/// links between requests (5.3), reads and writes of any memory (5.6), rings
/// that do not count as locked memory (5.12), and word of what is let go.
/// With what its completions ring.
pub(super) fn set_up() -> Result<(IoUring, EventFd), Errno> {
    let ring = made_beyond(build).map_err(|error| errno(&error))?;
    let bell = bell(&ring)?;
    try_to_enter(&ring)?;
    if ring.params().is_feature_resource_tagging() {
        Ok((ring, bell))
    } else {
        Err(Errno::ENOSYS)
    }
}

/// A filter may let rings be made and not be used. Anything but a plain refusal
/// is for whoever has something to hand over.
fn try_to_enter(ring: &IoUring) -> Result<(), Errno> {
    // SAFETY: nothing is queued, and the call has no argument of its own.
    let entered = unsafe { ring.submitter().enter::<libc::sigset_t>(0, 0, 0, None) };
    match entered.map_err(|error| errno(&error)) {
        Err(refused) if refused.is_refusal() => Err(refused),
        _ => Ok(()),
    }
}

/// `IORING_REGISTER_FILES2` of `io_uring_register(2)`, since Linux 5.13, with
/// what is told once each is let go.
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

/// What cannot be given another number once it is made: it is made again while
/// the lower ones are taken.
fn made_beyond<T: AsRawFd>(make: impl Fn() -> std::io::Result<T>) -> std::io::Result<T> {
    use rustix::event::epoll::{CreateFlags, create};
    let made = make()?;
    if is_beyond(&made) {
        return Ok(made);
    }
    drop(made);
    let mut taken = Vec::new();
    while taken.last().is_none_or(|last| !is_beyond(last)) {
        // Nothing can be read from it or written to it.
        taken.push(create(CreateFlags::CLOEXEC)?);
    }
    make()
}

/// `IORING_SETUP_SINGLE_ISSUER` and `IORING_SETUP_DEFER_TASKRUN`, since Linux
/// 6.1: completions are worked off when they are asked for and not in between.
/// Older kernels answer `EINVAL` to flags they do not know.
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

/// A call that a signal does not keep from its end.
pub(super) fn again<T>(mut call: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
