//! Memory for blocks in flight: one mapping, divided into pieces.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::buffer::Buffer;
use crate::errno::Errno;

/// Bytes of the smallest piece. A mapping has at most 32, one for each bit of
/// the map.
const UNIT: usize = 256 << 10;
/// The size of the largest arena, in bytes.
pub(crate) const LARGEST_ARENA: usize = UNIT * 32;

/// One mapping, of which pieces of 256 KiB or more are taken and returned in
/// any order. A single mapping is registered with a ring once, whatever the
/// sizes of the blocks.
pub(crate) struct Arena {
    region: Arc<Region>,
}

struct Region {
    buffer: Buffer,
    units: u32,
    /// One bit for each unit that is taken.
    taken: AtomicU32,
}

/// A part of an arena, with exclusive access. Dropping it returns it. It keeps
/// the memory alive after the arena is dropped.
pub(crate) struct Piece {
    region: Arc<Region>,
    mask: u32,
    start: usize,
    length: usize,
}

thread_local! {
    /// Whether this thread keeps the memory of a dropped arena for the next
    /// one, in `SPARE`.
    static KEEPS: Cell<bool> = const { Cell::new(false) };
    static SPARE: RefCell<Option<Buffer>> = const { RefCell::new(None) };
}

/// Sets whether this thread keeps the memory of a dropped arena for the next
/// arena, so that the kernel need not clear new memory. `false` releases the
/// kept memory, which is 8 MiB at most.
pub(crate) fn keep_an_arena(keeps: bool) {
    KEEPS.set(keeps);
    if !keeps {
        SPARE.take();
    }
}

impl Arena {
    /// Makes an arena of this many bytes, rounded up to whole units.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, as `mmap(2)`.
    pub(crate) fn with_capacity(bytes: usize) -> Result<Arena, Errno> {
        let units = bytes.div_ceil(UNIT).clamp(1, 32);
        let spare = SPARE.try_with(RefCell::take).ok().flatten();
        let buffer = match spare.and_then(|spare| spare.resized(units * UNIT)) {
            Some(spare) => spare,
            None => Buffer::huge(units * UNIT)?,
        };
        let region = Region {
            buffer,
            units: units as u32,
            taken: AtomicU32::new(0),
        };
        Ok(Arena {
            region: Arc::new(region),
        })
    }

    /// Returns its size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.region.units as usize * UNIT
    }

    #[allow(dead_code, reason = "unused on architectures without io_uring")]
    pub(super) fn start(&self) -> *const u8 {
        self.region.buffer.as_ptr()
    }

    /// Takes a piece of this length; `None` while there is no room for it.
    pub(crate) fn take(&mut self, length: usize) -> Option<Piece> {
        let units = u32::try_from(length.div_ceil(UNIT).max(1)).ok()?;
        if units > self.region.units {
            return None;
        }
        let low = u32::MAX >> (32 - units);
        let taken = self.region.taken.load(Ordering::Acquire);
        // Each piece begins at a multiple of its own size, so that pieces of
        // several sizes do not leave gaps that are too small for any piece.
        let mut places = (0..=self.region.units - units).step_by(units as usize);
        let place = places.find(|place| taken & (low << place) == 0)?;
        let mask = low << place;
        // Other threads can only return units: taking one requires the arena
        // itself.
        self.region.taken.fetch_or(mask, Ordering::Relaxed);
        Some(Piece {
            region: Arc::clone(&self.region),
            mask,
            start: place as usize * UNIT,
            length,
        })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if KEEPS.try_with(Cell::get) == Ok(true)
            // No piece of it is in use.
            && let Some(region) = Arc::get_mut(&mut self.region)
        {
            let kept = std::mem::replace(&mut region.buffer, Buffer::none());
            let _ = SPARE.try_with(|spare| spare.replace(Some(kept)));
        }
    }
}

impl Piece {
    pub(super) fn as_raw(&self) -> *mut u8 {
        // Within the mapping, and exclusive, as `taken` records.
        self.region.buffer.as_raw().wrapping_add(self.start)
    }
}

impl Deref for Piece {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `length` bytes of the mapping from there on are this piece's
        // alone, and live as long as the region that it holds.
        unsafe { std::slice::from_raw_parts(self.as_raw(), self.length) }
    }
}

impl DerefMut for Piece {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the piece is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.as_raw(), self.length) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.region.taken.fetch_and(!self.mask, Ordering::Release);
    }
}

// SAFETY: the units of a region are handed out to one piece each, which is
// what makes writing through a shared region exclusive; the map is atomic.
unsafe impl Sync for Region {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_do_not_overlap_and_come_back() {
        let mut arena = Arena::with_capacity(LARGEST_ARENA).unwrap();
        let mut pieces: Vec<Piece> = std::iter::from_fn(|| arena.take(1 << 20)).collect();
        assert_eq!(pieces.len(), 8);
        for (index, piece) in pieces.iter_mut().enumerate() {
            assert_eq!(piece.len(), 1 << 20);
            piece.fill(index as u8);
        }
        for (index, piece) in pieces.iter().enumerate() {
            assert!(piece.iter().all(|byte| *byte == index as u8), "{index}");
        }
        assert!(arena.take(1).is_none());
        drop(pieces.remove(3));
        let small: Vec<Piece> = std::iter::from_fn(|| arena.take(UNIT)).collect();
        assert_eq!(small.len(), 4);
    }

    #[test]
    fn memory_is_kept_where_another_arena_follows() {
        keep_an_arena(true);
        let first = Arena::with_capacity(LARGEST_ARENA).unwrap();
        let start = first.start() as usize;
        drop(first);
        let mut second = Arena::with_capacity(1 << 20).unwrap();
        assert_eq!((second.start() as usize, second.len()), (start, 1 << 20));
        // The memory is not kept while a piece is in use. A longer arena gets
        // new memory.
        let piece = second.take(1).unwrap();
        drop(second);
        let third = Arena::with_capacity(LARGEST_ARENA).unwrap();
        assert_ne!(third.start() as usize, start);
        drop((piece, third));
        assert!(SPARE.with_borrow(Option::is_some));
        keep_an_arena(false);
        assert!(SPARE.with_borrow(Option::is_none));
    }

    #[test]
    fn a_piece_outlives_its_arena() {
        let mut arena = Arena::with_capacity(1).unwrap();
        assert_eq!(arena.len(), UNIT);
        assert!(arena.take(UNIT + 1).is_none());
        let mut piece = arena.take(10).unwrap();
        drop(arena);
        piece.fill(7);
        assert_eq!(&piece[..], [7; 10]);
    }
}
