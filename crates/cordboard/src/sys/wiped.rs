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

    const NO_PAGE: &str = "no page that fork(2) leaves empty";

    #[test]
    fn a_child_finds_nothing_in_it() {
        let Some(page) = page() else {
            return testkit::skip::here(NO_PAGE);
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

    /// Runs the tests of what uses the page in a process without it: before Linux 4.14, or under
    /// a filter.
    #[test]
    fn processes_are_distinguished_and_events_happen_without_it() {
        const TESTS: [&str; 5] = [
            "sys::wiped::tests::a_child_finds_nothing_in_it",
            "sys::event::tests::all_who_wait_hear_of_it",
            "sys::event::tests::two_that_share_a_word_both_hear_of_it",
            "sys::process::tests::a_child_has_a_stamp_of_its_own",
            "sys::process::tests::of_many_that_come_at_once_all_get_the_same",
        ];
        use testkit::owned::Start;
        testkit::owned::watching();
        for errno in [libc::EINVAL, libc::EPERM, libc::ENOSYS] {
            let output = testkit::refuse::apart(|| {
                testkit::refuse::refuse(&[libc::SYS_madvise], errno);
                let mut command = std::process::Command::new(std::env::current_exe().unwrap());
                command.args(TESTS).args(["--exact", "--test-threads=2"]);
                command.stdout(std::process::Stdio::piped());
                command.stderr(std::process::Stdio::piped());
                command.start().wait_with_output().unwrap()
            });
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            assert!(output.status.success(), "{text}");
            assert!(text.contains("5 passed"), "{text}");
            assert!(text.contains(NO_PAGE), "{text}");
        }
    }
}
