//! The kinds of sinks.

use crate::needs::Need;
use crate::{loopdev, wire};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal)*) => {
        /// A kind of sink.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum SinkKind { $($(#[$doc])* $kind,)* }

        impl SinkKind {
            /// Every kind, in the order of the table.
            pub const ALL: &[SinkKind] = &[$(SinkKind::$kind),*];

            /// Its name in tables and messages.
            pub fn name(self) -> &'static str {
                match self { $(SinkKind::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    /// A file in the temporary directory.
    File "file"
    /// A file on a tmpfs, `/dev/shm`.
    Tmpfs "tmpfs"
    /// `memfd_create(2)`.
    Memfd "memfd"
    /// A file with content that is opened with `O_APPEND`.
    Append "O_APPEND"
    /// A file in the temporary directory, opened with `O_DIRECT`.
    Direct "O_DIRECT"
    /// A loop device.
    Block "block device"
    /// `/dev/null`.
    Null "/dev/null"
    /// `/dev/zero`.
    Zero "/dev/zero"
    /// `/dev/full`.
    Full "/dev/full"
    /// The slave of a pseudo-terminal in raw mode.
    Tty "tty"
    /// A pipe.
    Pipe "pipe"
    /// A pipe in packet mode.
    PacketPipe "packet pipe"
    /// A named pipe.
    Fifo "FIFO"
    /// A TCP connection over the loopback interface.
    Tcp "TCP"
    /// A UDP socket on the loopback interface.
    Udp "UDP"
    /// A UNIX stream socket.
    UnixStream "UNIX stream"
    /// A UNIX datagram socket.
    UnixDatagram "UNIX datagram"
    /// A UNIX sequenced-packet socket.
    UnixSeqpacket "UNIX seqpacket"
    /// An event counter, which adds up the numbers written to it.
    Eventfd "eventfd"
}

impl SinkKind {
    /// Returns why it is not available to this machine or user, if so.
    pub fn unavailable(self) -> Option<String> {
        match self {
            SinkKind::Block => loopdev::unavailable(),
            SinkKind::Tmpfs => wire::no_tmpfs(),
            SinkKind::Direct => wire::no_direct(),
            SinkKind::Eventfd => Need::Eventfd.unmet(),
            _ => None,
        }
    }

    /// Returns the most bytes to test with. `None`: no limit.
    pub fn most(self) -> Option<u64> {
        match self {
            SinkKind::Eventfd => Some(64 << 10),
            SinkKind::Block => Some(loopdev::SIZE),
            _ => None,
        }
    }

    /// Returns the most bytes that one write may have: a bounded message, a number.
    pub fn piece(self) -> usize {
        match self {
            SinkKind::Udp => 65_507,
            SinkKind::Eventfd => 8,
            _ => crate::model::BLOCK,
        }
    }

    /// Whether it keeps the boundaries of what is written to it.
    pub fn keeps_messages(self) -> bool {
        matches!(
            self,
            SinkKind::Udp | SinkKind::UnixDatagram | SinkKind::UnixSeqpacket
        )
    }
}
