//! What is behind a descriptor.

use std::fmt;

/// One of the two ends of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Where the bytes come from.
    Source,
    /// Where they go.
    Sink,
}

impl Side {
    /// The word of the JSON line: `source`, `sink`.
    pub fn name(self) -> &'static str {
        match self {
            Side::Source => "source",
            Side::Sink => "sink",
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The kind of object behind a descriptor, as far as moving bytes can tell
/// the difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A regular file.
    File,
    /// A memory file: `memfd_create(2)`.
    Memfd,
    /// A regular file of procfs, sysfs and their like, whose size says nothing
    /// about what a read returns.
    Pseudo,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// A character device that is no terminal.
    CharDevice,
    /// A terminal.
    Tty,
    /// An unnamed pipe.
    Pipe,
    /// A named pipe.
    Fifo,
    /// A TCP socket.
    Tcp,
    /// A UDP socket.
    Udp,
    /// A UNIX stream socket.
    UnixStream,
    /// A UNIX datagram socket.
    UnixDatagram,
    /// A UNIX sequenced-packet socket.
    UnixSeqpacket,
    /// A stream socket of another family.
    StreamSocket,
    /// A datagram or packet socket of another family.
    DatagramSocket,
    /// An event counter: `eventfd(2)`.
    Eventfd,
    /// A timer: `timerfd_create(2)`.
    Timerfd,
    /// Signals as records: `signalfd(2)`.
    Signalfd,
    /// File events as records: `inotify(7)`.
    Inotify,
    /// Anything else.
    Other,
}

impl Kind {
    /// Every kind, for tables and exhaustive tests.
    pub const ALL: &'static [Kind] = &[
        Kind::File,
        Kind::Memfd,
        Kind::Pseudo,
        Kind::Directory,
        Kind::BlockDevice,
        Kind::CharDevice,
        Kind::Tty,
        Kind::Pipe,
        Kind::Fifo,
        Kind::Tcp,
        Kind::Udp,
        Kind::UnixStream,
        Kind::UnixDatagram,
        Kind::UnixSeqpacket,
        Kind::StreamSocket,
        Kind::DatagramSocket,
        Kind::Eventfd,
        Kind::Timerfd,
        Kind::Signalfd,
        Kind::Inotify,
        Kind::Other,
    ];

    /// A name for people: `regular file`, `TCP socket`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::File => "regular file",
            Kind::Memfd => "memory file",
            Kind::Pseudo => "pseudo file",
            Kind::Directory => "directory",
            Kind::BlockDevice => "block device",
            Kind::CharDevice => "character device",
            Kind::Tty => "terminal",
            Kind::Pipe => "pipe",
            Kind::Fifo => "FIFO",
            Kind::Tcp => "TCP socket",
            Kind::Udp => "UDP socket",
            Kind::UnixStream => "UNIX stream socket",
            Kind::UnixDatagram => "UNIX datagram socket",
            Kind::UnixSeqpacket => "UNIX seqpacket socket",
            Kind::StreamSocket => "stream socket",
            Kind::DatagramSocket => "datagram socket",
            Kind::Eventfd => "eventfd",
            Kind::Timerfd => "timerfd",
            Kind::Signalfd => "signalfd",
            Kind::Inotify => "inotify",
            Kind::Other => "unknown descriptor",
        }
    }

    /// A regular file with a size that can be relied on, in a page cache.
    pub fn is_file(self) -> bool {
        matches!(self, Kind::File | Kind::Memfd)
    }

    /// Has pages in the page cache and positions: files and block devices.
    pub fn is_cached(self) -> bool {
        self.is_file() || self == Kind::BlockDevice
    }

    /// A pipe, named or not.
    pub fn is_pipe(self) -> bool {
        matches!(self, Kind::Pipe | Kind::Fifo)
    }

    /// Any socket.
    pub fn is_socket(self) -> bool {
        self.is_stream_socket() || self.is_datagram()
    }

    /// A socket that carries a stream of bytes.
    pub fn is_stream_socket(self) -> bool {
        matches!(self, Kind::Tcp | Kind::UnixStream | Kind::StreamSocket)
    }

    /// A socket that keeps the boundaries of its messages.
    pub fn is_datagram(self) -> bool {
        matches!(
            self,
            Kind::Udp | Kind::UnixDatagram | Kind::UnixSeqpacket | Kind::DatagramSocket
        )
    }

    /// Read in whole records of the kernel's own making.
    pub fn is_record(self) -> bool {
        matches!(
            self,
            Kind::Eventfd | Kind::Timerfd | Kind::Signalfd | Kind::Inotify
        )
    }

    /// Whether a call on it can block on another process without limit.
    pub fn can_block(self) -> bool {
        !matches!(
            self,
            Kind::File | Kind::Memfd | Kind::Pseudo | Kind::BlockDevice | Kind::Directory
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
