//! Which process this is, and one value a process, without a lock.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Tells a process from those that it has been forked from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

/// No stamp that is counted: a process's number.
const NUMBER: u64 = 1 << 63;

impl Stamp {
    /// That of no process.
    pub(crate) const NOBODY: Stamp = Stamp(0);

    /// This process's. The same in all of its threads, and another than in any
    /// process that this one was forked from, from the child's first moment on.
    /// The process's number alone would not do: in a PID namespace of its own
    /// (`unshare(2)`) a child can have the same one as its parent.
    ///
    /// A page that `fork(2)` leaves empty has it: `madvise(2)`,
    /// `MADV_WIPEONFORK`, since Linux 4.14. Before, it is the process's number.
    pub(crate) fn here() -> Stamp {
        /// How many have been given out, to this process or to one before it.
        static GIVEN: AtomicU64 = AtomicU64::new(0);
        let Some(page) = page() else {
            return Stamp(NUMBER | u64::from(std::process::id()));
        };
        match page.load(Ordering::Acquire) {
            0 => {
                // Counted before it is used: no fork in between gives it twice.
                let mine = GIVEN.fetch_add(1, Ordering::AcqRel) + 1;
                let order = (Ordering::AcqRel, Ordering::Acquire);
                // Of several that come at once, one stays.
                let before = page.compare_exchange(0, mine, order.0, order.1);
                Stamp(before.err().unwrap_or(mine))
            }
            stamp => Stamp(stamp),
        }
    }

    /// It is this process's.
    pub(crate) fn is_here(self) -> bool {
        self == Stamp::here()
    }
}

/// The start of a page that is empty after each `fork(2)`. `None`: the kernel
/// has none such.
fn page() -> Option<&'static AtomicU64> {
    static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
    /// In its place, where there is none.
    static NONE: AtomicU64 = AtomicU64::new(0);
    let none = ptr::from_ref(&NONE).cast_mut();
    let mut page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        let fresh = wiped_page().unwrap_or(none);
        let order = (Ordering::AcqRel, Ordering::Acquire);
        page = match PAGE.compare_exchange(page, fresh, order.0, order.1) {
            Ok(_) => fresh,
            // A page too many, which stays: this happens once.
            Err(first) => first,
        };
    }
    // SAFETY: NONE, or the start of a page that is mapped, all zeros at first,
    // and never unmapped.
    (page != none).then(|| unsafe { &*page })
}

fn wiped_page() -> Option<*mut AtomicU64> {
    const SIZE: usize = 4096;
    // Miri has neither `madvise` nor `fork`.
    if cfg!(miri) {
        return None;
    }
    let flags = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
    let page = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), SIZE, flags.0, flags.1) };
    let page = page.ok()?;
    // SAFETY: no advice has this number. Some emulators (qemu's user mode)
    // agree to whatever they are advised, and do nothing.
    let lies = unsafe { libc::madvise(page, SIZE, -1) } == 0;
    // SAFETY: the mapping is ours, and has nothing in it that could be lost.
    let wiped = unsafe { rustix::mm::madvise(page, SIZE, Advice::LinuxWipeOnFork) };
    if wiped.is_ok() && !lies {
        return Some(page.cast());
    }
    // SAFETY: made above, and nobody has seen it.
    let _ = unsafe { rustix::mm::munmap(page, SIZE) };
    None
}

/// A value that is made at its first use, and made anew in a child of
/// `fork(2)`: what the child has inherited is only shown to whoever makes its
/// own, since another thread may have held its locks at that moment.
///
/// Public for the C library alone, and no part of the interface.
pub struct PerProcess<T: 'static> {
    slot: AtomicPtr<Stamped<T>>,
}

struct Stamped<T> {
    process: Stamp,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    /// One that no process has a value of yet.
    #[allow(clippy::new_without_default, reason = "for a static")]
    pub const fn new() -> PerProcess<T> {
        PerProcess {
            slot: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// This process's value; of several that are made at once, one stays.
    /// `make` is given the parent's, of which no lock is to be waited for.
    pub fn get<E>(
        &self,
        make: impl Fn(Option<&'static T>) -> Result<T, E>,
    ) -> Result<&'static T, E> {
        self.get_usable(|_| true, make)
    }

    /// A parent's value, where this process has none of its own yet.
    pub(crate) fn inherited(&self) -> Option<&'static T> {
        // SAFETY: null, or a leaked box that is never changed or freed.
        let found = unsafe { self.slot.load(Ordering::Acquire).as_ref() }?;
        (!found.process.is_here()).then_some(&found.value)
    }

    /// The same, made anew where it is not usable any more. What was there
    /// before stays for whoever has it.
    pub(crate) fn get_usable<E>(
        &self,
        usable: impl Fn(&T) -> bool,
        make: impl Fn(Option<&'static T>) -> Result<T, E>,
    ) -> Result<&'static T, E> {
        let process = Stamp::here();
        loop {
            let now = self.slot.load(Ordering::Acquire);
            // SAFETY: null, or a leaked box that is never changed or freed.
            let found = unsafe { now.as_ref() };
            if let Some(stamped) = found
                && stamped.process == process
                && usable(&stamped.value)
            {
                return Ok(&stamped.value);
            }
            let value = make(found.map(|inherited| &inherited.value))?;
            let fresh = Box::into_raw(Box::new(Stamped { process, value }));
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            if self
                .slot
                .compare_exchange(now, fresh, order.0, order.1)
                .is_err()
            {
                // SAFETY: made a moment ago, and nobody else has seen it.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_that_come_at_once_all_get_the_same() {
        static SLOT: PerProcess<usize> = PerProcess::new();
        let gate = std::sync::Barrier::new(8);
        let one = |n: usize| {
            gate.wait();
            *SLOT
                .get(|inherited| Ok::<_, ()>(inherited.copied().unwrap_or(n)))
                .unwrap()
        };
        let got: Vec<usize> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|n| scope.spawn(move || one(n))).collect();
            all.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(got.iter().all(|n| *n == got[0]), "{got:?}");
        assert_eq!(SLOT.get(|_| Err::<usize, _>("made anew")), Ok(&got[0]));
    }

    /// In a child the stamp is another at once, and its own children's are
    /// others again. What a child sees comes back as its exit status.
    #[test]
    fn a_child_has_a_stamp_of_its_own() {
        static SLOT: PerProcess<Stamp> = PerProcess::new();
        let kept = || SLOT.get(|_| Ok::<_, ()>(Stamp::here())).copied();
        let mine = Stamp::here();
        assert!(mine.is_here() && mine != Stamp::NOBODY && kept() == Ok(mine));
        let fine = testkit::child::in_a_child(|| {
            let child = Stamp::here();
            let fine = testkit::child::in_a_child(|| {
                !child.is_here() && !mine.is_here() && kept() == Ok(Stamp::here())
            });
            fine && child != mine && child.is_here() && kept() == Ok(child)
        });
        assert!(fine && mine.is_here() && kept() == Ok(mine));
    }
}
