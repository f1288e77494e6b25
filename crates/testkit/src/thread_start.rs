//! Threads that the standard library is starting: each allocation that a new thread
//! makes before its body begins is held, while another thread runs a function. The
//! standard library holds locks at some of these moments.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};

/// The allocator of a test program, as its `#[global_allocator]`.
pub struct Allocator;

/// Whether new threads are held.
static ARMED: AtomicBool = AtomicBool::new(false);
/// Whether a new thread waits in an allocation.
static HELD: AtomicBool = AtomicBool::new(false);
/// Whether the body of the newest thread has begun.
static BEGUN: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// True in a thread that is not new, or whose body has begun.
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

/// Starts `threads` threads, which live until all have begun, and runs `meanwhile`
/// at each allocation before their bodies. Returns the number of allocations.
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
        thread.join().expect("the thread only waits");
    }
    count
}

/// Holds no thread from now on. For a child of `fork(2)`.
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
