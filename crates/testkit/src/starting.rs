//! The moments at which a thread of the standard library's is being started:
//! each allocation that it makes before its body begins is held while another
//! thread does what it likes. Locks of the library's own are held at some.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};

/// To be the test's `#[global_allocator]`.
pub struct Allocator;

/// New threads are being held.
static ARMED: AtomicBool = AtomicBool::new(false);
/// One waits in an allocation.
static HELD: AtomicBool = AtomicBool::new(false);
/// The body of the newest has begun.
static BEGUN: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// It is not one of the new ones, or its body has begun.
    static KNOWN: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: everything is the system allocator's.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if ARMED.load(Ordering::Acquire) && !KNOWN.get() {
            HELD.store(true, Ordering::Release);
            while HELD.load(Ordering::Acquire) && ARMED.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises; it is from `alloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Starts so many threads, which stay until all have begun, and runs
/// `meanwhile` at each allocation on their way. How many there were.
pub fn at_each(threads: usize, mut meanwhile: impl FnMut()) -> usize {
    KNOWN.set(true);
    let mut count = 0;
    let mut all = Vec::new();
    for _ in 0..threads {
        BEGUN.store(false, Ordering::Release);
        ARMED.store(true, Ordering::Release);
        all.push(start());
        while !BEGUN.load(Ordering::Acquire) {
            if HELD.load(Ordering::Acquire) {
                count += 1;
                meanwhile();
                HELD.store(false, Ordering::Release);
            }
            std::thread::yield_now();
        }
        disarm();
    }
    for (end, thread) in all {
        drop(end);
        thread.join().expect("it only waits");
    }
    count
}

/// Nobody is held any more: for a child of `fork(2)`.
pub fn disarm() {
    ARMED.store(false, Ordering::Release);
    HELD.store(false, Ordering::Release);
}

fn start() -> (Sender<()>, std::thread::JoinHandle<()>) {
    let (end, ended) = channel::<()>();
    let thread = std::thread::spawn(move || {
        KNOWN.set(true);
        BEGUN.store(true, Ordering::Release);
        let _ = ended.recv();
    });
    (end, thread)
}
