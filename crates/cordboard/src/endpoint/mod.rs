//! A descriptor and what is behind it.
//!
//! [`Facts`] is plain data, so that the route can be decided, and tested,
//! without a descriptor; [`Endpoint`] is the descriptor with its facts.

mod filesystem;
mod kind;
mod probe;
mod reopen;
pub(crate) mod resets;
mod socket;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::OFlags;

pub use filesystem::{CloneAbility, Filesystem};
pub use kind::{Kind, Side};
pub(crate) use probe::{direct_alignment, has_hung_up, is_pty_master};
pub(crate) use reopen::reopen;

use crate::errno::Errno;

/// The identity of a file: no two files that exist at once share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    /// `st_dev`, or `st_rdev` for a block device.
    pub device: u64,
    /// `st_ino`; 0 for a block device.
    pub inode: u64,
}

/// Alignment that direct I/O asks for, in bytes (`STATX_DIOALIGN`, since
/// Linux 6.1; the logical block size before).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Alignment {
    /// Of the buffer's address.
    pub memory: u32,
    /// Of offset and length.
    pub offset: u32,
}

/// What is known of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// What is behind it.
    pub kind: Kind,
    /// Which file or block device it is; pipes and sockets have one too.
    pub id: Option<FileId>,
    /// Open for reading.
    pub readable: bool,
    /// Open for writing.
    pub writable: bool,
    /// `O_APPEND`: every write goes to the end.
    pub append: bool,
    /// `O_NONBLOCK`.
    pub nonblocking: bool,
    /// `O_DIRECT`: past the page cache; on a pipe, packet mode.
    pub direct: bool,
    /// A file of a FUSE server that has it read past the page cache
    /// (`FOPEN_DIRECT_IO`). `read(2)` does that, and calls that take pages do
    /// not: `splice(2)`, `sendfile(2)`, `copy_file_range(2)`. Set too where
    /// nothing tells whether it is one.
    pub unpaged: bool,
    /// A device of memory (`mem(4)`, `random(4)`): bytes without boundaries,
    /// for which nobody waits.
    pub memory: bool,
    /// A made-up file whose `poll(2)` tells of something else than of bytes to
    /// read, and whose reads never wait.
    pub polls_for_others: bool,
    /// A socket that only accepts connections.
    pub listening: bool,
    /// The position, in bytes, or the offset that a transfer goes by instead;
    /// `None` for what cannot seek.
    pub position: Option<u64>,
    /// Size in bytes, where there is one.
    pub size: Option<u64>,
    /// Bytes of storage allocated to a file.
    pub allocated: Option<u64>,
    /// The file system's preferred block, in bytes.
    pub block: u32,
    /// The file system it is on. `None` of a file: it is unknown, since
    /// `fstatfs(2)` fails, and may be any.
    pub filesystem: Option<Filesystem>,
    /// What direct I/O asks for; set where [`Facts::direct`] is, and where
    /// direct I/O may be the way.
    pub alignment: Option<Alignment>,
    /// Percent of what is to be read that is in the page cache; asked for only
    /// where direct I/O may be the way. Otherwise why it is not known: `ENOSYS`
    /// before Linux 6.5, `EPERM` where newer kernels tell only the owner, and
    /// who may write to it (`can_do_cachestat`, mm/filemap.c).
    pub cached: Result<u8, Errno>,
}

impl Facts {
    /// Facts of this kind with nothing special about them, for trying the
    /// route without a descriptor.
    pub fn plain(kind: Kind) -> Facts {
        let cached = kind.is_cached();
        Facts {
            kind,
            id: None,
            readable: true,
            writable: true,
            append: false,
            nonblocking: false,
            direct: false,
            unpaged: false,
            memory: kind == Kind::CharDevice,
            polls_for_others: false,
            listening: false,
            position: (cached || kind == Kind::Pseudo).then_some(0),
            size: cached.then_some(1 << 30),
            allocated: kind.is_file().then_some(1 << 30),
            block: 4096,
            filesystem: None,
            alignment: None,
            cached: Err(Errno::ENODATA),
        }
    }

    /// Can be read again after a rewind, and written at an offset.
    pub fn is_seekable(&self) -> bool {
        self.position.is_some()
    }

    /// Fewer bytes are allocated than its size tells: it has holes, or the
    /// file system compresses.
    pub fn may_have_holes(&self) -> bool {
        match (self.size, self.allocated) {
            (Some(size), Some(allocated)) => self.kind.is_file() && allocated < size,
            _ => false,
        }
    }

    /// A file on a local file system, whose size is true.
    pub fn has_true_size(&self) -> bool {
        self.kind == Kind::File && self.filesystem.is_some_and(|fs| !fs.is_foreign())
    }

    /// Whether a call on it can block on another process without limit.
    pub fn can_block(&self) -> bool {
        self.kind.can_block() && !self.memory
    }

    /// Whether reading it can wait so. Some of the files that are made up on the
    /// fly do, such as `/proc/kmsg` and tracefs' `trace_pipe`.
    pub fn reading_waits(&self) -> bool {
        let may_be_pseudo = self.kind == Kind::File && self.filesystem.is_none() && self.unpaged;
        let pseudo = self.kind == Kind::Pseudo && !self.polls_for_others;
        self.can_block() || pseudo || may_be_pseudo
    }

    /// Whether its file system is one of these, as far as is known: that of a
    /// file may be unknown.
    pub(crate) fn may_be_on(&self, of: impl FnOnce(Filesystem) -> bool) -> bool {
        match self.filesystem {
            Some(filesystem) => of(filesystem),
            None => self.kind == Kind::File,
        }
    }

    /// A device each of whose reads and writes may be a message, as those of
    /// `/dev/net/tun` are; nothing tells.
    pub fn may_be_messages(&self) -> bool {
        self.kind == Kind::CharDevice && !self.memory
    }

    /// Every write goes to the end. Block devices are written at the position,
    /// whatever `O_APPEND` says (`blkdev_write_iter`, block/fops.c).
    pub(crate) fn appends(&self) -> bool {
        self.append && self.kind.is_file()
    }

    /// Opened for direct I/O, which `O_DIRECT` means for what has a page cache.
    pub fn is_direct(&self) -> bool {
        self.kind.is_cached() && self.direct
    }

    /// A pipe in packet mode (`pipe2(2)`, `O_DIRECT`): what a short read
    /// leaves of a packet is lost. Only the write end shows it.
    pub fn is_packet_pipe(&self) -> bool {
        self.kind.is_pipe() && self.direct
    }
}

/// Whether two descriptors share one open description, and with it position
/// and flags: the same number, `F_DUPFD_QUERY` (since Linux 6.10), or `kcmp(2)`
/// (since Linux 3.5, where configured and not filtered). `false` if neither can
/// tell.
pub fn same_description(a: impl AsFd, b: impl AsFd) -> bool {
    crate::sys::same_description(a.as_fd(), b.as_fd())
}

/// A descriptor and its facts.
#[derive(Debug, Clone, Copy)]
pub struct Endpoint<'fd> {
    fd: BorrowedFd<'fd>,
    /// Of the descriptor that the caller knows it by.
    number: RawFd,
    facts: Facts,
}

impl<'fd> Endpoint<'fd> {
    /// Looks at a descriptor; nothing of it is changed.
    ///
    /// # Errors
    ///
    /// `EBADF`: not open. As `getsockopt(2)` of a socket, where a filter refuses to
    /// tell its type and procfs does not list it. Otherwise as `fstat(2)`.
    pub fn probe(fd: BorrowedFd<'fd>) -> Result<Endpoint<'fd>, Errno> {
        Ok(Endpoint {
            fd,
            number: fd.as_raw_fd(),
            facts: probe::facts(fd, None, None)?,
        })
    }

    /// The same for a transfer, which knows one endpoint already, or an offset.
    pub(crate) fn probe_for(
        fd: BorrowedFd<'fd>,
        other: Option<&Endpoint<'_>>,
        offset: Option<u64>,
    ) -> Result<Endpoint<'fd>, Errno> {
        Ok(Endpoint {
            fd,
            number: fd.as_raw_fd(),
            facts: probe::facts(fd, other.map(Endpoint::facts), offset)?,
        })
    }

    /// The same with other facts, where the caller knows better than the
    /// descriptor tells: of a device, say, that an `O_PATH` one stands for.
    #[must_use]
    pub fn with_facts(self, facts: Facts) -> Endpoint<'fd> {
        Endpoint { facts, ..self }
    }

    /// The same by another descriptor of it.
    pub(crate) fn on<'other>(&self, fd: BorrowedFd<'other>) -> Endpoint<'other> {
        Endpoint {
            fd,
            number: self.number,
            facts: self.facts,
        }
    }

    /// Opens a terminal again with `O_NONBLOCK`; `None` for anything else, and
    /// where that fails. A terminal that has the flag is opened again too: another
    /// process that shares its description may clear the flag right before a
    /// call.
    pub(crate) fn without_waiting(&self, side: Side) -> Option<OwnedFd> {
        let flags = match side {
            Side::Source => OFlags::RDONLY,
            Side::Sink => OFlags::WRONLY,
        };
        let is_terminal = self.facts.kind == Kind::Tty;
        is_terminal.then(|| reopen::reopen_terminal(self.fd, flags))?
    }

    /// The same, which the caller knows by this number.
    pub(crate) fn known_as(self, number: RawFd) -> Endpoint<'fd> {
        Endpoint { number, ..self }
    }

    /// The number that the caller knows it by; a transfer may have a duplicate.
    pub(crate) fn number(&self) -> RawFd {
        self.number
    }

    /// The descriptor, for as long as it was lent.
    pub fn fd(&self) -> BorrowedFd<'fd> {
        self.fd
    }

    /// What is known of it.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// What is behind it.
    pub fn kind(&self) -> Kind {
        self.facts.kind
    }

    /// It is open for this direction, and has no such operation.
    pub(crate) fn lacks_operation(&self, side: Side) -> bool {
        probe::lacks_operation(self.fd, &self.facts, side)
    }

    /// Asks for what direct I/O depends on: the alignment, and of a source of
    /// which these bytes are to be read, how many of them are in the page cache.
    pub(crate) fn look_closer(&mut self, start_and_length: Option<(u64, u64)>) {
        self.facts.alignment = self.direct_alignment();
        if let Some((start, length)) = start_and_length {
            self.facts.cached = probe::cached_percent(self.fd, start, length);
        }
    }

    /// The share of a file's pages that are in the page cache, 0 to 1.
    /// `None` where the kernel does not tell. Since Linux 6.5
    /// (`cachestat(2)`).
    pub fn cached_share(&self) -> Option<f64> {
        probe::cached_share(self.fd, &self.facts)
    }

    /// What direct I/O on it asks for; `None` where it has none. Since
    /// Linux 6.1 (`STATX_DIOALIGN`).
    pub fn direct_alignment(&self) -> Option<Alignment> {
        probe::direct_alignment(self.fd)
    }
}

impl AsFd for Endpoint<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd
    }
}
