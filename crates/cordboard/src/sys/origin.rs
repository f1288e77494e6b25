//! The process and the descriptor table in which descriptors were opened.

use super::{Stamp, Thread};

/// The process and the thread that have opened some descriptors.
///
/// Public for the C library only; not part of the API.
#[derive(Debug, Clone, Copy)]
pub struct Origin {
    process: Stamp,
    thread: Thread,
}

impl Origin {
    /// Returns the calling thread.
    pub fn here() -> Origin {
        Origin {
            process: Stamp::here(),
            thread: Thread::this(),
        }
    }

    /// Returns whether this is the same process, and not a child of `fork(2)`.
    pub fn is_this_process(self) -> bool {
        self.process.is_here()
    }

    /// Returns whether the numbers refer to the same files in the calling thread. `false` in
    /// a child of `fork(2)`, and in a thread with another descriptor table (`unshare(2)`).
    /// True if the kernel cannot compare the tables, or if the other thread has ended.
    pub fn has_descriptors(self) -> bool {
        self.process.is_here() && self.thread.shares_descriptors() != Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::child;

    #[test]
    fn neither_a_child_nor_an_unshared_thread_has_the_descriptors() {
        let origin = Origin::here();
        assert!(origin.is_this_process() && origin.has_descriptors());
        assert!(child::in_a_child(|| {
            !origin.is_this_process() && !origin.has_descriptors()
        }));
        let other = std::thread::spawn(move || {
            let before = (Thread::this(), origin.has_descriptors());
            child::own_descriptors();
            let told = origin.thread.shares_descriptors();
            (before.1, told, origin.has_descriptors())
        });
        let (before, told, after) = other.join().unwrap();
        assert!(before && after == (told != Some(false)));
        if told.is_none() {
            testkit::skip::here("no kcmp(2) here");
        }
    }
}
