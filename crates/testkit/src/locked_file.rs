//! A file whose lock a thread holds, so that every write to it waits.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::thread::JoinHandle;

/// `UFFDIO_API` and `UFFDIO_REGISTER` (linux/userfaultfd.h).
const API: libc::Ioctl = rustix::ioctl::opcode::read_write::<[u64; 3]>(0xAA, 0x3F) as _;
const REGISTER: libc::Ioctl = rustix::ioctl::opcode::read_write::<[u64; 4]>(0xAA, 0) as _;
const VERSION: u64 = 0xAA;
const MODE_MISSING: u64 = 1;
/// The length of `struct uffd_msg`.
const EVENT: usize = 32;
/// A multiple of each page size.
const LENGTH: usize = 64 << 10;

/// A file in memory whose inode is locked. A write holds the lock while it copies the bytes
/// (`generic_file_write_iter`, mm/filemap.c), and the page fault of these bytes is not handled
/// until the release (userfaultfd(2)). Other writes to the file wait for the lock, and no
/// signal interrupts them.
#[derive(Debug)]
pub struct LockedFile {
    /// The file.
    pub file: File,
    faults: OwnedFd,
    holder: JoinHandle<()>,
}

impl LockedFile {
    /// Makes an empty file, and locks it. `at`: the offset of the byte that the holder of the
    /// lock writes after the release.
    ///
    /// # Errors
    ///
    /// `EPERM`, `ENOSYS` and others: faults in system calls cannot be held here.
    ///
    /// # Panics
    ///
    /// If no memory is available.
    pub fn new(at: u64) -> io::Result<LockedFile> {
        // Not on a file system whose writes take other locks.
        let made = rustix::fs::memfd_create("locked", rustix::fs::MemfdFlags::CLOEXEC)?;
        let (file, faults) = (File::from(made), userfaultfd()?);
        let page = Page::new(&faults)?;
        let sink = file.try_clone()?;
        let holder = std::thread::spawn(move || {
            assert_eq!(sink.write_at(page.bytes(), at).unwrap(), 1);
        });
        // The fault occurs below the lock.
        let mut event = [0; EVENT];
        assert_eq!(rustix::io::read(&faults, &mut event)?, EVENT);
        Ok(LockedFile {
            file,
            faults,
            holder,
        })
    }

    /// Has the holder write one byte of 0 and release the lock.
    ///
    /// # Panics
    ///
    /// If the holder has panicked.
    pub fn release(self) -> File {
        // Ends the wait of the fault (`userfaultfd_release`, fs/userfaultfd.c).
        drop(self.faults);
        self.holder.join().unwrap();
        self.file
    }
}

/// Makes a userfaultfd that also gets the faults of system calls: without CAP_SYS_PTRACE, only
/// if `vm.unprivileged_userfaultfd` is 1 (userfaultfd(2)).
fn userfaultfd() -> io::Result<OwnedFd> {
    // SAFETY: takes an integer.
    let made = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new.
    let faults = unsafe { OwnedFd::from_raw_fd(made as i32) };
    let mut version: [u64; 3] = [VERSION, 0, 0];
    // SAFETY: UFFDIO_API reads and writes one struct uffdio_api.
    match unsafe { libc::ioctl(faults.as_raw_fd(), API, version.as_mut_ptr()) } {
        0 => Ok(faults),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Memory whose first access is a fault.
struct Page(*mut libc::c_void);

// SAFETY: nothing else has the memory, which is mapped until the page is dropped.
unsafe impl Send for Page {}

impl Page {
    fn new(faults: &OwnedFd) -> io::Result<Page> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let (null, read) = (std::ptr::null_mut(), libc::PROT_READ);
        // SAFETY: a new mapping, where the kernel has room for one.
        let page = unsafe { libc::mmap(null, LENGTH, read, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = Page(page);
        let mut range = [page.0 as u64, LENGTH as u64, MODE_MISSING, 0];
        // SAFETY: UFFDIO_REGISTER reads and writes one struct uffdio_register.
        match unsafe { libc::ioctl(faults.as_raw_fd(), REGISTER, range.as_mut_ptr()) } {
            0 => Ok(page),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is mapped for as long as the page lives.
        unsafe { std::slice::from_raw_parts(self.0.cast(), 1) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: nothing else has the memory.
        unsafe { libc::munmap(self.0, LENGTH) };
    }
}
