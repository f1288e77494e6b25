//! A userfaultfd without `O_NONBLOCK`, which always polls `POLLERR`.

use std::os::fd::{AsRawFd, FromRawFd};

use super::*;

/// The length of an event (`struct uffd_msg`).
const EVENT: u64 = 32;
const PAGE_FAULT: u8 = 0x12;

/// Makes a userfaultfd that blocks. `None`: the test is skipped.
fn userfaultfd() -> Option<OwnedFd> {
    const USER_MODE_ONLY: libc::c_int = 1;
    const API: libc::Ioctl = rustix::ioctl::opcode::read_write::<[u64; 3]>(0xAA, 0x3F) as _;
    // SAFETY: takes an integer.
    let made = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) };
    if made < 0 {
        let error = std::io::Error::last_os_error();
        testkit::skip::here(format!("no userfaultfd(2) here: {error}"));
        return None;
    }
    // SAFETY: the descriptor is new.
    let faults = unsafe { OwnedFd::from_raw_fd(made as i32) };
    let mut version: [u64; 3] = [0xAA, 0, 0];
    // SAFETY: UFFDIO_API reads and writes one struct uffdio_api.
    let done = unsafe { libc::ioctl(faults.as_raw_fd(), API, version.as_mut_ptr()) };
    assert_eq!(done, 0);
    Some(faults)
}

/// Whether it supports `RWF_NOWAIT`, as since Linux 6.10: a read of a part of an event fails
/// with `EINVAL` then.
fn can_be_read_without_waiting(faults: &OwnedFd) -> bool {
    use rustix::io::{Errno, IoSliceMut, ReadWriteFlags, preadv2};
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    preadv2(faults, &mut parts, u64::MAX, ReadWriteFlags::NOWAIT) == Err(Errno::INVAL)
}

#[test]
fn a_userfaultfd_without_events_is_idle() {
    let _dog = watchdog("a_userfaultfd_without_events_is_idle");
    let Some(faults) = userfaultfd() else {
        return;
    };
    if !can_be_read_without_waiting(&faults) {
        return testkit::skip::here("no RWF_NOWAIT on a userfaultfd here (since Linux 6.10)");
    }
    let sink = tempfile::tempfile().unwrap().into();
    for way in ["polled", "engine"] {
        let request = Request {
            idle: Some(Duration::from_millis(1)),
            ..any()
        };
        let report = by(way, &faults, &sink, request, false);
        assert_eq!(
            (report.ended, report.read),
            (Ended::Idle, 0),
            "{way}: {report:?}"
        );
    }
}

/// A page of memory whose first access is an event.
struct Page(*mut libc::c_void);

// SAFETY: nothing but the test below has the page.
unsafe impl Send for Page {}
// SAFETY: as above; it is only read.
unsafe impl Sync for Page {}

impl Page {
    const LENGTH: usize = 64 << 10;

    fn new(faults: &OwnedFd) -> Page {
        const REGISTER: libc::Ioctl = rustix::ioctl::opcode::read_write::<[u64; 4]>(0xAA, 0) as _;
        const MISSING: u64 = 1;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, where the kernel has room for one.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                Page::LENGTH,
                libc::PROT_READ,
                flags,
                -1,
                0,
            )
        };
        assert_ne!(page, libc::MAP_FAILED);
        let mut range = [page as u64, Page::LENGTH as u64, MISSING, 0];
        // SAFETY: UFFDIO_REGISTER reads and writes one struct uffdio_register.
        let done = unsafe { libc::ioctl(faults.as_raw_fd(), REGISTER, range.as_mut_ptr()) };
        assert_eq!(done, 0);
        Page(page)
    }

    fn touch(&self) -> u8 {
        // SAFETY: the page is mapped, and can be read once the fault is handled.
        unsafe { self.0.cast::<u8>().read_volatile() }
    }

    /// Ends the wait of the thread that has touched the page.
    fn handle_fault(&self, faults: &OwnedFd) {
        const ZERO: libc::Ioctl = rustix::ioctl::opcode::read_write::<[u64; 4]>(0xAA, 4) as _;
        let mut range = [self.0 as u64, Page::LENGTH as u64, 0, 0];
        // SAFETY: UFFDIO_ZEROPAGE reads and writes one struct uffdio_zeropage.
        let done = unsafe { libc::ioctl(faults.as_raw_fd(), ZERO, range.as_mut_ptr()) };
        assert_eq!(done, 0);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: no other thread has the page any more.
        unsafe { libc::munmap(self.0, Page::LENGTH) };
    }
}

/// Moves an event in each way. Returns without the rest if there is no userfaultfd.
fn events_are_moved() {
    for way in ["sleeping", "polled", "engine"] {
        let Some(faults) = userfaultfd() else {
            return;
        };
        let page = Page::new(&faults);
        let file = tempfile::tempfile().unwrap();
        let sink = file.try_clone().unwrap().into();
        let request = Request {
            size: EVENT.into(),
            ..any()
        };
        let report = std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(page.touch(), 0));
            let report = by(way, &faults, &sink, request, false);
            page.handle_fault(&faults);
            report
        });
        assert_eq!(
            (report.ended, report.written),
            (Ended::Size, EVENT),
            "{way}: {report:?}"
        );
        assert_eq!(content(&file).first(), Some(&PAGE_FAULT), "{way}");
    }
}

#[test]
fn an_event_of_a_userfaultfd_ends_the_wait() {
    let _dog = watchdog("an_event_of_a_userfaultfd_ends_the_wait");
    events_are_moved();
}

/// As before Linux 6.10, and with a filter.
#[test]
fn a_userfaultfd_is_read_without_rwf_nowait() {
    let _dog = watchdog("a_userfaultfd_is_read_without_rwf_nowait");
    for errno in [libc::EOPNOTSUPP, libc::EPERM] {
        testkit::refuse::apart(|| {
            testkit::refuse::refuse(&[libc::SYS_preadv2], errno);
            events_are_moved();
        });
    }
}
