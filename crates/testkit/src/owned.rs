//! Child processes that do not outlive their test.
//!
//! [`Start::start`] is `spawn()` whose child is killed when it is dropped, also by a panic.
//! A child that runs for far too long is killed, so that what waits for its bytes or its end
//! goes on and fails. If the test still waits (`accept(2)`, the open of a FIFO), the process
//! is aborted. A process that [`crate::watchdog`] aborts kills its children first.
//!
//! `PR_SET_PDEATHSIG` is not sufficient: it kills the child when the thread ends that has
//! started it, and some tests start a child in a thread with a filter. It is set only for the
//! children of a process of [`crate::child::in_a_child`], which may be killed itself.

use std::io;
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command, ExitStatus, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::watchdog::{abort, patience};

/// The number of children that can be watched at once.
const SLOTS: usize = 256;

/// The children that run. A lock that another thread held at a `fork(2)` stays held in the
/// new process, so no slot is waited for except by the thread that has taken it.
static RUNNING: [Mutex<Option<Running>>; SLOTS] = [const { Mutex::new(None) }; SLOTS];

#[derive(Debug)]
struct Running {
    pid: Pid,
    /// The process that has started it. A child of `fork(2)` has a copy of this.
    owner: u32,
    test: String,
    since: Instant,
    is_killed: bool,
}

impl Running {
    fn is_own(&self) -> bool {
        self.owner == std::process::id()
    }
}

/// A running child in the list, until this is dropped.
#[derive(Debug)]
pub(crate) struct Listed {
    /// `None` if no slot was free.
    slot: Option<usize>,
    owner: u32,
}

impl Listed {
    /// Lists this child.
    pub(crate) fn new(pid: Pid) -> Listed {
        let owner = std::process::id();
        let slot = list(Running {
            pid,
            owner,
            test: crate::skip::this_test(),
            since: Instant::now(),
            is_killed: false,
        });
        Listed { slot, owner }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let Some(slot) = self.slot
            && self.owner == std::process::id()
        {
            *locked(slot) = None;
        }
    }
}

/// A child process, which is killed and waited for when this is dropped.
#[derive(Debug)]
pub struct Owned {
    child: Option<Child>,
    /// `None` once it has been waited for: another process may have its number then.
    listed: Option<Listed>,
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
        watching();
        if crate::child::is_fork() {
            crate::child::set_end_with_parent(self);
        }
        let child = self.spawn()?;
        let listed = Some(Listed::new(Pid::from_child(&child)));
        Ok(Owned {
            child: Some(child),
            listed,
            owner: std::process::id(),
        })
    }
}

/// Starts the thread that watches the children of this process, if there is none. For a test
/// whose thread cannot start it later, or has a filter that the thread would inherit.
pub fn watching() {
    // Not a `Once`: a child of fork(2) would wait for ever for one that is being run.
    static WATCHED: AtomicU32 = AtomicU32::new(0);
    let this = std::process::id();
    if WATCHED.swap(this, Ordering::Relaxed) == this {
        return;
    }
    let thread = std::thread::Builder::new().name("children".into());
    if thread.spawn(watch).is_err() {
        // Without the thread a hang is not noticed. The next start tries again.
        WATCHED.store(0, Ordering::Relaxed);
    }
}

impl Owned {
    /// As [`Child::wait`].
    ///
    /// # Errors
    ///
    /// As [`Child::wait`].
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        if self.listed.is_some() {
            drop(self.stdin.take());
            until_ended(Pid::from_child(self));
            self.listed = None;
        }
        Child::wait(self)
    }

    /// As [`Child::try_wait`].
    ///
    /// # Errors
    ///
    /// As [`Child::try_wait`].
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.listed.is_some() {
            let id = WaitId::Pid(Pid::from_child(self));
            let now = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
            if matches!(waitid(id, now), Ok(None)) {
                return Ok(None);
            }
            self.listed = None;
        }
        Child::try_wait(self)
    }

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
    }
}

/// Waits until this child has ended. It is not reaped, so that no other process gets its
/// number while it is listed.
pub(crate) fn until_ended(pid: Pid) {
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while matches!(waitid(WaitId::Pid(pid), ended), Err(Errno::INTR)) {}
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
        let is_free = place.as_ref().is_none_or(|running| !running.is_own());
        is_free.then_some((slot, place))
    })?;
    *place = Some(running);
    Some(slot)
}

/// Kills all children. Called before the process is aborted.
pub(crate) fn kill_all() {
    for place in &RUNNING {
        if let Ok(place) = place.try_lock()
            && let Some(running) = &*place
            && running.is_own()
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
            let Some(running) = place.as_mut().filter(|running| running.is_own()) else {
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

    fn is_listed(pid: Pid) -> bool {
        (0..SLOTS).any(|slot| {
            let place = locked(slot);
            (place.as_ref()).is_some_and(|running| running.is_own() && running.pid == pid)
        })
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
        let pid = Pid::from_child(&child);
        assert!(is_listed(pid) && child.try_wait().unwrap().is_none() && is_listed(pid));
        drop(child.stdin.take());
        assert!(child.wait_with_output().unwrap().status.success());
        assert!(!is_listed(pid));
        // Not only once the guard is dropped.
        let mut child = waiting().start();
        let pid = Pid::from_child(&child);
        assert!(child.wait().unwrap().success() && child.wait().unwrap().success());
        assert!(!is_listed(pid));
    }

    #[test]
    fn a_process_lists_its_own_children_only() {
        let child = waiting().start();
        let pid = Pid::from_child(&child);
        assert!(crate::child::in_a_child(|| {
            let own = waiting().start();
            !is_listed(pid) && is_listed(Pid::from_child(&own))
        }));
        assert!(is_listed(pid));
    }

    /// As it is if a watchdog aborts it.
    #[test]
    fn a_child_of_a_process_that_is_killed_ends_too() {
        use rustix::pipe::{PipeFlags, pipe_with};
        let _watched = crate::watchdog::watch("the end of a child of a child");
        let [input, output] = [(); 2].map(|()| pipe_with(PipeFlags::CLOEXEC).unwrap());
        // Its input does not end with the process: this one keeps the writer.
        let (reader, writer) = output;
        let fine = crate::child::in_a_child(|| {
            let mut command = waiting();
            command.stdin(input.0.try_clone().unwrap());
            let _child = command.stdout(writer.try_clone().unwrap()).start();
            kill_process(rustix::process::getpid(), Signal::KILL).is_ok()
        });
        assert!(!fine);
        drop(writer);
        // The end of the file comes once no process has the pipe.
        let mut rest = Vec::new();
        let read = std::io::Read::read_to_end(&mut std::fs::File::from(reader), &mut rest);
        assert_eq!(read.unwrap(), 0);
        drop(input);
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
