//! A page-aligned buffer.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::mm::{
    Advice, MapFlags, MlockFlags, MprotectFlags, ProtFlags, madvise, mlock_with, mprotect,
};

use super::process::Stamp;
use crate::errno::Errno;

/// Anonymous memory: page-aligned, as direct I/O requires, and neither cleared
/// nor touched before its first use.
pub(crate) struct Buffer {
    start: NonNull<u8>,
    length: usize,
    /// Bytes of the mapping, which may have been made for a longer buffer.
    mapped: usize,
    /// The only process that has it; `None`: processes forked from it have it
    /// too.
    home: Option<Stamp>,
    /// Little of it is expected to be touched.
    sparse: bool,
}

// SAFETY: the mapping belongs to this value alone, as a Box<[u8]> would.
unsafe impl Send for Buffer {}

/// Bytes of a huge page on most machines; only an alignment on others.
const HUGE: usize = 2 << 20;
/// The largest mapping kept for the thread's next transfer. That of a datagram
/// batch is larger.
const LARGEST_KEPT: usize = 2 << 20;
/// The same for sparse mappings, which take this many addresses and less
/// memory.
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
    /// `ENOMEM`: more than the memory, the addresses, or the memory that this
    /// process may lock.
    pub(crate) fn with_capacity(length: usize) -> Result<Buffer, Errno> {
        let length = length.max(1).checked_next_multiple_of(4096);
        let length = length
            .filter(|length| *length <= isize::MAX as usize)
            .ok_or(Errno::ENOMEM)?;
        if let Some(mut spare) =
            spare(|spare| spare.mapped >= length && (!spare.sparse || length <= LARGEST_KEPT))
        {
            // Not longer than requested: the length determines how much is read
            // at a time, and so whether it stays in the processor's cache.
            spare.length = length;
            return Ok(spare);
        }
        Buffer::map(length)
    }

    /// Makes room for the longest possible message, where nearly all are short:
    /// in small pages, of which only those that are touched cost memory. Fewer
    /// bytes, `least`, if there are not so many addresses.
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

    /// Maps memory of which the kernel provides no page before it is touched.
    /// It is mapped without access: in a process that locks its mappings
    /// (`mlockall(2)`, `MCL_FUTURE`), the kernel provides all that is
    /// accessible at once.
    fn untouched(length: usize) -> Result<Buffer, Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let mut buffer = Buffer::map_with(length, ProtFlags::empty(), flags)?;
        buffer.sparse = true;
        let start = buffer.start.as_ptr().cast();
        // SAFETY: the range is this mapping, and no byte of it changes.
        let _ = unsafe { madvise(start, length, Advice::LinuxNoHugepage) };
        if buffer.is_locked() {
            // Before Linux 5.18 `mlock2(2)` is `ENOMEM` without access
            // (`mm/gup.c`, `check_vma_flags`). Read access provides no page.
            // SAFETY: as above; nothing borrows it yet.
            unsafe { mprotect(start, length, MprotectFlags::READ) }?;
            // It stays locked, each page from its first use on. Since Linux
            // 4.4.
            // SAFETY: as above.
            unsafe { mlock_with(start, length, MlockFlags::ONFAULT) }?;
        }
        // SAFETY: as above; nothing borrows it yet.
        unsafe { mprotect(start, length, MprotectFlags::READ | MprotectFlags::WRITE) }?;
        Ok(buffer)
    }

    /// Whether it is locked, queried before the first use: `MADV_DONTNEED`
    /// discards the content, and is refused for locked memory (`madvise(2)`,
    /// `EINVAL`).
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

    /// Makes a buffer for direct I/O. It is not inherited by a child of
    /// `fork(2)`, where it could not be used (`open(2)`, NOTES), and where the
    /// kernel would have to copy pages that it reads into (`madvise(2)`,
    /// `MADV_DONTFORK`, since Linux 2.6.16). It has huge pages if the kernel
    /// has some to spare: a device then gets a few long segments instead of
    /// hundreds of short ones, past whose limit it splits the request.
    /// `madvise(2)`, `MADV_HUGEPAGE`, since Linux 2.6.38.
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
    /// and is as long.
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
            // More than this process may lock, if it locks its mappings
            // (`mmap(2)`, `mlockall(2)`). A socket's EAGAIN means something
            // else.
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

    /// Makes a buffer of `most` bytes, or half of it if memory or addresses
    /// (`RLIMIT_AS`) do not suffice, and so on, but no fewer than `least`.
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

    /// Splits one mapping into two, the first of this length.
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

    /// Returns its start, for a caller that tracks the use of its parts.
    pub(super) fn as_raw(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Marks it as touched, so that it is not kept.
    pub(crate) fn is_not_sparse(&mut self) {
        self.sparse = false;
    }

    /// Keeps it for this thread's next transfer.
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
        // In a child, another mapping may be at its address.
        if self.mapped == 0 || self.home.is_some_and(|home| !home.is_here()) {
            return;
        }
        // SAFETY: unmaps exactly what was mapped; nothing borrows it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests;
