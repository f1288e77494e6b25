//! What is known of a descriptor, as plain data.

use super::filesystem::Filesystem;
use super::kind::Kind;
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
