//! Descriptor tables of threads. All threads of a process normally share one
//! table. A thread that calls `unshare(2)` with `CLONE_FILES` has its own table
//! from then on, in which a number may refer to another file.

use std::cell::Cell;

use super::process::Stamp;

/// From `enum kcmp_type`.
const KCMP_VM: libc::c_int = 1;
const KCMP_FILES: libc::c_int = 2;

/// A thread of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Thread(libc::pid_t);

impl Thread {
    /// Returns the calling thread. Calls `gettid(2)` once per thread and
    /// process.
    pub(crate) fn this() -> Thread {
        thread_local! {
            /// Its number, and the process in which it is valid.
            static KNOWN: Cell<(Stamp, libc::pid_t)> = const { Cell::new((Stamp::NOBODY, 0)) };
        }
        let here = Stamp::here();
        let (process, number) = KNOWN.get();
        if process == here {
            return Thread(number);
        }
        // SAFETY: takes nothing and returns an integer.
        let number = unsafe { libc::syscall(libc::SYS_gettid) } as libc::pid_t;
        KNOWN.set((here, number));
        Thread(number)
    }

    /// Returns the main thread.
    pub(crate) fn first() -> Thread {
        Thread(rustix::process::getpid().as_raw_nonzero().get())
    }

    /// Returns the thread's number.
    pub(crate) fn number(self) -> libc::pid_t {
        self.0
    }

    /// Whether the thread waits in the kernel: state `S` or `D` of
    /// `/proc/self/task/TID/stat` (proc_pid_stat(5)). True if that is unknown.
    pub(crate) fn waits(self) -> bool {
        let stat = std::fs::read(format!("/proc/self/task/{}/stat", self.0));
        let Ok(stat) = stat else { return true };
        // The name before the state may contain any byte.
        let name_ends = stat.iter().rposition(|byte| *byte == b')');
        let state = name_ends.and_then(|end| stat.get(end + 2));
        state.is_none_or(|state| matches!(state, b'S' | b'D'))
    }

    /// Whether the calling thread shares the descriptor table of this thread:
    /// `kcmp(2)`, `KCMP_FILES`, since Linux 3.5. Not cached: a thread may
    /// unshare its table at any time, and the call takes less than a
    /// microsecond. `None` if unknown: the call is not configured, or refused
    /// by a filter, or the thread has exited or is exiting.
    pub(crate) fn shares_descriptors(self) -> Option<bool> {
        if Thread::this() == self {
            return Some(true);
        }
        match self.has_the_same(KCMP_FILES)? {
            true => Some(true),
            // An exiting thread differs in both: it releases its memory first
            // (`do_exit`, kernel/exit.c), and all threads of a process share
            // that.
            false => (self.has_the_same(KCMP_VM)?).then_some(false),
        }
    }

    /// Whether both this and the calling thread have the same resource `what`,
    /// by `kcmp(2)`.
    fn has_the_same(self, what: libc::c_int) -> Option<bool> {
        let this = Thread::this();
        // SAFETY: takes and returns integers only.
        let order = unsafe { libc::syscall(libc::SYS_kcmp, self.0, this.0, what, 0, 0) };
        (order >= 0).then_some(order == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_unshares_has_descriptors_of_its_own() {
        let other = Thread::this();
        let (before, after) = std::thread::spawn(move || {
            let before = other.shares_descriptors();
            testkit::child::own_descriptors();
            (before, other.shares_descriptors())
        })
        .join()
        .unwrap();
        if before.is_none() {
            return testkit::skip::here("no kcmp(2) here");
        }
        assert_eq!((before, after), (Some(true), Some(false)));
    }

    /// An exited thread has no descriptor table, which does not count as a
    /// different one.
    #[test]
    fn a_thread_that_has_ended_is_not_told_of() {
        use testkit::child;
        assert!(child::in_a_child(|| {
            let first = Thread::this();
            let other = crate::sys::spawn(c"cordboard-test", move || {
                child::first_has_ended();
                child::end(first.shares_descriptors().is_none());
            });
            assert!(other.is_ok());
            child::end_this_thread()
        }));
    }

    #[test]
    fn a_child_has_threads_of_its_own() {
        let mine = Thread::this();
        assert!(testkit::child::in_a_child(|| {
            let here = Thread::this();
            here != mine && here == Thread::first()
        }));
        assert_eq!(Thread::this(), mine);
    }
}
