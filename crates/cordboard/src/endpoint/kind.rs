//! The kinds of objects that descriptors refer to.

use std::fmt;

/// A side of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The side that is read from.
    Source,
    /// The side that is written to.
    Sink,
}

impl Side {
    /// Returns the name in the JSON report: `source`, `sink`.
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

/// The kind of object that a descriptor refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A regular file.
    File,
    /// A memory file: `memfd_create(2)`.
    Memfd,
    /// A regular file of procfs, sysfs or another pseudo file system, whose
    /// size does not tell how many bytes a read returns.
    Pseudo,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// A character device other than a terminal.
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
    /// A counter: `eventfd(2)`.
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
    /// All kinds, for tables and exhaustive tests.
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

    /// Returns a name for messages: `regular file`, `TCP socket`.
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

    /// Returns whether it is a regular file in the page cache, with a size
    /// (`File`, `Memfd`).
    pub fn is_file(self) -> bool {
        matches!(self, Kind::File | Kind::Memfd)
    }

    /// Returns whether it has a position and pages in the page cache: files and
    /// block devices.
    pub fn is_cached(self) -> bool {
        self.is_file() || self == Kind::BlockDevice
    }

    /// Returns whether it is a pipe, named or unnamed.
    pub fn is_pipe(self) -> bool {
        matches!(self, Kind::Pipe | Kind::Fifo)
    }

    /// Returns whether it is a socket.
    pub fn is_socket(self) -> bool {
        self.is_stream_socket() || self.is_datagram()
    }

    /// Returns whether it is a stream socket.
    pub fn is_stream_socket(self) -> bool {
        matches!(self, Kind::Tcp | Kind::UnixStream | Kind::StreamSocket)
    }

    /// Returns whether it is a socket that keeps message boundaries.
    pub fn is_datagram(self) -> bool {
        matches!(
            self,
            Kind::Udp | Kind::UnixDatagram | Kind::UnixSeqpacket | Kind::DatagramSocket
        )
    }

    /// Returns whether reads return whole records that the kernel generates.
    pub fn is_record(self) -> bool {
        matches!(
            self,
            Kind::Eventfd | Kind::Timerfd | Kind::Signalfd | Kind::Inotify
        )
    }

    /// Returns whether a call on it can wait for another process without limit.
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
