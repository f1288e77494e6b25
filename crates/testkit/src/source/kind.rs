//! The kinds of sources.

use super::records::INOTIFY_RECORD;
use crate::expect::SIGNAL_RECORD;
use crate::needs::Need;
use crate::{loopdev, wire};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal)*) => {
        /// A kind of source.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum SourceKind { $($(#[$doc])* $kind,)* }

        impl SourceKind {
            /// Every kind, in the order of the table.
            pub const ALL: &[SourceKind] = &[$(SourceKind::$kind),*];

            /// Its name in tables and messages.
            pub fn name(self) -> &'static str {
                match self { $(SourceKind::$kind => $name,)* }
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
    /// A file with holes, one of them at its end.
    Sparse "sparse"
    /// A file in the temporary directory, past the page cache.
    Direct "O_DIRECT"
    /// A loop device.
    Block "block device"
    /// `/dev/zero`.
    Zero "/dev/zero"
    /// `/dev/urandom`.
    Urandom "/dev/urandom"
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
    /// An event counter in semaphore mode.
    Eventfd "eventfd"
    /// A timer that expires all the time.
    Timerfd "timerfd"
    /// Queued signals.
    Signalfd "signalfd"
    /// File events.
    Inotify "inotify"
    /// A large file of procfs, of size 0.
    Procfs "procfs"
    /// A file of sysfs that says it is larger than it is.
    Sysfs "sysfs"
}

impl SourceKind {
    /// Why this machine or this user cannot have one, if so.
    pub fn unavailable(self) -> Option<String> {
        match self {
            SourceKind::Block => loopdev::unavailable(),
            SourceKind::Tmpfs => wire::no_tmpfs(),
            SourceKind::Eventfd => Need::Eventfd.unmet(),
            _ => None,
        }
    }

    /// The most that is worth asking of it: records come slowly, or cannot
    /// queue without bound. `None`: anything.
    pub fn most(self) -> Option<u64> {
        match self {
            SourceKind::Eventfd => Some(64 << 10),
            SourceKind::Timerfd => Some(512 * 8),
            SourceKind::Signalfd => Some(1 << 20),
            SourceKind::Inotify => Some(128 << 10),
            SourceKind::Procfs => Some(4 << 20),
            SourceKind::Sysfs => Some(4 << 20),
            _ => None,
        }
    }

    /// Bytes of one record; requests are for whole ones.
    pub fn record(self) -> u64 {
        match self {
            SourceKind::Eventfd | SourceKind::Timerfd => 8,
            SourceKind::Signalfd => SIGNAL_RECORD,
            SourceKind::Inotify => INOTIFY_RECORD,
            _ => 1,
        }
    }

    /// Whether it can be read again after a rewind.
    pub fn is_seekable(self) -> bool {
        matches!(
            self,
            SourceKind::File
                | SourceKind::Tmpfs
                | SourceKind::Memfd
                | SourceKind::Sparse
                | SourceKind::Direct
                | SourceKind::Block
        )
    }
}

/// Hands every kind of source to a macro, each after the name that a test of it
/// has: `file File tmpfs Tmpfs …`. One test a kind runs beside the others, and
/// tells by its name which kind it was.
#[macro_export]
macro_rules! each_source {
    ($rows:ident) => {
        $rows! {
            file File
            tmpfs Tmpfs
            memfd Memfd
            sparse Sparse
            direct Direct
            block Block
            zero Zero
            urandom Urandom
            tty Tty
            pipe Pipe
            packet_pipe PacketPipe
            fifo Fifo
            tcp Tcp
            udp Udp
            unix_stream UnixStream
            unix_datagram UnixDatagram
            unix_seqpacket UnixSeqpacket
            eventfd Eventfd
            timerfd Timerfd
            signalfd Signalfd
            inotify Inotify
            procfs Procfs
            sysfs Sysfs
        }
    };
}
