//! The facts about a descriptor, as plain data.

use std::os::fd::OwnedFd;

use super::file_id::FileId;
use super::filesystem::Filesystem;
use super::kind::Kind;
use super::storage::Storage;
use crate::errno::Errno;
use crate::sys::identity;

/// The alignment that direct I/O requires, in bytes (`STATX_DIOALIGN`, since
/// Linux 6.1; 4096 before).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Alignment {
    /// Alignment of the buffer's address.
    pub memory: u32,
    /// Alignment of offset and length.
    pub offset: u32,
}

/// The facts about a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// The kind of object.
    pub kind: Kind,
    /// The identity of the file or block device; pipes and sockets have one
    /// too.
    pub id: Option<FileId>,
    /// The place of a block device in another device or in a file, if it is known to be a part
    /// of one.
    pub storage: Option<Storage>,
    /// Open for reading.
    pub readable: bool,
    /// Open for writing.
    pub writable: bool,
    /// `O_APPEND`: every write goes to the end.
    pub append: bool,
    /// `O_NONBLOCK`.
    pub nonblocking: bool,
    /// `O_DIRECT`: bypasses the page cache; on a pipe, packet mode.
    pub o_direct: bool,
    /// A FUSE file whose server requires reads that bypass the page cache
    /// (`FOPEN_DIRECT_IO`). `read(2)` bypasses it; the calls that take pages do
    /// not: `splice(2)`, `sendfile(2)`, `copy_file_range(2)`. Also set if the
    /// server's choice is unknown.
    pub unpaged: bool,
    /// A memory device (`mem(4)`, `random(4)`): bytes without boundaries, whose
    /// reads and writes never wait, except for reads of `/dev/random`.
    pub memory: bool,
    /// `/dev/random`, which is a memory device whose reads may wait (`random(4)`): until the
    /// generator is ready since Linux 5.6, before that whenever its pool is empty.
    pub waits_for_entropy: bool,
    /// `/dev/kmsg`, whose writes never wait (`devkmsg_write`, kernel/printk/printk.c), and which
    /// `poll(2)` never reports as writable.
    pub takes_at_once: bool,
    /// A generated file whose `poll(2)` does not report bytes to read, and
    /// whose reads never wait.
    pub polls_for_others: bool,
    /// A userfaultfd without `O_NONBLOCK` that can be read by `RWF_NOWAIT` (since Linux 6.10):
    /// `poll(2)` always reports an error and nothing else (`userfaultfd_poll`,
    /// fs/userfaultfd.c), and a read without this flag may wait. False if the kernel or a filter
    /// refuses the flag: it is then read as if it were ready.
    pub polls_error: bool,
    /// A listening socket.
    pub listening: bool,
    /// A socket whose `MSG_PEEK` consumes nothing.
    pub peeks: bool,
    /// A socket whose `MSG_TRUNC` returns the length of the next message. Sockets of other
    /// families return the number of bytes copied.
    pub tells_length: bool,
    /// A `SOCK_SEQPACKET` socket: a send requests the end of a record (`MSG_EOR`), as
    /// `write(2)` does.
    pub seqpacket: bool,
    /// A socket that has a connection and keeps message boundaries, other than a UNIX
    /// socket. A receive of 0 bytes may be its end.
    pub zero_ends: bool,
    /// A TCP connection that sends when a timer permits (BBR): each piece wakes the reader. Queried
    /// only if the choice of a path depends on it.
    pub paced: bool,
    /// The file position, or the request's offset in its place, in bytes; `None`
    /// if the descriptor cannot seek.
    pub position: Option<u64>,
    /// The size in bytes, if the object has one.
    pub size: Option<u64>,
    /// Bytes of storage allocated to a file.
    pub allocated: Option<u64>,
    /// The file system's preferred block size, in bytes.
    pub block: u32,
    /// The file system of the file. `None` for a file whose `fstatfs(2)` fails:
    /// it may be on any file system.
    pub filesystem: Option<Filesystem>,
    /// A file of overlayfs whose file system below may be FUSE or a network file system: the
    /// overlay does not show it, `statx(2)` does not report that the file can have the attribute
    /// *nodump*, and the kernel has no extent map of the file, or the file system may be SMB.
    /// Also true of some file systems on a disk, such as squashfs, vfat and ntfs3, which costs
    /// time only. [`Facts::has_true_size`] does not depend on it.
    pub may_be_served: bool,
    /// The alignment that direct I/O requires; set if [`Facts::o_direct`] is set,
    /// or if direct I/O may be chosen.
    pub alignment: Option<Alignment>,
    /// The percentage of the range to read that is in the page cache; queried
    /// only if direct I/O may be chosen. Otherwise the reason why it is unknown:
    /// `ENOSYS` before Linux 6.5; `EPERM` on newer kernels, which report it only
    /// to the owner of the file and to processes that may write to it
    /// (`can_do_cachestat`, mm/filemap.c).
    pub cached: Result<u8, Errno>,
}

impl Facts {
    /// Returns ordinary facts of this kind, for a route without a descriptor.
    pub fn plain(kind: Kind) -> Facts {
        let cached = kind.is_cached();
        Facts {
            kind,
            id: None,
            storage: None,
            readable: true,
            writable: true,
            append: false,
            nonblocking: false,
            o_direct: false,
            unpaged: false,
            memory: kind == Kind::CharDevice,
            waits_for_entropy: false,
            takes_at_once: false,
            polls_for_others: false,
            polls_error: false,
            listening: false,
            peeks: kind.is_socket(),
            tells_length: matches!(kind, Kind::Udp | Kind::UnixDatagram | Kind::UnixSeqpacket),
            seqpacket: kind == Kind::UnixSeqpacket,
            zero_ends: false,
            paced: false,
            position: (cached || kind == Kind::Pseudo).then_some(0),
            size: cached.then_some(1 << 30),
            allocated: kind.is_file().then_some(1 << 30),
            block: 4096,
            filesystem: None,
            may_be_served: false,
            alignment: None,
            cached: Err(Errno::ENODATA),
        }
    }

    /// Returns whether this number still refers to the file of these facts, as far as can be
    /// determined: the host may have closed it, and opened another file under it. An open
    /// file's inode number may change on an overlay (by a copy up) and on a file system whose
    /// server assigns it, and querying a server may block forever.
    pub(crate) fn is_still(&self, fd: &OwnedFd) -> bool {
        let stays = match self.filesystem {
            Some(fs) => fs.keeps_identities(),
            None => self.kind == Kind::Pipe || self.kind.is_socket(),
        };
        let known = self.id.filter(|_| stays);
        let now = known.and_then(|_| identity(fd));
        match (known, now) {
            (Some(id), Some(now)) => now == (id.device, id.inode),
            // Detects a closed descriptor whose number is free.
            _ => rustix::io::fcntl_getfd(fd) != Err(rustix::io::Errno::BADF),
        }
    }

    /// Returns whether the file has a position: it can be read again after a
    /// rewind, and written at an offset.
    pub fn is_seekable(&self) -> bool {
        self.position.is_some()
    }

    /// Returns the offsets at which two files or block devices begin in the one that has the
    /// bytes of both: one of the two, or a disk or a file of which both are parts.
    pub(crate) fn starts_in_common(&self, other: &Facts) -> Option<(u64, u64)> {
        let whole = |facts: &Facts| facts.id.map(|id| Storage { id, start: 0 });
        let [these, those] = [self, other].map(|facts| [whole(facts), facts.storage]);
        these.iter().flatten().find_map(|one| {
            let is_same = |other: &&Storage| other.id == one.id;
            let other = those.iter().flatten().find(is_same)?;
            Some((one.start, other.start))
        })
    }

    /// Returns whether fewer bytes are allocated to the file than its size: it
    /// has holes, or the file system compresses.
    pub fn may_have_holes(&self) -> bool {
        match (self.size, self.allocated) {
            (Some(size), Some(allocated)) => self.kind.is_file() && allocated < size,
            _ => false,
        }
    }

    /// Returns whether it is a file on a local file system, whose size is
    /// reliable. True for every file of overlayfs.
    pub fn has_true_size(&self) -> bool {
        self.kind == Kind::File && self.filesystem.is_some_and(|fs| !fs.is_foreign())
    }

    /// Returns whether a call on the descriptor can wait for another process
    /// without limit.
    pub fn can_block(&self) -> bool {
        self.kind.can_block() && !self.memory
    }

    /// Returns whether a write can wait for another process without limit.
    pub fn writing_waits(&self) -> bool {
        self.can_block() && !self.takes_at_once
    }

    /// Returns whether a read can wait for another process without limit. Reads
    /// of some generated files do, such as `/proc/kmsg` and tracefs'
    /// `trace_pipe`, and those of `/dev/random`.
    pub fn reading_waits(&self) -> bool {
        let may_be_pseudo = self.kind == Kind::File && self.filesystem.is_none() && self.unpaged;
        let pseudo = self.kind == Kind::Pseudo && !self.polls_for_others;
        self.can_block() || pseudo || may_be_pseudo || self.waits_for_entropy
    }

    /// Returns whether `poll(2)` of it may wait for a FUSE server, beyond its timeout
    /// (`fuse_file_poll`, fs/fuse/file.c). `epoll_ctl(2)` then waits too, with the lock
    /// of the epoll instance held. Such a file is never polled and counts as ready, as a
    /// file without poll does.
    ///
    /// False for a file that may be generated, even if it may be on FUSE: its reads may
    /// wait for bytes that only `poll(2)` reports.
    pub fn polling_waits(&self) -> bool {
        self.kind == Kind::File && self.may_be_on(Filesystem::is_fuse) && !self.reading_waits()
    }

    /// Returns whether its file system, or that below an overlay, may be one that `of`
    /// accepts. True for a file whose file system is unknown.
    pub(crate) fn may_be_on(&self, of: impl Fn(Filesystem) -> bool) -> bool {
        match self.filesystem {
            Some(filesystem) => of(filesystem) || self.may_be_served && of(Filesystem::FUSE),
            None => self.kind == Kind::File,
        }
    }

    /// Returns whether each read and write of the device may be a message, as of
    /// `/dev/net/tun`. No query shows it.
    pub fn may_be_messages(&self) -> bool {
        self.kind == Kind::CharDevice && !self.memory
    }

    /// Returns whether each read returns one message, or may, or whole records: datagrams keep
    /// them whole, unless the caller chooses a length.
    pub(crate) fn reads_are_messages(&self) -> bool {
        self.kind.is_record() || self.kind == Kind::Tty || self.may_be_messages()
    }

    /// Returns whether each write is, or may be, a message of its own.
    pub(crate) fn preserves_boundaries(&self) -> bool {
        self.kind.is_datagram() || self.is_packet_pipe() || self.may_be_messages()
    }

    /// Returns whether a read may have to be as long as the buffer, and a write as long as
    /// the caller's block: the length of a record or the alignment that it requires is
    /// unknown.
    pub(crate) fn has_pieces(&self) -> bool {
        matches!(self.kind, Kind::Pseudo | Kind::Other) || self.may_be_messages()
    }

    /// Returns whether every write goes to the end of the file. Block devices
    /// ignore `O_APPEND`: they are written at the position (`blkdev_write_iter`,
    /// block/fops.c).
    pub(crate) fn appends(&self) -> bool {
        self.append && self.kind.is_file()
    }

    /// Returns whether it is open for direct I/O: `O_DIRECT` on a file or block
    /// device.
    pub fn is_direct(&self) -> bool {
        self.kind.is_cached() && self.o_direct
    }

    /// Returns whether it is the write end of a pipe in packet mode (`pipe2(2)`,
    /// `O_DIRECT`), in which a short read loses the rest of a packet. The read
    /// end does not show the mode.
    pub fn is_packet_pipe(&self) -> bool {
        self.kind.is_pipe() && self.o_direct
    }
}
