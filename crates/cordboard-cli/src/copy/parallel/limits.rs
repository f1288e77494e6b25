//! How many files are under way at once.
//!
//! Each has a thread or a place in the engine, and at most [`EACH`]
//! descriptors. It needs a buffer of 256 KiB, a private pipe of up to 1 MiB, or
//! up to 8 MiB for direct I/O, of which all files have 64 MiB together. So
//! descriptors and memory are bounded, whatever the size of a tree. If the
//! address space is limited, threads and buffers must leave some for small
//! allocations: one that fails ends the process.

use std::num::NonZeroUsize;

use crate::copy::directories::MOST_OPEN;
use crate::flags::Stages;
use crate::stages;
use crate::sys;

/// Batches under way are at most two for each slot, and this many more.
pub const SPARE: usize = 2;

/// Directories that the walk has left and that wait for files in them, at most.
pub const LEFT: usize = 4;

/// More files at once are not faster: the file system is the limit then.
const MOST: usize = 64;

/// Descriptors of one file: its two, two of the engine, and a pipe, or two for
/// direct I/O with a ring and its eventfd.
const EACH: u64 = 8;

/// Other open descriptors: the three standard ones, six that wake a thread or wait
/// for several descriptors, and a few inherited ones.
const OTHER_DESCRIPTORS: u64 = 13;

/// The address space of one file without that of its stages: a stack here, one of the engine,
/// and buffers.
const ADDRESSES: u64 = 4 << 20;

/// The address space of the rest: the engine's other threads, the lists of
/// files to copy, and the messages.
const OTHER_ADDRESSES: u64 = 16 << 20;

/// Returns the number of files at once: the requested number, or that of the
/// processors, but two to four; and no more than there are descriptors and
/// addresses for. The least is one: files are then copied one after the other.
pub fn slots(asked: Option<NonZeroUsize>, recursive: bool, stages: &Stages) -> usize {
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let wanted = asked.map_or(processors.clamp(2, 4), usize::from);
    /// The kernel's default (`INR_OPEN_CUR`), if a filter refuses the call.
    const USUAL: u64 = 1024;
    let limit = sys::most_descriptors().unwrap_or(USUAL);
    let limit = limit.saturating_sub(inherited_descriptors());
    let addresses = sys::addresses_left();
    if addresses.is_some() {
        sys::share_one_heap();
    }
    within(wanted, limit, recursive).min(with_addresses(addresses, stages::addresses(stages)))
}

/// Returns the number of open descriptors that [`OTHER_DESCRIPTORS`] does not
/// include; 0 without procfs.
fn inherited_descriptors() -> u64 {
    // The standard ones, that of the control, and the listing itself.
    const OWN: u64 = 5;
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |listed| listed.count() as u64);
    open.saturating_sub(OWN)
}

/// The number of files for which there are addresses. `stages`: those that the stages of one take.
fn with_addresses(left: Option<u64>, stages: u64) -> usize {
    let room = left.map_or(u64::MAX, |left| {
        left.saturating_sub(OTHER_ADDRESSES) / ADDRESSES.saturating_add(stages)
    });
    usize::try_from(room).unwrap_or(usize::MAX).max(1)
}

fn within(wanted: usize, limit: u64, recursive: bool) -> usize {
    let pair = |directories: usize| 2 * directories as u64;
    let (extras, each) = match recursive {
        // Each batch has its directory open, besides those of the walk.
        true => (
            OTHER_DESCRIPTORS + pair(MOST_OPEN + LEFT + SPARE),
            EACH + pair(2),
        ),
        false => (OTHER_DESCRIPTORS, EACH),
    };
    let room = limit.saturating_sub(extras) / each;
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    wanted.min(room).clamp(1, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_there_are_addresses_for() {
        assert_eq!(with_addresses(None, u64::MAX), usize::MAX);
        assert_eq!(with_addresses(Some(0), 0), 1);
        assert_eq!(with_addresses(Some(16 << 20), 0), 1);
        assert_eq!(with_addresses(Some(24 << 20), 0), 2);
        assert_eq!(with_addresses(Some(64 << 20), 12 << 20), 3);
        assert_eq!(with_addresses(Some(64 << 20), u64::MAX), 1);
    }

    #[test]
    fn as_many_as_there_are_descriptors_for() {
        assert_eq!(within(4, 1024, true), 4);
        assert_eq!(within(1, 1024, true), 1);
        assert_eq!(within(4, 48, true), 1);
        assert_eq!(within(4, 16, false), 1);
        assert_eq!(within(4, 0, true), 1);
        assert_eq!(within(4, 32, false), 2);
        assert_eq!(within(1000, u64::MAX, false), MOST);
        // Never more than allowed, however few.
        for limit in 80..200 {
            let slots = within(64, limit, true) as u64;
            let batches = SPARE as u64 + 2 * slots;
            let open = 2 * (MOST_OPEN + LEFT) as u64 + 2 * batches;
            assert!(OTHER_DESCRIPTORS + open + slots * EACH <= limit, "{limit}");
        }
    }
}
