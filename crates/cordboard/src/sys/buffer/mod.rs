//! A page-aligned buffer.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::mm::{
    Advice, MapFlags, MlockFlags, MprotectFlags, ProtFlags, madvise, mlock_with, mprotect,
};

use super::process::Stamp;
use crate::errno::Errno;

/// Anonymous memory: page-aligned, as direct I/O requires, and not touched before
/// its first use.
pub(crate) struct Buffer {
    start: NonNull<u8>,
    length: usize,
    /// The length of the mapping in bytes; it may have been made for a longer
    /// buffer.
    mapped: usize,
    /// The only process that has the mapping; `None`: its children have it too.
    home: Option<Stamp>,
    /// Few of its pages are expected to be touched.
    sparse: bool,
}

// SAFETY: the mapping belongs to this value alone, as a Box<[u8]> would.
unsafe impl Send for Buffer {}

/// The size of a huge page on most machines, in bytes; only an alignment on
/// others.
const HUGE: usize = 2 << 20;
/// The size of the largest mapping that is kept for the thread's next transfer.
/// The mapping of a datagram batch is larger.
const LARGEST_KEPT: usize = 2 << 20;
/// The same for sparse mappings, which use less memory than addresses.
const LARGEST_SPARSE: usize = 5 << 20;

thread_local! {
    /// The last buffer this thread recycled: many small transfers in a row use
    /// one mapping.
    static SPARE: RefCell<Option<Buffer>> = const { RefCell::new(None) };
}

impl Buffer {
    /// Makes a buffer of at least this many bytes, rounded up to whole pages.
    /// `mmap(2)`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: the length exceeds the memory, the address space, or the memory
    /// that this process may lock.
    pub(crate) fn with_capacity(length: usize) -> Result<Buffer, Errno> {
        let length = length.max(1).checked_next_multiple_of(4096);
        let length = length
            .filter(|length| *length <= isize::MAX as usize)
            .ok_or(Errno::ENOMEM)?;
        if let Some(mut spare) =
            spare(|spare| spare.mapped >= length && (!spare.sparse || length <= LARGEST_KEPT))
        {
            // Not longer than requested: the length determines how many bytes are
            // read at a time, and so whether they stay in the processor's cache.
            spare.length = length;
            return Ok(spare);
        }
        Buffer::map(length)
    }

    /// Makes a buffer for the longest possible message, for sources whose
    /// messages are mostly short. It has small pages, of which only those that
    /// are touched use memory. It has `least` bytes if the address space is too
    /// small.
    ///
    /// # Errors
    ///
    /// As [`Buffer::with_capacity`].
    pub(crate) fn sparse(most: usize, least: usize) -> Result<Buffer, Errno> {
        let whole = most.checked_next_multiple_of(4096).ok_or(Errno::ENOMEM)?;
        if whole <= HUGE {
            return Buffer::at_most(most, least);
        }
        if let Some(mut spare) = spare(|spare| spare.sparse && spare.mapped >= whole) {
            spare.length = whole;
            return Ok(spare);
        }
        Buffer::untouched(whole).or_else(|_| Buffer::with_capacity(least))
    }

    /// Maps memory of which the kernel allocates each page when it is touched.
    /// Maps it without access at first: in a process that locks its mappings
    /// (`mlockall(2)`, `MCL_FUTURE`), the kernel allocates all pages of an
    /// accessible mapping at once.
    fn untouched(length: usize) -> Result<Buffer, Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let mut buffer = Buffer::map_with(length, ProtFlags::empty(), flags)?;
        buffer.sparse = true;
        let start = buffer.start.as_ptr().cast();
        // SAFETY: the range is this mapping, and no byte of it changes.
        let _ = unsafe { madvise(start, length, Advice::LinuxNoHugepage) };
        if buffer.is_locked() {
            // Before Linux 5.18 `mlock2(2)` of memory without access fails with
            // `ENOMEM` (`mm/gup.c`, `check_vma_flags`). Read access allocates no
            // page. SAFETY: as above; nothing borrows it yet.
            unsafe { mprotect(start, length, MprotectFlags::READ) }?;
            // The mapping stays locked, each page from its first use on. Since
            // Linux 4.4. SAFETY: as above.
            unsafe { mlock_with(start, length, MlockFlags::ONFAULT) }?;
        }
        // SAFETY: as above; nothing borrows it yet.
        unsafe { mprotect(start, length, MprotectFlags::READ | MprotectFlags::WRITE) }?;
        Ok(buffer)
    }

    /// Whether the mapping is locked. Must be called before the first use: the
    /// query, `MADV_DONTNEED`, discards the content. It is refused for locked
    /// memory (`madvise(2)`, `EINVAL`).
    fn is_locked(&self) -> bool {
        // SAFETY: the range is this mapping, which has not been used yet.
        let given_up = unsafe {
            madvise(
                self.start.as_ptr().cast(),
                self.mapped,
                Advice::LinuxDontNeed,
            )
        };
        given_up == Err(rustix::io::Errno::INVAL)
    }

    /// Makes a buffer for direct I/O. A child of `fork(2)` does not inherit it
    /// (`madvise(2)`, `MADV_DONTFORK`, since Linux 2.6.16): the child could not
    /// use it (`open(2)`, NOTES), and the kernel would have to copy the pages
    /// that a device reads into. It has huge pages if the kernel has some
    /// available: a request then has a few long segments instead of hundreds of
    /// short ones, and is not split because of the device's limit. `madvise(2)`,
    /// `MADV_HUGEPAGE`, since Linux 2.6.38.
    ///
    /// # Errors
    ///
    /// As [`Buffer::with_capacity`].
    pub(crate) fn huge(length: usize) -> Result<Buffer, Errno> {
        let whole = length.checked_next_multiple_of(HUGE).ok_or(Errno::ENOMEM)?;
        let wide = Buffer::map(whole.checked_add(HUGE).ok_or(Errno::ENOMEM)?)?;
        let gap = wide.start.as_ptr().align_offset(HUGE);
        let (_, rest) = wide.divide(gap);
        let (mut buffer, _) = rest.divide(whole);
        // SAFETY: the range is this mapping, and no byte of it changes.
        let _ = unsafe { madvise(buffer.start.as_ptr().cast(), whole, Advice::LinuxHugepage) };
        // SAFETY: as above; a child's only pointer to it is this value's, which
        // `home` guards.
        unsafe { madvise(buffer.start.as_ptr().cast(), whole, Advice::LinuxDontFork) }?;
        buffer.home = Some(Stamp::here());
        buffer.length = length;
        Ok(buffer)
    }

    /// Returns the same memory with this length, if it belongs to this process
    /// and is long enough.
    pub(super) fn resized(mut self, length: usize) -> Option<Buffer> {
        let here = self.home.is_none_or(Stamp::is_here);
        (here && length <= self.mapped).then(|| {
            self.length = length;
            self
        })
    }

    /// Makes a buffer without memory.
    pub(super) fn none() -> Buffer {
        Buffer {
            start: NonNull::dangling(),
            length: 0,
            mapped: 0,
            home: None,
            sparse: false,
        }
    }

    fn map(length: usize) -> Result<Buffer, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        Buffer::map_with(length, access, MapFlags::PRIVATE)
    }

    fn map_with(length: usize, access: ProtFlags, flags: MapFlags) -> Result<Buffer, Errno> {
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let start =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, access, flags) };
        let start = match start.map_err(Errno::from) {
            // The process locks its mappings, and may lock no more (`mmap(2)`,
            // `mlockall(2)`). The caller would take EAGAIN for that of a socket.
            Err(Errno::EAGAIN) => Err(Errno::ENOMEM),
            start => start,
        };
        match NonNull::new(start?.cast::<u8>()) {
            Some(start) => Ok(Buffer {
                start,
                length,
                mapped: length,
                home: None,
                sparse: false,
            }),
            None => Err(Errno::ENOMEM),
        }
    }

    /// Makes a buffer of `most` bytes. If memory or address space (`RLIMIT_AS`)
    /// does not suffice, tries half of that, and so on down to `least` bytes.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: not even `least`.
    pub(crate) fn at_most(most: usize, least: usize) -> Result<Buffer, Errno> {
        let mut length = most;
        loop {
            match Buffer::with_capacity(length) {
                Err(Errno::ENOMEM) if length > least => length = (length / 2).max(least),
                done => return done,
            }
        }
    }

    /// Splits the mapping into two, the first of this length.
    fn divide(self, at: usize) -> (Buffer, Buffer) {
        let this = std::mem::ManuallyDrop::new(self);
        let part = |start: usize, length: usize| Buffer {
            // SAFETY: within the mapping or at its end.
            start: unsafe { this.start.add(start) },
            length,
            mapped: length,
            home: None,
            sparse: false,
        };
        (part(0, at), part(at, this.mapped - at))
    }

    /// Returns the start of the memory, for a caller that tracks the use of its
    /// parts.
    pub(super) fn as_raw(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Marks the buffer as touched, so that it is not kept.
    pub(crate) fn is_not_sparse(&mut self) {
        self.sparse = false;
    }

    /// Keeps the buffer for this thread's next transfer.
    pub(crate) fn recycle(self) {
        if self.mapped <= LARGEST_KEPT || self.sparse && self.mapped <= LARGEST_SPARSE {
            let _ = SPARE.try_with(|spare| spare.replace(Some(self)));
        }
    }
}

/// Takes the thread's spare buffer if `fits` accepts it; unmaps it otherwise.
fn spare(fits: impl FnOnce(&Buffer) -> bool) -> Option<Buffer> {
    let spare = SPARE.try_with(|spare| spare.take()).ok().flatten();
    spare.filter(fits)
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is `length` bytes long, readable, zero-filled by
        // the kernel, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, writable, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // In a child, another mapping may be at this address.
        if self.mapped == 0 || self.home.is_some_and(|home| !home.is_here()) {
            return;
        }
        // SAFETY: unmaps exactly what was mapped; nothing borrows it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests;
