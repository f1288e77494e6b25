//! Opening an endpoint.

use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cordboard::{Ended, Errno, Request, Side, Sparse};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::net::SocketType;

use super::linger::{self, Sent};
use super::name::Name;
use super::net::{self, Who};
use super::standard;
use super::unix::{self, SocketFile};
use crate::hints::Doing;
use crate::problem::Problem;
use crate::removal::{id, left, remove_unused};
use crate::signals::{again, go_on, interruptible};
use crate::sys::close;
use crate::there::there;

/// How often a file system is asked that says that a signal came.
const ASKS: usize = 4;

/// An endpoint that is open.
pub struct Opened {
    /// First, so that it is removed while the socket is still open.
    _file: Option<SocketFile>,
    held: Held,
    /// As the user knows it.
    pub shown: String,
    /// A file that did not exist before.
    pub created: Option<PathBuf>,
    /// A file that was there, whose contents are to be replaced.
    pub replace: bool,
    /// It has none, as far as is known: a server may have some by now.
    seems_empty: bool,
    stream: Option<Way>,
    /// Our direction was shut down.
    ended: bool,
}

/// A stream socket that we opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// TCP.
    Tcp,
    /// UNIX.
    Unix,
}

enum Held {
    Ours(OwnedFd),
    Given(BorrowedFd<'static>),
}

impl AsFd for Opened {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.held {
            Held::Ours(fd) => fd.as_fd(),
            Held::Given(fd) => *fd,
        }
    }
}

impl Opened {
    fn new(held: Held, shown: &str) -> Opened {
        Opened {
            held,
            shown: shown.to_owned(),
            created: None,
            replace: false,
            seems_empty: false,
            stream: None,
            ended: false,
            _file: None,
        }
    }

    /// After all was written, and the transfer has ended so: sees it through to
    /// the peer. Returns the bytes that the peer has not acknowledged when the
    /// wait ended: by the idle limit, or after 10 s. The kernel still sends them
    /// after the end of the process.
    pub fn finish(&self, ended: Ended, idle: Option<Duration>) -> Result<u64, Problem> {
        let Some(way) = self.stream else {
            return Ok(0);
        };
        let patience = linger::patience(ended, idle);
        match linger::finish(self.as_fd(), way == Way::Tcp, self.ended, patience)? {
            Sent::Taken => Ok(0),
            Sent::Broken(errno) => {
                let doing = Doing::MovingBySocket;
                let mut problem = Problem::call(&self.shown, Side::Sink, errno, doing);
                problem.text += ", before it had acknowledged everything";
                Err(problem)
            }
            Sent::Unacknowledged(bytes) => Ok(bytes),
        }
    }

    /// Closes it. What a file system says of a file then counts: see [`close`].
    /// A descriptor that was lent stays open, and the file system is asked by a
    /// second one.
    pub fn close(self) -> Result<(), Problem> {
        let asked = match self.held {
            Held::Ours(_) => Ok(()),
            Held::Given(_) => self.ask(),
        };
        let Opened {
            held, shown, _file, ..
        } = self;
        drop(_file);
        let done = match held {
            Held::Ours(fd) => close(fd),
            Held::Given(_) => asked,
        };
        done.map_err(|errno| Problem::closing(shown, errno))
    }

    /// The same of one whose contents are on the disk (`fsync(2)`), which a signal
    /// changes nothing about.
    pub fn close_synced(self) -> Result<(), Problem> {
        self.close().or_else(|problem| match problem.errno {
            Some(Errno::EINTR) => Ok(()),
            _ => Err(problem),
        })
    }

    /// What the file system of a file says at the close of a second descriptor
    /// (`filp_flush`, fs/open.c, is called for each); `Ok` if none can be made. A
    /// third is asked if a signal came.
    pub fn ask(&self) -> Result<(), rustix::io::Errno> {
        let file = |stat: Stat| FileType::from_raw_mode(stat.st_mode).is_file();
        let mut asks = 0;
        loop {
            let Ok(second) = rustix::io::fcntl_dupfd_cloexec(self, 3) else {
                return Ok(());
            };
            // Of what cannot be looked at, the close may still tell.
            let said = match rustix::fs::fstat(self).map_or(true, file) {
                true => close(second),
                false => Ok(()),
            };
            asks += 1;
            match said {
                Err(rustix::io::Errno::INTR) if asks < ASKS => {}
                said => return said,
            }
        }
    }

    /// This process has opened it, so no other uses its position.
    pub fn is_ours(&self) -> bool {
        matches!(self.held, Held::Ours(_))
    }

    /// Nothing more will be written: its reader sees the end now. What is
    /// left is a connection that is still to be [finished](Opened::finish); all
    /// else is [closed](Opened::close).
    pub fn end(mut self) -> Result<Option<Opened>, Problem> {
        if self.stream.is_none() {
            return self.close().map(|()| None);
        }
        // One that is broken has been told of by whoever wrote to it.
        self.ended = rustix::net::shutdown(&self, rustix::net::Shutdown::Write).is_ok();
        Ok(Some(self))
    }

    /// Throws the contents away that are to be replaced, unless a signal says
    /// that nothing will replace them.
    pub fn empty(&self) -> Result<(), Problem> {
        if self.replace {
            go_on()?;
            let failed = |e| Problem::call(&self.shown, Side::Sink, e, Doing::Emptying);
            cut(self.as_fd(), self.seems_empty).map_err(failed)?;
        }
        Ok(())
    }

    /// The file did not exist before.
    pub fn is_new(&self) -> bool {
        self.created.is_some()
    }

    /// Removes a file that did not exist before and is empty, if no other process
    /// has it open. Returns what is to be said of one that stays all the same.
    #[must_use]
    pub fn unmake(&self) -> Option<String> {
        let path = self.created.as_ref()?;
        // What has come to it is in the account.
        match rustix::fs::fstat(self) {
            Ok(stat) if stat.st_size > 0 => None,
            _ => left(&self.shown, remove_unused(CWD, path, self.as_fd())),
        }
    }
}

/// Throws a file's contents away. One that seems empty is cut too, as `O_TRUNC`
/// would: the kernel may have kept its size from before another process wrote to
/// it on the server. Where that is refused, it was empty.
pub fn cut(file: BorrowedFd<'_>, seems_empty: bool) -> rustix::io::Result<()> {
    match again(|| rustix::fs::ftruncate(file, 0)) {
        Err(errno) if seems_empty && errno != rustix::io::Errno::INTR => Ok(()),
        done => done,
    }
}

/// Opens a path, whatever is there; an interrupt ends the wait for a FIFO.
pub fn open_path(path: &Path, flags: OFlags, who: Who<'_>) -> Result<OwnedFd, Problem> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
    interruptible(|| rustix::fs::open(path, flags, Mode::empty()))?
        .map_err(|errno| standard::not_opened(path, who.shown, who.side, errno))
}

/// Opens the source.
pub fn source(name: &Name, shown: &str) -> Result<Opened, Problem> {
    let who = Who {
        shown,
        side: Side::Source,
    };
    match name {
        Name::Path(path) => {
            let fd = open_path(path, OFlags::RDONLY, who)?;
            Ok(Opened::new(Held::Ours(fd), shown))
        }
        Name::UnixDgram(path) => {
            let (fd, file) = unix::bind(path, SocketType::DGRAM, who)?;
            let mut opened = Opened::new(Held::Ours(fd), shown);
            opened._file = file;
            Ok(opened)
        }
        other => either(other, who),
    }
}

/// Opens the sink. A file that exists keeps its contents for now.
pub fn sink(name: &Name, shown: &str, append: bool) -> Result<Opened, Problem> {
    let who = Who {
        shown,
        side: Side::Sink,
    };
    match name {
        Name::Path(path) => sink_path(path, who, append),
        Name::UnixDgram(path) => {
            let fd = unix::connect(path, SocketType::DGRAM, who)?;
            Ok(Opened::new(Held::Ours(fd), shown))
        }
        other => {
            let opened = either(other, who)?;
            if append {
                appends(&opened, other, who)?;
            }
            Ok(opened)
        }
    }
}

/// A device has no end to add to: Linux would write it from the position on,
/// which is its first byte.
pub fn has_end(stat: &Stat, shown: &str) -> Result<(), Problem> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
        return Ok(());
    }
    let text = "it is a block device, which has no end to add to";
    let problem = Problem::refused(shown, Side::Sink, Errno::EINVAL, text);
    Err(problem.help("nothing was written: without --append, it is written from its first byte on"))
}

/// A file that somebody else opened, and not for appending, would be written
/// over from its position on, whatever `--append` says.
fn appends(opened: &Opened, name: &Name, who: Who<'_>) -> Result<(), Problem> {
    let look = |errno| who.problem(errno, Doing::Opening);
    let stat = rustix::fs::fstat(opened).map_err(look)?;
    let flags = rustix::fs::fcntl_getfl(opened).map_err(look)?;
    has_end(&stat, &opened.shown)?;
    let file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !file || flags.contains(OFlags::APPEND) {
        return Ok(());
    }
    let number = match name {
        Name::Fd(number) => number.to_string(),
        _ => String::new(),
    };
    let problem = who.problem(rustix::io::Errno::INVAL, Doing::Opening);
    Err(problem.help(format!(
        "it is not open for appending: open it with {number}>>FILE in the shell"
    )))
}

/// No hole is made in a file that is open for appending, whichever process has
/// opened it.
pub fn can_have_holes(sink: BorrowedFd<'_>, shown: &str, request: &Request) -> Result<(), Problem> {
    if request.sparse != Sparse::Always {
        return Ok(());
    }
    let look = |errno| Problem::call(shown, Side::Sink, errno, Doing::Opening);
    let stat = rustix::fs::fstat(sink).map_err(look)?;
    let flags = rustix::fs::fcntl_getfl(sink).map_err(look)?;
    let file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !file || !flags.contains(OFlags::APPEND) {
        return Ok(());
    }
    let text = "it is open for appending, where --sparse always makes no holes";
    let problem = Problem::refused(shown, Side::Sink, Errno::EINVAL, text);
    Err(problem.help("nothing was written: leave --sparse always out"))
}

fn sink_path(path: &Path, who: Who<'_>, append: bool) -> Result<Opened, Problem> {
    let mut flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    if append {
        flags |= OFlags::APPEND;
    }
    let mode = Mode::from_raw_mode(0o666);
    let exclusive = flags | OFlags::CREATE | OFlags::EXCL;
    match interruptible(|| rustix::fs::open(path, exclusive, mode))? {
        Ok(fd) => {
            let mut opened = Opened::new(Held::Ours(fd), who.shown);
            opened.created = Some(path.to_owned());
            return Ok(opened);
        }
        Err(rustix::io::Errno::EXIST) => {}
        // open(2) with O_CREAT says so of any name that ends in a slash.
        Err(errno @ rustix::io::Errno::ISDIR) => {
            let found = there(again(|| rustix::fs::stat(path)));
            let directory = |stat: Stat| FileType::from_raw_mode(stat.st_mode).is_dir();
            return Err(match found {
                Ok(found) if !found.is_some_and(directory) => {
                    let text = "there is no such directory";
                    let problem = Problem::refused(who.shown, who.side, Errno::ENOTDIR, text);
                    problem.help("make it first (mkdir), or leave the slash out")
                }
                found => who.problem(found.err().unwrap_or(errno), Doing::Opening),
            });
        }
        Err(errno) => return Err(who.problem(errno, Doing::Opening)),
    }
    let fd = match interruptible(|| rustix::fs::open(path, flags, mode))? {
        // A symlink to nothing yet: the file is made where it points to.
        Err(rustix::io::Errno::NOENT) => {
            interruptible(|| rustix::fs::open(path, flags | OFlags::CREATE, mode))?
        }
        other => other,
    };
    let fd = fd.map_err(|errno| standard::not_opened(path, who.shown, who.side, errno))?;
    let stat = rustix::fs::fstat(&fd).map_err(|errno| who.problem(errno, Doing::Opening))?;
    if append {
        has_end(&stat, who.shown)?;
    }
    let mut opened = Opened::new(Held::Ours(fd), who.shown);
    let file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    (opened.replace, opened.seems_empty) = (!append && file, stat.st_size == 0);
    Ok(opened)
}

/// Endpoints that are opened in the same way as a source and as a sink.
fn either(name: &Name, who: Who<'_>) -> Result<Opened, Problem> {
    let (fd, stream) = match name {
        Name::Standard => return standard_stream(who),
        Name::Fd(number) => {
            return match standard::inherited(*number) {
                Ok(fd) => Ok(Opened::new(Held::Given(fd), who.shown)),
                Err(errno @ rustix::io::Errno::BADF) => {
                    let help =
                        format!("open it in the shell, such as {number}<FILE or {number}>FILE");
                    Err(who.problem(errno, Doing::Opening).help(help))
                }
                Err(errno) => Err(who.problem(errno, Doing::Opening)),
            };
        }
        Name::Tcp(host) => (net::connect(host, SocketType::STREAM, who)?, Some(Way::Tcp)),
        Name::TcpListen(host) => (net::accept(host, who)?, Some(Way::Tcp)),
        Name::Udp(host) => (net::connect(host, SocketType::DGRAM, who)?, None),
        Name::UdpListen(host) => (net::datagrams(host, who)?, None),
        Name::Unix(path) => (
            unix::connect(path, SocketType::STREAM, who)?,
            Some(Way::Unix),
        ),
        Name::UnixListen(path) => (
            unix::accept(path, SocketType::STREAM, who)?,
            Some(Way::Unix),
        ),
        Name::UnixSeqpacket(path) => {
            let fd = unix::connect(path, SocketType::SEQPACKET, who)?;
            (fd, Some(Way::Unix))
        }
        Name::UnixSeqpacketListen(path) => {
            let fd = unix::accept(path, SocketType::SEQPACKET, who)?;
            (fd, Some(Way::Unix))
        }
        Name::Path(_) | Name::UnixDgram(_) => unreachable!("opened by side"),
    };
    let mut opened = Opened::new(Held::Ours(fd), who.shown);
    opened.stream = stream.filter(|_| who.side == Side::Sink);
    Ok(opened)
}

fn standard_stream(who: Who<'_>) -> Result<Opened, Problem> {
    let (fd, number, shown) = match who.side {
        Side::Source => (rustix::stdio::stdin(), 0, "standard input"),
        Side::Sink => (rustix::stdio::stdout(), 1, "standard output"),
    };
    if standard::was_closed(number) {
        let closed = Problem::call(shown, who.side, Errno::EBADF, Doing::Opening);
        return Err(closed.help("the program that started this command has closed it"));
    }
    Ok(Opened::new(Held::Given(fd), shown))
}

/// To replace a file's contents by its own would destroy them first. What both
/// files are.
pub fn same_file(
    source: BorrowedFd<'_>,
    source_shown: &str,
    sink: BorrowedFd<'_>,
    sink_shown: &str,
) -> Result<(Stat, Stat), Problem> {
    let stat = |fd, shown, side| {
        let failed = |errno| Problem::call(shown, side, errno, Doing::Opening);
        rustix::fs::fstat(fd).map_err(failed)
    };
    let a = stat(source, source_shown, Side::Source)?;
    let b = stat(sink, sink_shown, Side::Sink)?;
    match id(&a) == id(&b) {
        true => {
            Err(one_file(sink_shown, &source_shown).help("nothing was written: take another name"))
        }
        false => Ok((a, b)),
    }
}

/// The sink is the source.
pub fn one_file(sink: impl Into<String>, source: &dyn Display) -> Problem {
    let text = format!("it is the same file as the source, {source}");
    Problem::refused(sink, Side::Sink, Errno::EINVAL, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_signal_keeps_a_server_from_saying_is_asked_again() {
        let file: &'static std::fs::File = Box::leak(Box::new(tempfile::tempfile().unwrap()));
        let opened = Opened::new(Held::Given(file.as_fd()), "standard output");
        // So often is the close interrupted.
        for (interrupted, asks, says) in
            [(1, 2, Ok(())), (ASKS, ASKS, Err(rustix::io::Errno::INTR))]
        {
            let mut said = None;
            let ask = || said = Some(opened.ask());
            let errno = |count| (count < interrupted).then_some(libc::EINTR);
            let asked = testkit::midst::refusing(&[libc::SYS_close], ask, errno);
            let Some(asked) = asked else {
                return testkit::skip::here("no seccomp_unotify(2) here");
            };
            // The thread closes a pipe of the test at its end.
            assert_eq!((said, asked), (Some(says), asks + 1));
        }
    }
}
