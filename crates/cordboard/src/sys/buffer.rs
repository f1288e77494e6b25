//! A page-aligned buffer.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::mm::{
    Advice, MapFlags, MlockFlags, MprotectFlags, ProtFlags, madvise, mlock_with, mprotect,
};

use super::process::Stamp;
use crate::errno::Errno;

/// Anonymous memory of its own: page-aligned, as direct I/O wants it, and
/// neither cleared nor touched before its first use.
pub(crate) struct Buffer {
    start: NonNull<u8>,
    length: usize,
    /// Bytes of the mapping, which may have been made for a longer one.
    mapped: usize,
    /// The one process that has it; `None`: so do those forked from it.
    home: Option<Stamp>,
    /// Little of it is expected to be touched.
    sparse: bool,
}

// SAFETY: the mapping belongs to this value alone, as a Box<[u8]> would.
unsafe impl Send for Buffer {}

/// Bytes of a huge page on most machines; on others it is only an alignment.
const HUGE: usize = 2 << 20;
/// What is kept for the thread's next transfer. What a datagram batch needs is
/// too much.
const LARGEST_KEPT: usize = 2 << 20;
/// The same of what is hardly touched. It takes this many addresses and less
/// memory.
const LARGEST_SPARSE: usize = 5 << 20;

thread_local! {
    /// The last buffer this thread gave back: many small transfers in a row
    /// use one mapping.
    static SPARE: RefCell<Option<Buffer>> = const { RefCell::new(None) };
}

impl Buffer {
    /// At least this many bytes, rounded up to whole pages. `mmap(2)`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: more than there is, than there are addresses for, or than this
    /// process may lock.
    pub(crate) fn with_capacity(length: usize) -> Result<Buffer, Errno> {
        let length = length.max(1).checked_next_multiple_of(4096);
        let length = length
            .filter(|length| *length <= isize::MAX as usize)
            .ok_or(Errno::ENOMEM)?;
        if let Some(mut spare) =
            spare(|spare| spare.mapped >= length && (!spare.sparse || length <= LARGEST_KEPT))
        {
            // Not longer than asked for: how much is read at a time, and so
            // whether it stays in the processor's cache, goes by the length.
            spare.length = length;
            return Ok(spare);
        }
        Buffer::map(length)
    }

    /// Mostly for addresses: room for the longest message that there may be,
    /// where nearly all are short. In small pages, of which only those that are
    /// touched cost memory. Fewer bytes, `least`, where there are not so many.
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

    /// Memory of which the kernel provides no page before it is touched. It is
    /// mapped without access: where a process locks what it maps (`mlockall(2)`,
    /// `MCL_FUTURE`), the kernel provides all that is accessible at once.
    fn untouched(length: usize) -> Result<Buffer, Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let mut buffer = Buffer::map_with(length, ProtFlags::empty(), flags)?;
        buffer.sparse = true;
        let start = buffer.start.as_ptr().cast();
        // SAFETY: the range is this mapping, and no byte of it changes.
        let _ = unsafe { madvise(start, length, Advice::LinuxNoHugepage) };
        if buffer.is_locked() {
            // Before Linux 5.18 `mlock2(2)` is `ENOMEM` where there is no access
            // (`mm/gup.c`, `check_vma_flags`). To read alone brings no page.
            // SAFETY: as above; nothing borrows it yet.
            unsafe { mprotect(start, length, MprotectFlags::READ) }?;
            // It stays locked, each page from its first use on. Since Linux 4.4.
            // SAFETY: as above.
            unsafe { mlock_with(start, length, MlockFlags::ONFAULT) }?;
        }
        // SAFETY: as above; nothing borrows it yet.
        unsafe { mprotect(start, length, MprotectFlags::READ | MprotectFlags::WRITE) }?;
        Ok(buffer)
    }

    /// Asked before the first use: `MADV_DONTNEED` gives up what is there, and is
    /// refused for locked memory (`madvise(2)`, `EINVAL`).
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

    /// For direct I/O: not given to a child of `fork(2)`, where it could not be
    /// used (`open(2)`, NOTES), and where the kernel would have to copy what it
    /// reads into at that moment (`madvise(2)`, `MADV_DONTFORK`, since Linux
    /// 2.6.16). And in huge pages where the kernel has some to spare: a device is
    /// then told of a few long segments and not of hundreds of short ones,
    /// past whose limit it splits what it is asked for. `madvise(2)`,
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
        // SAFETY: as above; a child has no pointer to it but this value's, of
        // which `home` keeps it.
        unsafe { madvise(buffer.start.as_ptr().cast(), whole, Advice::LinuxDontFork) }?;
        buffer.home = Some(Stamp::here());
        buffer.length = length;
        Ok(buffer)
    }

    /// The same memory with this length, if it is this process's and as long.
    pub(super) fn resized(mut self, length: usize) -> Option<Buffer> {
        let here = self.home.is_none_or(Stamp::is_here);
        (here && length <= self.mapped).then(|| {
            self.length = length;
            self
        })
    }

    /// No memory at all.
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
            // More than this process may lock, where it locks what it maps
            // (`mmap(2)`, `mlockall(2)`). A socket's EAGAIN means something else.
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

    /// As many bytes as are to be had: `most`, or half of it where memory or
    /// addresses (`RLIMIT_AS`) do not suffice, and so on, but no fewer than
    /// `least`.
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

    /// Two mappings of one, the first of this length.
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

    /// Where it begins, for whoever keeps account of who uses which part.
    pub(super) fn as_raw(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// More of it was touched than is to be kept.
    pub(crate) fn is_not_sparse(&mut self) {
        self.sparse = false;
    }

    /// Gives it back for this thread's next transfer.
    pub(crate) fn recycle(self) {
        if self.mapped <= LARGEST_KEPT || self.sparse && self.mapped <= LARGEST_SPARSE {
            let _ = SPARE.try_with(|spare| spare.replace(Some(self)));
        }
    }
}

/// The thread's spare one, if it is like this; another is given up.
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
        // In a child, something else may be in its place by now.
        if self.mapped == 0 || self.home.is_some_and(|home| !home.is_here()) {
            return;
        }
        // SAFETY: unmaps exactly what was mapped; nothing borrows it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_are_addresses_for() {
        for length in [usize::MAX, usize::MAX - 4095, isize::MAX as usize] {
            assert_eq!(Buffer::with_capacity(length).err(), Some(Errno::ENOMEM));
        }
    }

    #[test]
    fn less_where_there_is_not_so_much() {
        let buffer = Buffer::at_most(isize::MAX as usize, 5000).unwrap();
        assert!(buffer.len() >= 8192 && buffer.len() < isize::MAX as usize);
        let none = Buffer::at_most(usize::MAX, isize::MAX as usize);
        assert_eq!(none.err(), Some(Errno::ENOMEM));
    }

    #[test]
    fn what_is_hardly_touched_is_kept() {
        let buffer = Buffer::sparse(4 << 20, 4096).unwrap();
        assert_eq!(buffer.len(), 4 << 20);
        let start = buffer.as_ptr();
        buffer.recycle();
        let mut again = Buffer::sparse(3 << 20, 4096).unwrap();
        assert_eq!((again.as_ptr(), again.len()), (start, 3 << 20));
        again.is_not_sparse();
        again.recycle();
        assert!(SPARE.take().is_none());
        // Small pages are not for what is touched.
        Buffer::sparse(4 << 20, 4096).unwrap().recycle();
        assert!(!Buffer::with_capacity(3 << 20).unwrap().sparse);
        // A 32-bit process may have as many addresses.
        if cfg!(target_pointer_width = "64") {
            let less = Buffer::sparse(isize::MAX as usize - 4095, 5000).unwrap();
            assert_eq!(less.len(), 8192);
        }
    }

    /// The calling process, a child, locks what it maps from now on.
    fn lock() -> bool {
        // SAFETY: takes an integer.
        unsafe { libc::mlockall(libc::MCL_FUTURE) == 0 }
    }

    /// `RLIMIT_MEMLOCK`, of a process without privilege that locks what it maps.
    #[test]
    fn less_where_no_more_may_be_locked() {
        use rustix::process::{Resource, Rlimit, setrlimit};
        use rustix::thread::set_thread_res_uid;
        let most = 1 << 20;
        let limited = || {
            let nobody = rustix::process::Uid::from_raw(65534);
            if rustix::process::geteuid().is_root() {
                set_thread_res_uid(nobody, nobody, nobody).unwrap();
            }
            let limit = Rlimit {
                current: Some(most),
                maximum: Some(most),
            };
            setrlimit(Resource::Memlock, limit).is_ok() && lock()
        };
        if !testkit::child::in_a_child(limited) {
            testkit::skip::here("mlockall(2) is refused, or so high a limit");
            return;
        }
        assert!(testkit::child::in_a_child(|| {
            assert!(limited());
            let some = Buffer::at_most(4 << 20, 4096).unwrap();
            assert!(some.len() >= 4096 && some.len() as u64 <= most);
            drop(some);
            let none = Buffer::at_most(4 << 20, 4 << 20);
            assert_eq!(none.err(), Some(Errno::ENOMEM));
            Buffer::sparse(64 << 20, 8192).unwrap().len() == 8192
        }));
    }

    /// By a process that locks what it maps: what is touched is locked.
    #[test]
    fn what_is_hardly_touched_is_not_filled_in() {
        if !rustix::process::geteuid().is_root() || !testkit::child::in_a_child(lock) {
            testkit::skip::here("mlockall(2) of so much takes root");
            return;
        }
        assert!(testkit::child::in_a_child(|| {
            assert!(lock());
            let whole = 64 << 20;
            let mut buffer = Buffer::sparse(whole, 4096).unwrap();
            assert_eq!(buffer.len(), whole);
            let page = rustix::param::page_size();
            let there = |buffer: &Buffer| {
                let mut pages = vec![0u8; whole / page];
                // SAFETY: fills in a byte a page of the range.
                let done = unsafe {
                    libc::mincore(buffer.as_raw().cast(), whole, pages.as_mut_ptr().cast())
                };
                assert_eq!(done, 0);
                pages.iter().filter(|page| **page & 1 == 1).count()
            };
            let before = there(&buffer);
            buffer[whole / 2] = 7;
            (before, there(&buffer)) == (0, 1) && buffer.is_locked()
        }));
    }

    #[test]
    fn aligned_and_reused() {
        let mut buffer = Buffer::with_capacity(100).unwrap();
        assert_eq!(buffer.as_ptr() as usize % 4096, 0);
        assert_eq!(buffer.len(), 4096);
        buffer[4095] = 7;
        let start = buffer.as_ptr();
        buffer.recycle();
        let again = Buffer::with_capacity(4096).unwrap();
        assert_eq!(again.as_ptr(), start);
        drop(again);
        Buffer::with_capacity(1 << 20).unwrap().recycle();
        let short = Buffer::with_capacity(4096).unwrap();
        assert_eq!(short.len(), 4096, "a longer one is not shown as such");
    }

    /// A child does not have it, and leaves alone what it has there instead.
    #[test]
    fn what_a_device_reads_into_is_not_forked() {
        let mut buffer = Buffer::huge(1 << 20).unwrap();
        buffer[0] = 7;
        let place = buffer.as_raw();
        let place = place as usize;
        assert!(testkit::child::in_a_child(|| {
            let mapped = || {
                // SAFETY: looks whether the page is mapped, and changes nothing.
                let unmapped = unsafe { libc::msync(place as *mut _, 4096, libc::MS_ASYNC) };
                unmapped == 0
            };
            let before = mapped();
            let (protection, flags) = (ProtFlags::READ, MapFlags::PRIVATE | MapFlags::FIXED);
            // SAFETY: nothing is mapped there, as has just been seen.
            let other = !before
                && unsafe { rustix::mm::mmap_anonymous(place as _, 4096, protection, flags) }
                    .is_ok();
            drop(buffer);
            other && mapped()
        }));
    }
}
