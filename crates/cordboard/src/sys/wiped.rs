//! A page that each `fork(2)` wipes in the child: `madvise(2)`,
//! `MADV_WIPEONFORK`, since Linux 4.14.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The number of futex words in it.
pub(super) const WORDS: usize = 1008;

/// All zeros at first, and again in each child from its first moment on.
#[repr(C)]
pub(super) struct Page {
    /// The process's stamp.
    pub(super) stamp: Line,
    /// Words for `futex(2)`. A value that a thread read before a fork, to sleep
    /// on, differs in the child.
    pub(super) words: [AtomicU32; WORDS],
}

/// A cache line of its own, which the words do not share.
#[repr(C, align(64))]
pub(super) struct Line(pub(super) AtomicU64);

const SIZE: usize = 4096;
const _: () = assert!(size_of::<Page>() == SIZE);

/// Returns this process's page. `None`: the kernel does not support it.
pub(super) fn page() -> Option<&'static Page> {
    static PAGE: AtomicPtr<Page> = AtomicPtr::new(ptr::null_mut());
    /// Its address stands for a missing page.
    static NONE: AtomicU64 = AtomicU64::new(0);
    let none = ptr::from_ref(&NONE).cast_mut().cast::<Page>();
    let mut page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        let fresh = wiped_page().unwrap_or(none);
        let order = (Ordering::AcqRel, Ordering::Acquire);
        page = match PAGE.compare_exchange(page, fresh, order.0, order.1) {
            Ok(_) => fresh,
            // Leaks one page, if threads race at the first use.
            Err(first) => first,
        };
    }
    // SAFETY: not NONE, so the start of a page that is mapped and never
    // unmapped, all zeros at first, which is valid for its atomics.
    (page != none).then(|| unsafe { &*page })
}

fn wiped_page() -> Option<*mut Page> {
    // Miri has neither `madvise` nor `fork`.
    if cfg!(miri) {
        return None;
    }
    let flags = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
    let page = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), SIZE, flags.0, flags.1) };
    let page = page.ok()?;
    // SAFETY: no advice has this number. Some emulators (QEMU user mode) accept
    // any advice, and do nothing.
    let lies = unsafe { libc::madvise(page, SIZE, -1) } == 0;
    // SAFETY: the mapping is ours, and holds nothing that could be lost.
    let wiped = unsafe { rustix::mm::madvise(page, SIZE, Advice::LinuxWipeOnFork) };
    if wiped.is_ok() && !lies {
        return Some(page.cast());
    }
    // SAFETY: made above, and no reference to it exists.
    let _ = unsafe { rustix::mm::munmap(page, SIZE) };
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_finds_nothing_in_it() {
        let Some(page) = page() else {
            return testkit::skip::here("no page that fork(2) leaves empty");
        };
        // The last word: other tests are unlikely to use it.
        let word = &page.words[WORDS - 1];
        let kept = word.swap(7, Ordering::AcqRel);
        page.stamp.0.fetch_max(1, Ordering::AcqRel);
        assert!(testkit::child::in_a_child(|| {
            let stamp = page.stamp.0.load(Ordering::Acquire);
            let words = page.words.iter().map(|word| word.load(Ordering::Acquire));
            stamp == 0 && words.sum::<u32>() == 0
        }));
        assert_eq!(word.swap(kept, Ordering::AcqRel), 7);
    }
}
