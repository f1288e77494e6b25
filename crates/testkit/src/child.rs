//! Children of `fork(2)`, and what they do to their descriptors.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::mpsc::channel;
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use crate::owned::{Listed, until_ended};

/// Held for writing while a child of [`in_a_child`] runs, which inherits the
/// descriptors of the tests beside it.
static CHILDREN: RwLock<()> = RwLock::new(());

/// The process that runs the tests.
static FIRST: OnceLock<u32> = OnceLock::new();

/// Whether this is a process of [`in_a_child`].
pub(crate) fn is_fork() -> bool {
    (FIRST.get()).is_some_and(|first| *first != std::process::id())
}

/// Returns a guard that keeps the other tests of this program from starting a child. For
/// a test that closes a descriptor and expects the other side to notice.
pub fn without_children() -> RwLockReadGuard<'static, ()> {
    CHILDREN.read().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the guard that keeps [`without_children`] waiting. `None` in a child, which
/// has a copy of a lock that its parent holds.
pub(crate) fn with_child() -> Option<RwLockWriteGuard<'static, ()>> {
    let is_first = *FIRST.get_or_init(std::process::id) == std::process::id();
    is_first.then(|| CHILDREN.write().unwrap_or_else(PoisonError::into_inner))
}

/// Runs `what` in a child. Returns its result, or false if it panics. It must not
/// take locks that another thread of this process may hold.
pub fn in_a_child(what: impl FnOnce() -> bool) -> bool {
    let _held = with_child();
    let parent = std::process::id();
    // SAFETY: as the caller promises; the child ends below.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        ends_with(parent);
        let fine = catch_unwind(AssertUnwindSafe(what)).unwrap_or(false);
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(i32::from(!fine)) };
    }
    let pid = rustix::process::Pid::from_raw(child).expect("the number of a child");
    let listed = Listed::new(pid);
    until_ended(pid);
    drop(listed);
    let mut status = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status == 0
}

/// Lets the kernel kill this process, a child of `parent`, once the thread ends that has
/// forked it: with its process, if a watchdog aborts that.
pub(crate) fn ends_with(parent: u32) {
    // SAFETY: takes integers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
    // SAFETY: takes nothing.
    let now = unsafe { libc::getppid() };
    // It ended before. The parent of the first process of a PID namespace is 0.
    if now != 0 && now.cast_unsigned() != parent {
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(1) };
    }
}

/// Lets the kernel kill the child of this command once the calling thread ends.
pub(crate) fn set_end_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let set = move || {
        ends_with(parent);
        Ok(())
    };
    // SAFETY: what runs between fork and exec are bare system calls.
    unsafe { command.pre_exec(set) };
}

/// Ends this process by `SIGALRM` after 20 seconds, so that a child that hangs ends with
/// a status that shows it.
pub fn ends_soon() {
    // SAFETY: takes an integer; the signal has no handler.
    unsafe { libc::alarm(20) };
}

/// Calls `body` while another thread holds what `take` returns, such as the guard of a lock.
pub fn while_held<G>(take: impl FnOnce() -> G + Send, body: impl FnOnce()) {
    let (tell, told) = channel();
    let (release, hold) = channel::<()>();
    std::thread::scope(|scope| {
        // Dropped if an assertion fails, too.
        let _release = release;
        scope.spawn(move || {
            let held = take();
            tell.send(()).unwrap();
            hold.recv().unwrap_err();
            drop(held);
        });
        told.recv().unwrap();
        body();
    });
}

/// Sets an alarm in the child of this command before its program starts. execve(2)
/// keeps it.
pub fn alarmed(command: &mut Command, after: Duration) {
    let (none, after) = (timeval(Duration::ZERO), timeval(after));
    let timer = libc::itimerval {
        it_interval: none,
        it_value: after,
    };
    let set = move || {
        // SAFETY: reads one itimerval, which is valid.
        match unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) }
        {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: what runs between fork and exec is one bare system call.
    unsafe { command.pre_exec(set) };
}

/// Blocks these signals in the child of this command. execve(2) keeps that.
pub fn with_blocked(command: &mut Command, signals: &'static [libc::c_int]) {
    let block = move || {
        // SAFETY: all zeros are a valid set.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        for signal in signals {
            // SAFETY: changes one set, which is valid.
            unsafe { libc::sigaddset(&raw mut set, *signal) };
        }
        // SAFETY: reads one set, which is valid.
        match unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: what runs between fork and exec are bare calls that a handler may make.
    unsafe { command.pre_exec(block) };
}

fn timeval(time: Duration) -> libc::timeval {
    libc::timeval {
        tv_sec: time.as_secs() as _,
        tv_usec: time.subsec_micros() as _,
    }
}

/// A child that keeps the descriptors it has inherited until this is dropped.
pub struct Heir(libc::pid_t);

impl Heir {
    /// Forks the child, which inherits all open descriptors.
    pub fn fork() -> Heir {
        let parent = std::process::id();
        // SAFETY: the child only sleeps.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            ends_with(parent);
            loop {
                // SAFETY: returns after a signal at most.
                unsafe { libc::pause() };
            }
        }
        Heir(child)
    }
}

/// A child that runs until its code ends it, or this is dropped.
pub struct Child(libc::pid_t);

impl Child {
    /// Forks. `None` in the child, in which no other thread runs.
    pub fn fork() -> Option<Child> {
        let parent = std::process::id();
        // SAFETY: the caller runs only what needs no other thread.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            ends_with(parent);
            return None;
        }
        Some(Child(child))
    }

    /// Waits for its end. Returns its exit status; `None` if a signal has ended it.
    pub fn status(self) -> Option<i32> {
        let pid = rustix::process::Pid::from_raw(self.0).expect("the number of a child");
        let _listed = Listed::new(pid);
        until_ended(pid);
        let mut status = 0;
        // SAFETY: waits for the child, and stores its status.
        assert_eq!(unsafe { libc::waitpid(self.0, &mut status, 0) }, self.0);
        std::mem::forget(self);
        libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        drop(Heir(self.0));
    }
}

impl Drop for Heir {
    fn drop(&mut self) {
        // SAFETY: the child exists until it is waited for.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        // SAFETY: the call returns no status.
        unsafe { libc::waitpid(self.0, std::ptr::null_mut(), 0) };
    }
}

/// Ends the calling thread only. For the first thread of a child, which stays a zombie
/// until the child ends.
pub fn end_this_thread() -> ! {
    loop {
        // SAFETY: nothing of this thread is needed any more.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
}

/// Waits until the first thread of this process has ended.
pub fn first_has_ended() {
    let name = format!("/proc/{}/stat", std::process::id());
    loop {
        let stat = std::fs::read_to_string(&name).expect("procfs is mounted");
        let state = stat.rsplit(") ").next().unwrap_or_default();
        if state.starts_with('Z') {
            return;
        }
        std::thread::yield_now();
    }
}

/// Ends a child of [`in_a_child`] from a thread that is not its first.
pub fn end(fine: bool) -> ! {
    // SAFETY: ends the child without the parent's exit handlers.
    unsafe { libc::_exit(i32::from(!fine)) }
}

/// Makes the next child the first process of a PID namespace of its own. Returns
/// `false` without root.
pub fn next_is_first() -> bool {
    // SAFETY: takes an integer.
    unsafe { libc::unshare(libc::CLONE_NEWPID) == 0 }
}

/// Gives the calling thread a descriptor table of its own, a copy of the present one.
pub fn own_descriptors() {
    // SAFETY: takes an integer; nothing that this thread has is closed.
    let done = unsafe { libc::unshare(libc::CLONE_FILES) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// Gives the calling thread, and those that it starts, a mount namespace of their own.
/// Returns `false` without root.
pub fn own_mounts() -> bool {
    // SAFETY: takes an integer.
    unsafe { libc::unshare(libc::CLONE_NEWNS) == 0 }
}

/// Gives the calling process, which has one thread, a user namespace of its own, in which no
/// user has a number. Returns `false` if that is not permitted.
pub fn own_users() -> bool {
    // SAFETY: takes an integer.
    unsafe { libc::unshare(libc::CLONE_NEWUSER) == 0 }
}

/// Makes a number refer to another descriptor's file: in the calling thread only, if
/// it has a table of its own. The owner of the number must allow that.
pub fn replace(number: BorrowedFd<'_>, by: BorrowedFd<'_>) {
    // SAFETY: takes integers; the number stays open, as its owner expects.
    let done = unsafe { libc::dup2(by.as_raw_fd(), number.as_raw_fd()) };
    assert_eq!(done, number.as_raw_fd());
}

/// Makes one number refer to the file of another, by `dup3(2)`. The owner of the
/// number must allow that.
pub fn copy_to(from: RawFd, to: RawFd, close_on_exec: bool) {
    let flags = if close_on_exec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: takes integers.
    let done = unsafe { libc::dup3(from, to, flags) };
    assert_eq!(done, to, "{}", std::io::Error::last_os_error());
}

/// Sends a signal to this thread, whose handler has run when this returns.
pub fn raise(signal: libc::c_int) {
    // SAFETY: takes an integer; the caller has a handler for it.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

/// Closes a number that nothing owns.
pub fn close(number: RawFd) {
    // SAFETY: takes an integer.
    assert_eq!(unsafe { libc::close(number) }, 0);
}

/// Returns the inode number of the file of this descriptor, if it is open.
pub fn inode(number: RawFd) -> Option<u64> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: takes any number, and fills the structure in where it is open.
    if unsafe { libc::fstat(number, stat.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: filled in by the successful call above.
    let stat = unsafe { stat.assume_init() };
    #[allow(clippy::unnecessary_cast, reason = "its width is the architecture's")]
    Some(stat.st_ino as u64)
}

/// Closes every descriptor from this number on, as a daemon does (`close_range(2)`,
/// since Linux 5.9).
pub fn close_from(first: u32) {
    // SAFETY: takes integers. Values that own one of these descriptors must
    // not be dropped any more: the caller is a child that ends by `_exit`.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// Leaves this many bytes of address space (`RLIMIT_AS`) to this process, for good. For a child.
pub fn limit_addresses(left: u64) {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let limit = Some(pages * rustix::param::page_size() as u64 + left);
    let limit = Rlimit {
        current: limit,
        maximum: limit,
    };
    setrlimit(Resource::As, limit).unwrap();
}
