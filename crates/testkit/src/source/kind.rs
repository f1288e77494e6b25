//! The kinds of sources.

use crate::expect::{INOTIFY_RECORD, SIGNAL_RECORD};
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
    /// A file in the temporary directory, opened with `O_DIRECT`.
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
    /// A timer that expires every microsecond.
    Timerfd "timerfd"
    /// Queued signals.
    Signalfd "signalfd"
    /// File events.
    Inotify "inotify"
    /// A large file of procfs, of size 0.
    Procfs "procfs"
    /// A file of sysfs whose size is too large.
    Sysfs "sysfs"
}

impl SourceKind {
    /// Returns why it is not available to this machine or user, if so.
    pub fn unavailable(self) -> Option<String> {
        match self {
            SourceKind::Block => loopdev::unavailable(),
            SourceKind::Tmpfs => wire::no_tmpfs(),
            SourceKind::Direct => wire::no_direct(),
            SourceKind::Eventfd => Need::Eventfd.unmet(),
            _ => None,
        }
    }

    /// Returns the most bytes to test with: records come slowly, or the queue is
    /// bounded. `None`: no limit.
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

    /// Returns the size of one record. Requests are for whole records.
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

/// Passes every kind of source to a macro, each after the name of its test: `file File
/// tmpfs Tmpfs …`. The tests of the kinds run in parallel, and a failure names the
/// kind.
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
