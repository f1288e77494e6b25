//! A pipe whose lock a thread holds, and the threads that wait for it.

use std::io::{PipeReader, PipeWriter, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use rustix::pipe::{SpliceFlags, splice};
use rustix::thread::Pid;

/// Returns the threads of this process that have this name.
pub fn threads(name: &str) -> Vec<PathBuf> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let tasks = tasks.filter_map(|task| Some(task.ok()?.path()));
    let named = |task: &PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name)
    };
    tasks.filter(named).collect()
}

/// Returns how many threads of this name wait uninterruptibly for a lock in the kernel.
pub fn held_up(name: &str) -> usize {
    let waits = |task: &PathBuf| {
        let stat = std::fs::read_to_string(task.join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().unwrap().starts_with('D')
    };
    threads(name).into_iter().filter(waits).count()
}

/// Returns the system call that a thread of this process sleeps in: its number and its
/// arguments, in the form of procfs. Empty while the thread runs.
fn call(thread: Pid) -> Vec<String> {
    call_of(&PathBuf::from(format!(
        "/proc/self/task/{}",
        thread.as_raw_nonzero()
    )))
}

fn call_of(task: &Path) -> Vec<String> {
    let call = std::fs::read_to_string(task.join("syscall"));
    let words = call.unwrap_or_default();
    let words: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
    if words.len() > 6 { words } else { Vec::new() }
}

/// Whether this thread sleeps in a call that waits for descriptors or a timeout.
/// (`wchan` is always 0 on some kernels, such as Debian's 5.10.)
pub fn polls(task: &Path) -> bool {
    const CALLS: &[libc::c_long] = &[
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
        libc::SYS_ppoll,
        #[cfg(any(target_arch = "x86_64", target_arch = "x86", target_arch = "arm"))]
        libc::SYS_epoll_wait,
        #[cfg(any(target_arch = "x86_64", target_arch = "x86", target_arch = "arm"))]
        libc::SYS_poll,
    ];
    is_in(task, CALLS)
}

/// Whether this thread sleeps in one of these calls, and a signal could wake it.
pub fn sleeps_in(task: &Path, calls: &[libc::c_long]) -> bool {
    let stat = std::fs::read_to_string(task.join("stat")).unwrap_or_default();
    let sleeps = stat.rsplit(") ").next().is_some_and(|s| s.starts_with('S'));
    sleeps && is_in(task, calls)
}

fn is_in(task: &Path, calls: &[libc::c_long]) -> bool {
    let call = call_of(task).first().and_then(|call| call.parse().ok());
    call.is_some_and(|call| calls.contains(&call))
}

/// Returns how often this thread has gone to sleep; `None` if it has ended.
pub fn switches(task: &Path) -> Option<u64> {
    let status = std::fs::read_to_string(task.join("status")).ok()?;
    switches_of(&status)
}

/// As [`switches`], for the text of its `status`.
pub fn switches_of(status: &str) -> Option<u64> {
    let count = (status.lines()).find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count?.trim().parse().ok()
}

fn is(word: Option<&String>, fd: RawFd) -> bool {
    word.is_some_and(|word| *word == format!("{fd:#x}"))
}

/// Waits until this thread of the process sleeps in a `splice(2)` from this
/// descriptor, or to it.
pub fn until_asleep(thread: Pid, fd: RawFd, is_sink: bool) {
    let splice = libc::SYS_splice.to_string();
    loop {
        let call = call(thread);
        let at = if is_sink { 3 } else { 1 };
        if call.first() == Some(&splice) && is(call.get(at), fd) {
            return;
        }
        std::thread::yield_now();
    }
}

/// Whether this thread of the process waits for a lock, uninterruptibly, in a call on
/// one of these descriptors.
pub fn waits_for_lock(thread: Pid, fds: &[RawFd]) -> bool {
    let number = thread.as_raw_nonzero();
    let stat = std::fs::read_to_string(format!("/proc/self/task/{number}/stat"));
    let stat = stat.unwrap_or_default();
    let waits = stat.rsplit(") ").next().is_some_and(|s| s.starts_with('D'));
    let call = call(thread);
    waits && fds.iter().any(|fd| is(call.get(1), *fd))
}

/// A pipe whose lock is held: a call that splices a silent socket into it keeps the
/// lock for as long as the socket is silent (`splice_file_to_pipe`, fs/splice.c).
/// Calls that read, write or resize the pipe wait for the lock, and cannot be killed
/// meanwhile.
#[derive(Debug)]
pub struct Locked {
    /// The read end.
    pub reader: PipeReader,
    /// The write end.
    pub writer: PipeWriter,
    socket: UnixStream,
    holder: JoinHandle<()>,
}

impl Locked {
    /// Locks a new pipe.
    ///
    /// # Panics
    ///
    /// If no descriptors are available.
    #[allow(clippy::new_without_default, reason = "it starts a thread")]
    pub fn new() -> Locked {
        let (reader, writer) = std::io::pipe().unwrap();
        Locked::of(reader, writer)
    }

    /// Locks this pipe.
    ///
    /// # Panics
    ///
    /// As [`Locked::new`].
    pub fn of(reader: PipeReader, writer: PipeWriter) -> Locked {
        let (source, socket) = UnixStream::pair().unwrap();
        let sink = writer.try_clone().unwrap();
        let its = sink.as_raw_fd();
        let (sender, number) = std::sync::mpsc::channel();
        let holder = std::thread::spawn(move || {
            sender.send(rustix::thread::gettid()).unwrap();
            let moved = splice(&source, None, &sink, None, 4096, SpliceFlags::empty());
            assert_eq!(moved, Ok(1));
        });
        until_asleep(number.recv().unwrap(), its, true);
        Locked {
            reader,
            writer,
            socket,
            holder,
        }
    }

    /// Has the holder put one byte into the pipe and release the lock.
    ///
    /// # Panics
    ///
    /// If the holder has panicked.
    pub fn release(self) -> (PipeReader, PipeWriter) {
        (&self.socket).write_all(b"x").unwrap();
        self.holder.join().unwrap();
        (self.reader, self.writer)
    }
}
