//! Child processes that do not outlive their test.
//!
//! [`Start::start`] is `spawn()` whose child is killed when it is dropped, also by a panic.
//! A child that runs for far too long is killed, so that what waits for its bytes or its end
//! goes on and fails. If the test still waits (`accept(2)`, the open of a FIFO), the process
//! is aborted. A process that [`crate::watchdog`] aborts kills its children first.
//!
//! `PR_SET_PDEATHSIG` would not do: it kills the child when the thread ends that has started
//! it, and some tests start a child in a thread with a filter.

use std::io;
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::watchdog::{abort, patience};

/// The number of children that can be watched at once.
const SLOTS: usize = 256;

/// The children that run. A lock that another thread held at a `fork(2)` stays held in the
/// new process, so no slot is waited for except by the thread that has taken it.
static RUNNING: [Mutex<Option<Running>>; SLOTS] = [const { Mutex::new(None) }; SLOTS];

#[derive(Debug)]
struct Running {
    pid: Pid,
    test: String,
    since: Instant,
    is_killed: bool,
}

/// A child process, which is killed and waited for when this is dropped.
#[derive(Debug)]
pub struct Owned {
    child: Option<Child>,
    slot: Option<usize>,
    /// The process that has started it. Another one that drops this has only a copy.
    owner: u32,
}

/// Starts commands.
pub trait Start {
    /// Starts the command.
    ///
    /// # Errors
    ///
    /// As [`Command::spawn`].
    fn try_start(&mut self) -> io::Result<Owned>;

    /// Starts the command.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[track_caller]
    fn start(&mut self) -> Owned {
        self.try_start().expect("a child process")
    }
}

impl Start for Command {
    fn try_start(&mut self) -> io::Result<Owned> {
        // Not a `Once`: a child of fork(2) would wait for ever for one that is being run.
        static IS_WATCHED: AtomicBool = AtomicBool::new(false);
        if !IS_WATCHED.swap(true, Ordering::Relaxed) {
            // Without the thread a hang is not noticed.
            let thread = std::thread::Builder::new().name("children".into());
            drop(thread.spawn(watch));
        }
        let child = self.spawn()?;
        let slot = list(Running {
            pid: Pid::from_child(&child),
            test: crate::skip::this_test(),
            since: Instant::now(),
            is_killed: false,
        });
        Ok(Owned {
            child: Some(child),
            slot,
            owner: std::process::id(),
        })
    }
}

impl Owned {
    /// As [`Child::wait_with_output`].
    ///
    /// # Errors
    ///
    /// As [`Child::wait_with_output`].
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        let child = self.child.take().expect("it is taken once");
        child.wait_with_output()
    }
}

impl Deref for Owned {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.child.as_ref().expect("it is taken at the end")
    }
}

impl DerefMut for Owned {
    fn deref_mut(&mut self) -> &mut Child {
        self.child.as_mut().expect("it is taken at the end")
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.owner != std::process::id() {
            return;
        }
        if let Some(child) = &mut self.child {
            // No error if it has been waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(slot) = self.slot {
            *locked(slot) = None;
        }
    }
}

fn locked(slot: usize) -> MutexGuard<'static, Option<Running>> {
    let slot = RUNNING[slot].lock();
    slot.unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Puts a child into a free slot. `None` if there is none.
fn list(running: Running) -> Option<usize> {
    let mut free = RUNNING.iter().enumerate();
    let (slot, mut place) = free.find_map(|(slot, place)| {
        let place = place.try_lock().ok()?;
        place.is_none().then_some((slot, place))
    })?;
    *place = Some(running);
    Some(slot)
}

/// Kills all children. Called before the process is aborted.
pub(crate) fn kill_all() {
    for place in &RUNNING {
        if let Ok(place) = place.try_lock()
            && let Some(running) = &*place
        {
            let _ = kill_process(running.pid, Signal::KILL);
        }
    }
}

/// Looks for children that run for too long.
fn watch() {
    // A test may use one child from its start to its end.
    let limit = patience() * 5;
    loop {
        std::thread::sleep(Duration::from_secs(1));
        for place in &RUNNING {
            let Ok(mut place) = place.try_lock() else {
                continue;
            };
            let Some(running) = &mut *place else {
                continue;
            };
            let ran = running.since.elapsed();
            if ran > limit + patience() {
                let name = running.test.clone();
                drop(place);
                abort(&name);
            }
            if ran > limit && !running.is_killed {
                running.is_killed = true;
                let _ = kill_process(running.pid, Signal::KILL);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;

    use super::*;

    /// A child that ends once its standard input does, or is killed.
    fn waiting() -> Command {
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }

    /// Whether this process has such a child.
    fn is_there(pid: Pid) -> bool {
        rustix::process::test_kill_process(pid).is_ok()
    }

    #[test]
    fn a_panic_ends_the_child() {
        let child = waiting().start();
        let pid = Pid::from_child(&child);
        assert!(is_there(pid));
        let panicked = std::thread::spawn(move || {
            let _child = child;
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(panicked.join().is_err());
        assert!(!is_there(pid));
    }

    #[test]
    fn a_child_that_has_ended_is_no_longer_listed() {
        let mut child = waiting().start();
        let slot = child.slot.expect("a free slot");
        let pid = Pid::from_child(&child);
        drop(child.stdin.take());
        assert!(child.wait_with_output().unwrap().status.success());
        assert!(locked(slot).as_ref().is_none_or(|other| other.pid != pid));
    }

    #[test]
    fn a_copy_in_another_process_ends_nothing() {
        let mut child = waiting().start();
        let fine = crate::child::in_a_child(|| {
            // SAFETY: the other copy is not used in this process.
            drop(unsafe { std::ptr::read(&raw const child) });
            true
        });
        assert!(fine && child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }
}
