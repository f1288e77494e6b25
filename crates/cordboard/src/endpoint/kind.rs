//! The kinds of objects that descriptors refer to.

use std::fmt;

use crate::named::named;

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

named! {
    /// The kind of object that a descriptor refers to.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum Kind {
        /// A regular file.
        File = "regular file",
        /// A memory file: `memfd_create(2)`.
        Memfd = "memory file",
        /// A regular file of procfs, sysfs or another pseudo file system, whose
        /// size does not tell how many bytes a read returns.
        Pseudo = "pseudo file",
        /// A directory.
        Directory = "directory",
        /// A block device.
        BlockDevice = "block device",
        /// A character device other than a terminal.
        CharDevice = "character device",
        /// A terminal.
        Tty = "terminal",
        /// An unnamed pipe.
        Pipe = "pipe",
        /// A named pipe.
        Fifo = "FIFO",
        /// A TCP socket.
        Tcp = "TCP socket",
        /// A UDP socket.
        Udp = "UDP socket",
        /// A UNIX stream socket.
        UnixStream = "UNIX stream socket",
        /// A UNIX datagram socket.
        UnixDatagram = "UNIX datagram socket",
        /// A UNIX sequenced-packet socket.
        UnixSeqpacket = "UNIX seqpacket socket",
        /// A stream socket of another family.
        StreamSocket = "stream socket",
        /// A datagram or packet socket of another family.
        DatagramSocket = "datagram socket",
        /// A counter: `eventfd(2)`.
        Eventfd = "eventfd",
        /// A timer: `timerfd_create(2)`.
        Timerfd = "timerfd",
        /// Signals as records: `signalfd(2)`.
        Signalfd = "signalfd",
        /// File events as records: `inotify(7)`.
        Inotify = "inotify",
        /// Anything else.
        Other = "unknown descriptor",
    }
    /// All kinds, for tables and exhaustive tests.
    ALL
    /// Returns a name for messages: `regular file`, `TCP socket`.
    name
}

impl Kind {
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
