//! The control descriptor of the caller.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FileType, fstatfs};
use rustix::net::socketpair;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::protocol::{Command, Record, Records};
use super::registry::{Held, Message, New, NewLink, Registry, Socket};
use super::service::{existing, registry};
use crate::endpoint::{Endpoint, Filesystem, Kind};
use crate::errno::Errno;
use crate::request::Environment;
use crate::sys::{Origin, beyond, duplicate, fstat, recv, send};
use crate::transfer::Control;

/// A control descriptor: commands are written to it, and records are read from it.
///
/// No byte moves before a transfer is commanded. The descriptor can be polled, duplicated
/// and passed to another process. `docs/cue-protocol.md` describes the bytes; this type
/// encodes and decodes them. Once all copies of the descriptor are closed, transfers that
/// end by themselves are still carried out: those with a size, those from a file or a block
/// device, and those of a link. All other transfers are cancelled. The source and the sink
/// are then closed: a file, a directory or a block device before the end of the records can be read,
/// any other descriptor about that time.
///
/// Up to 32 transfers wait for the running one. Further commands stay in the socket. Of the
/// commands in the next 1024 bytes, those that start no transfer take effect at once;
/// `docs/cue-protocol.md` has the exceptions. While 1 KiB of
/// records waits to be read, no command is carried out. Reports of progress are left out and
/// counted while any record waits; no other record is lost. A process that writes and does
/// not read is therefore blocked.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use cordboard::cue::{Command, Cue, Record};
/// use std::io::{Read, Write};
/// let (source, mut feed) = std::io::pipe()?;
/// let (mut end, sink) = std::io::pipe()?;
/// feed.write_all(b"number, please")?;
/// let mut cue = Cue::new(&source, &sink)?;
/// cue.send(Command::Write(6))?;
/// assert_eq!(cue.receive()?, Some(Record::Started(1)));
/// let Some(Record::Done(done)) = cue.receive()? else { panic!() };
/// assert_eq!(done.written, 6);
/// let mut word = [0; 6];
/// end.read_exact(&mut word)?;
/// assert_eq!(&word, b"number");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Cue {
    socket: OwnedFd,
    records: Records,
}

impl Cue {
    /// Creates a control descriptor for transfers from `source` to `sink`. It uses
    /// duplicates of both (`dup(2)`).
    ///
    /// If `sink` is a control descriptor of this process, the two are linked: the bytes of
    /// the source, which is usually a socket, are commands to `sink`, and the answers of
    /// `sink` to them go back to the source. If that is a file or a block device, or a FIFO or a
    /// device node on a file system other than tmpfs, devtmpfs and devpts, each transfer of the
    /// link ends with `EINVAL`. `sink` reads the commands of each link, and those
    /// of its owner, separately: an incomplete or refused command changes no other one. Records
    /// of a transfer go to the side that has commanded it.
    ///
    /// # Errors
    ///
    /// `EBADF`, or another errno of `fstat(2)`: one of the descriptors is not open, or the
    /// calling thread has its own descriptor table (`unshare(2)` with `CLONE_FILES`).
    /// `EINVAL`: an environment variable has an unknown value. It is read here, for all transfers.
    /// `EMFILE`, `ENFILE`, `ENOMEM`, `EAGAIN`: no descriptors, memory or thread are
    /// available. Another errno: a seccomp filter refuses `socketpair(2)`,
    /// `epoll_create1(2)` or another call.
    pub fn new(source: impl AsFd, sink: impl AsFd) -> Result<Cue, Errno> {
        Cue::new_in(Origin::here(), source, sink)
    }

    /// As [`Cue::new`], in a call that has begun here. `ECHILD`: a signal handler has forked
    /// since, and the call continues in the parent.
    ///
    /// Public for the C library only; not part of the API.
    ///
    /// # Errors
    ///
    /// As [`Cue::new`].
    #[doc(hidden)]
    pub fn new_in(origin: Origin, source: impl AsFd, sink: impl AsFd) -> Result<Cue, Errno> {
        let registry = registry()?;
        if registry.served_by.has_other_descriptors() {
            return Err(Errno::EBADF);
        }
        let cue = Cue::of(registry, source.as_fd(), sink.as_fd())?;
        // In the child, the registry may be that of the parent, which no thread serves.
        match origin.is_this_process() {
            true => Ok(cue),
            false => Err(Errno::ECHILD),
        }
    }

    /// Creates a control descriptor that the thread of this registry serves.
    pub(super) fn of(
        registry: &Arc<Registry>,
        source: BorrowedFd<'_>,
        sink: BorrowedFd<'_>,
    ) -> Result<Cue, Errno> {
        let environment = Environment::read()?;
        // A link has its own connection to the target, so that an incomplete command of its
        // peer does not swallow those of the owner.
        let (sink, link) = match registry.find(sink) {
            Some(target) => {
                let held_open = duplicate(sink)?;
                let (near, far) = pair()?;
                let socket = Socket::new(registry, far);
                let link = NewLink {
                    target,
                    socket,
                    held_open,
                };
                (near, Some(link))
            }
            None => (duplicate(sink)?, None),
        };
        let types = [source, sink.as_fd()].map(file_type);
        let may_wait = may_wait(source, types[0]) || may_wait(sink.as_fd(), types[1]);
        let files = types.map(is_file);
        let ends = [duplicate(source)?, sink];
        let (socket, own) = pair()?;
        let id = registry.next_id();
        let new = New {
            id,
            socket: Socket::new(registry, own),
            held: Held::new(
                registry,
                ends,
                files,
                Control::new()?.exclusive(),
                environment,
            ),
            kind: kind_of(source),
            may_wait,
            link,
        };
        registry.insert(&socket, id);
        registry.send(Message::New(Box::new(new)));
        Ok(Cue::from(socket))
    }

    /// Returns whether this is a control descriptor, or a copy of one, that this
    /// process has made and that is still served.
    pub fn is_control(fd: impl AsFd) -> bool {
        existing().is_some_and(|registry| registry.find(fd).is_some())
    }

    /// Sends a command. Blocks while the socket is full; see [`Cue`].
    ///
    /// # Errors
    ///
    /// `EPIPE`: the service has ended, or accepts no more commands, because a descriptor was
    /// passed to it (`SCM_RIGHTS`) or a seccomp filter refuses its calls. `EAGAIN`: the
    /// descriptor has `O_NONBLOCK`, and its socket is full; a part of the command may be sent.
    pub fn send(&self, command: Command) -> Result<(), Errno> {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        let mut left = &bytes[..];
        while !left.is_empty() {
            match send(self.socket.as_fd(), left, SendFlags::NOSIGNAL).map_err(Errno::from) {
                Ok(sent) => left = &left[sent..],
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Waits for a record. `None`: there are no more.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: the descriptor has `O_NONBLOCK`, and there is none yet. Otherwise as
    /// `recv(2)`.
    pub fn receive(&mut self) -> Result<Option<Record>, Errno> {
        loop {
            if let Some(record) = self.records.next() {
                return Ok(Some(record));
            }
            let mut bytes = [0; 1024];
            match recv(self.socket.as_fd(), &mut bytes, RecvFlags::empty()).map_err(Errno::from) {
                Ok(0) => return Ok(None),
                Ok(n) => self.records.push(&bytes[..n]),
                Err(Errno::EINTR) => {}
                // The service has ended with commands unread.
                Err(Errno::ECONNRESET) => return Ok(None),
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// Returns a socket pair, with numbers above those of the standard streams.
fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = SocketFlags::CLOEXEC;
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok((beyond(near)?, beyond(far)?))
}

fn kind_of(source: BorrowedFd<'_>) -> Option<Kind> {
    Endpoint::probe(source).ok().map(|source| source.kind())
}

fn file_type(fd: BorrowedFd<'_>) -> Option<FileType> {
    let stat = fstat(fd).ok()?;
    Some(FileType::from_raw_mode(stat.st_mode))
}

/// Returns whether a query of this file may wait: for its server, also if it is the node of a
/// FIFO or a device; or for the lock of its position, which a `read(2)` or `write(2)` of
/// another process holds (`fdget_pos`, fs/file.c).
fn may_wait(fd: BorrowedFd<'_>, file_type: Option<FileType>) -> bool {
    match file_type {
        Some(FileType::Socket) | None => false,
        Some(FileType::RegularFile | FileType::Directory) => true,
        Some(_) => !fstatfs(fd).is_ok_and(|found| Filesystem::of(&found).is_of_kernel()),
    }
}

/// Returns whether this is a file, a directory or a block device: the name, the file system or the
/// device may be in use while it is open.
fn is_file(file_type: Option<FileType>) -> bool {
    matches!(
        file_type,
        Some(FileType::RegularFile | FileType::Directory | FileType::BlockDevice)
    )
}

/// A descriptor that is, or is connected to, a control descriptor: one that another
/// process has passed, or a socket that is linked with one.
impl From<OwnedFd> for Cue {
    fn from(socket: OwnedFd) -> Cue {
        Cue {
            socket,
            records: Records::default(),
        }
    }
}

impl From<Cue> for OwnedFd {
    fn from(cue: Cue) -> OwnedFd {
        cue.socket
    }
}

impl AsFd for Cue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other kinds than a regular file may be on a server too.
    #[test]
    fn what_a_server_may_answer_is_known() {
        let waits = |fd: &dyn AsFd| may_wait(fd.as_fd(), file_type(fd.as_fd()));
        let open = |path| std::fs::File::open(path).unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(!waits(&reader) && !waits(&writer) && !waits(&socket));
        let event = crate::sys::WakeFd::new().unwrap();
        assert!(!waits(&event));
        assert!(waits(&tempfile::tempfile().unwrap()) && waits(&open("/")));
        // No list has this file system: it is the magic that counts, not the kind.
        let link = rustix::fs::open(
            "/proc/self/exe",
            rustix::fs::OFlags::PATH | rustix::fs::OFlags::NOFOLLOW,
            rustix::fs::Mode::empty(),
        );
        assert!(waits(&link.unwrap()));
    }
}
