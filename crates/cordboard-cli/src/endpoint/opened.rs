//! An endpoint that is open.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use cordboard::{Ended, Errno, Request, Side, Sparse};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};

use super::sockets::linger::{self, Delivery};
use super::sockets::unix::SocketFile;
use crate::files::{id, is_pseudo, leftover, remove_unused};
use crate::problem::{Action, Problem, print_leftover};
use crate::signals::{check_stop, retry};
use crate::sys::{close, put_in_place};

/// How many times a duplicate is closed if a signal interrupts each close.
const ASKS: usize = 4;

/// What happens to the contents that a sink has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// They are replaced. A descriptor that was inherited is written from its
    /// position.
    Replace,
    /// They stay, and are written behind (`--append`).
    Append,
    /// They stay, except for the range that is written (`--sink-offset`).
    Keep,
}

/// An endpoint that is open.
pub struct Opened {
    /// Dropped first, so that it is removed while the socket is still open.
    pub(super) socket_file: Option<SocketFile>,
    descriptor: Descriptor,
    /// The name for messages.
    pub shown: String,
    /// A file that did not exist before.
    pub(super) created: Option<PathBuf>,
    /// An empty file that existed, or that was created as the target of a dangling symlink.
    pub(super) may_be_new: Option<PathBuf>,
    /// A file that existed, whose contents are to be replaced.
    pub replace: bool,
    /// It has no contents, as far as is known: a server may have some by now.
    pub(super) seems_empty: bool,
    stream: Option<StreamKind>,
    /// This direction of the connection was shut down.
    ended: bool,
}

/// A stream socket that this process has opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamKind {
    /// TCP.
    Tcp,
    /// UNIX.
    Unix,
}

enum Descriptor {
    Owned(OwnedFd),
    Connection(Connection),
    Inherited(BorrowedFd<'static>),
}

/// A sink that is a stream socket. However its transfer ends, the peer gets the bytes that were
/// written: see [`linger::end`].
struct Connection(OwnedFd);

impl Drop for Connection {
    fn drop(&mut self) {
        linger::end(self.0.as_fd());
    }
}

impl AsFd for Opened {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.descriptor {
            Descriptor::Owned(fd) | Descriptor::Connection(Connection(fd)) => fd.as_fd(),
            Descriptor::Inherited(fd) => *fd,
        }
    }
}

impl Opened {
    /// A descriptor that this process has opened.
    pub fn owned(fd: OwnedFd, shown: &str) -> Opened {
        Opened::new(Descriptor::Owned(fd), shown)
    }

    /// A sink that is a stream socket, which this process has opened.
    pub(super) fn connection(fd: OwnedFd, shown: &str, stream: StreamKind) -> Opened {
        let mut opened = Opened::new(Descriptor::Connection(Connection(fd)), shown);
        opened.stream = Some(stream);
        opened
    }

    /// A descriptor that this process was started with.
    pub fn inherited(fd: BorrowedFd<'static>, shown: &str) -> Opened {
        Opened::new(Descriptor::Inherited(fd), shown)
    }

    fn new(descriptor: Descriptor, shown: &str) -> Opened {
        Opened {
            descriptor,
            shown: shown.to_owned(),
            created: None,
            may_be_new: None,
            replace: false,
            seems_empty: false,
            stream: None,
            ended: false,
            socket_file: None,
        }
    }

    /// Waits until the peers of all have acknowledged everything, after a transfer with
    /// this ending. Returns for each the bytes that the peer has not acknowledged at the
    /// end of the wait: after the idle limit, or 10 s. The kernel still sends
    /// them after the end of the process.
    pub fn finish_all(
        all: &[&Opened],
        ended: Ended,
        idle: Option<Duration>,
    ) -> Vec<Result<u64, Problem>> {
        let streams = all.iter().filter_map(|opened| {
            Some(linger::Connection {
                socket: opened.as_fd(),
                tcp: opened.stream? == StreamKind::Tcp,
                ended: opened.ended,
            })
        });
        let streams: Vec<_> = streams.collect();
        let mut done = linger::finish(&streams, linger::limit(ended, idle)).into_iter();
        let deliver = |opened: &&Opened| match opened.stream.and_then(|_| done.next()) {
            None => Ok(0),
            Some(delivery) => opened.account_for(delivery?),
        };
        all.iter().map(deliver).collect()
    }

    fn account_for(&self, delivery: Delivery) -> Result<u64, Problem> {
        match delivery {
            Delivery::Acknowledged => Ok(0),
            Delivery::Broken(errno) => {
                let action = Action::TransferSocket;
                let mut problem = Problem::call(&self.shown, Side::Sink, errno, action);
                problem.text += ", before the peer had acknowledged everything";
                Err(problem)
            }
            Delivery::Unacknowledged(bytes) => Ok(bytes),
        }
    }

    /// Closes it. An error of the file system counts: see [`close`]. An
    /// inherited descriptor stays open: a duplicate is closed, which reports
    /// the same error.
    pub fn close(self) -> Result<(), Problem> {
        let asked = match self.descriptor {
            Descriptor::Owned(_) | Descriptor::Connection(_) => Ok(()),
            Descriptor::Inherited(_) => self.close_duplicate(),
        };
        let Opened {
            descriptor,
            shown,
            socket_file,
            ..
        } = self;
        drop(socket_file);
        let done = match descriptor {
            Descriptor::Owned(fd) => close(fd),
            Descriptor::Connection(_) | Descriptor::Inherited(_) => asked,
        };
        done.map_err(|errno| Problem::closing(shown, errno))
    }

    /// Closes an endpoint whose contents are on the disk (`fsync(2)`): `EINTR`
    /// is not an error then.
    pub fn close_synced(self) -> Result<(), Problem> {
        unless_interrupted(self.close())
    }

    /// Returns the error of the file system at the close of a duplicate
    /// (`filp_flush`, fs/open.c, is called for each); `Ok` if no duplicate can
    /// be made. Repeats a close that a signal has interrupted, with another
    /// duplicate.
    pub fn close_duplicate(&self) -> Result<(), rustix::io::Errno> {
        let file = |stat: Stat| FileType::from_raw_mode(stat.st_mode).is_file();
        let mut asks = 0;
        loop {
            let Ok(second) = cordboard::duplicate(self.as_fd()) else {
                return Ok(());
            };
            // If fstat(2) fails, the close may still report an error.
            let result = match cordboard::fstat(self).map_or(true, file) {
                true => close(second),
                false => Ok(()),
            };
            asks += 1;
            match result {
                Err(rustix::io::Errno::INTR) if asks < ASKS => {}
                result => return result,
            }
        }
    }

    /// Whether this process has opened it, so that no other uses its position.
    pub fn is_owned(&self) -> bool {
        !matches!(self.descriptor, Descriptor::Inherited(_))
    }

    /// Ends the writing: the reader sees the end now. Returns a connection that
    /// is still to be [finished](Opened::finish_all). Everything else is
    /// [closed](Opened::close).
    pub fn shut_down(mut self) -> Result<Option<Opened>, Problem> {
        if self.stream.is_none() {
            return self.close().map(|()| None);
        }
        // An error of a broken connection was reported by the transfer.
        self.ended = rustix::net::shutdown(&self, rustix::net::Shutdown::Write).is_ok();
        Ok(Some(self))
    }

    /// [Shuts down](Opened::shut_down) an endpoint whose contents are on the disk.
    pub fn shut_down_synced(self) -> Result<Option<Opened>, Problem> {
        unless_interrupted(self.shut_down())
    }

    /// Discards the contents that are to be replaced, unless a signal to stop
    /// means that nothing will replace them.
    pub fn empty(&self) -> Result<(), Problem> {
        if self.replace {
            check_stop()?;
            let failed = |e| Problem::call(&self.shown, Side::Sink, e, Action::Truncate);
            truncate(self.as_fd(), self.seems_empty).map_err(failed)?;
        }
        Ok(())
    }

    /// Returns the path of a file whose directory entry may be new, without symlinks.
    pub fn new_entry(&self) -> Option<PathBuf> {
        let path = self.may_be_new.as_ref();
        let target = || path.map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
        self.created.clone().or_else(target)
    }

    /// Whether the file did not exist before.
    pub fn is_new(&self) -> bool {
        self.created.is_some()
    }

    /// Removes a file that did not exist before and is empty, if no other
    /// process has it open. Returns the message about a file that stays.
    #[must_use]
    pub fn remove_if_unused(&self) -> Option<String> {
        let path = self.created.as_ref()?;
        // The account reports a file with contents.
        match cordboard::fstat(self) {
            Ok(stat) if stat.st_size > 0 => None,
            _ => leftover(&self.shown, remove_unused(CWD, path, self.as_fd())),
        }
    }

    /// As [`Opened::remove_if_unused`]. Prints the message.
    pub fn remove_or_say(&self) {
        if let Some(left) = self.remove_if_unused() {
            print_leftover(&left);
        }
    }
}

/// Ignores `EINTR` of a close: see [`Opened::close_synced`].
fn unless_interrupted<T: Default>(closed: Result<T, Problem>) -> Result<T, Problem> {
    match closed {
        Err(problem) if problem.errno == Some(Errno::EINTR) => Ok(T::default()),
        closed => closed,
    }
}

/// Truncates a file. One that seems empty is truncated too, as by `O_TRUNC`:
/// the kernel may have cached its size from before another process wrote to it
/// on the server. If that is refused, it is taken for empty.
///
/// Some pseudo files replace their contents only if they are opened with `O_TRUNC`, whatever
/// ftruncate(2) returns: control files of tracefs (`tracing_open`, kernel/trace/trace.c,
/// `probes_open`, trace_kprobe.c). Their size is always 0.
pub fn truncate(file: BorrowedFd<'_>, seems_empty: bool) -> rustix::io::Result<()> {
    if seems_empty && is_pseudo(file) && open_truncated(file).is_ok() {
        return Ok(());
    }
    match retry(|| rustix::fs::ftruncate(file, 0)) {
        Err(errno) if seems_empty && errno != rustix::io::Errno::INTR => Ok(()),
        done => done,
    }
}

/// Opens a file again with `O_TRUNC`, in the place of this descriptor. Needs procfs.
fn open_truncated(file: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    if id(&retry(|| rustix::fs::stat(&path))?) != id(&cordboard::fstat(file)?) {
        return Err(rustix::io::Errno::NOENT);
    }
    let mode = rustix::fs::fcntl_getfl(file)? & OFlags::RWMODE;
    let flags = mode | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOCTTY;
    let again = retry(|| rustix::fs::open(&path, flags, Mode::empty()))?;
    // A list that was opened for writing takes effect when it is closed, so the first one is
    // closed before anything is written (`ftrace_regex_release`, kernel/trace/ftrace.c).
    put_in_place(file, again)
}

/// Refuses `--sparse always` for a file that is open for appending, in which no
/// hole can be made, whichever process has opened it.
pub fn check_sparse(sink: BorrowedFd<'_>, shown: &str, request: &Request) -> Result<(), Problem> {
    if request.sparse != Sparse::Always {
        return Ok(());
    }
    let look = |errno| Problem::call(shown, Side::Sink, errno, Action::Open);
    let stat = cordboard::fstat(sink).map_err(look)?;
    let flags = rustix::fs::fcntl_getfl(sink).map_err(look)?;
    let file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !file || !flags.contains(OFlags::APPEND) {
        return Ok(());
    }
    refuse_sparse(shown, request)
}

/// Refuses `--sparse always` for a file that is, or would be, open for appending.
pub fn refuse_sparse(shown: &str, request: &Request) -> Result<(), Problem> {
    if request.sparse != Sparse::Always {
        return Ok(());
    }
    let text = "is open for appending, which excludes --sparse always";
    let problem = Problem::refused(shown, Side::Sink, Errno::EINVAL, text);
    Err(problem.help("nothing was written: omit --sparse always"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_close_is_repeated() {
        let file: &'static std::fs::File = Box::leak(Box::new(tempfile::tempfile().unwrap()));
        let opened = Opened::inherited(file.as_fd(), "standard output");
        // The number of times that the close is interrupted.
        for (interrupted, asks, says) in
            [(1, 2, Ok(())), (ASKS, ASKS, Err(rustix::io::Errno::INTR))]
        {
            let mut result = None;
            let ask = || result = Some(opened.close_duplicate());
            let errno = |count| (count < interrupted).then_some(libc::EINTR);
            let asked = testkit::midst::refusing(&[libc::SYS_close], ask, errno);
            let Some(asked) = asked else {
                return testkit::skip::here("no seccomp_unotify(2) here");
            };
            // The thread closes a pipe of the test at its end.
            assert_eq!((result, asked), (Some(says), asks + 1));
        }
    }
}
