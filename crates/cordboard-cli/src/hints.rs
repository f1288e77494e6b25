//! What helps: by errno, by side, by what was being done.

use std::os::fd::AsFd;

use cordboard::{Errno, Side};
use rustix::fs::FileType;

/// What was being done when it went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// Opening a path.
    Opening,
    /// Connecting to a peer.
    Connecting,
    /// Waiting for peers at an address of ours.
    Listening,
    /// Throwing away what is in it.
    Emptying,
    /// Moving bytes.
    Moving,
    /// Moving bytes through a socket.
    MovingBySocket,
    /// Moving bytes of a block device.
    MovingBlocks,
    /// Moving bytes of a terminal, or another character device.
    MovingCharacters,
    /// Reading what is in a directory.
    Listing,
    /// Waiting until it is on the disk.
    Syncing,
    /// Reading what was written.
    ReadingBack,
}

impl Doing {
    /// Moving bytes of this descriptor. One for which `fstat(2)` fails is no
    /// socket, but may be a file whose server has ended.
    pub fn moving(fd: impl AsFd) -> Doing {
        let kind = rustix::fs::fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode));
        match kind {
            Ok(FileType::Socket) => Doing::MovingBySocket,
            Ok(FileType::BlockDevice) => Doing::MovingBlocks,
            Ok(FileType::CharacterDevice) => Doing::MovingCharacters,
            _ => Doing::Moving,
        }
    }
}

/// One line of help, or nothing where the errno's meaning says it all.
pub fn hint(errno: Errno, side: Side, doing: Doing) -> Option<&'static str> {
    use Doing::{
        Connecting, Listening, Moving, MovingBlocks, MovingBySocket, MovingCharacters, Opening,
    };
    match doing {
        Connecting | Listening | MovingBySocket => {
            if let Some(hint) = of_a_socket(errno, side, doing) {
                return Some(hint);
            }
        }
        _ => {
            if let Some(hint) = of_a_file_server(errno) {
                return Some(hint);
            }
        }
    }
    use Side::{Sink, Source};
    Some(match (errno, side, doing) {
        (Errno::ENOENT, Source, Opening) => "check the spelling, and where you are",
        (Errno::ENOENT, Sink, Opening) => "its directory must exist first (mkdir -p)",
        (Errno::EACCES, Source, Opening) => "you need read permission for it",
        (Errno::EACCES, Sink, Opening) => "you need write permission for it, or its directory",
        // sendmsg(2) of a packet that a rule of the firewall drops.
        (Errno::EPERM, Sink, Connecting | Listening | MovingBySocket) => {
            "a firewall or a policy forbids it"
        }
        (Errno::EPERM, Sink, _) => "it may be immutable (lsattr), or a policy forbids it",
        (Errno::EISDIR, Source, _) => "to copy a directory: cordboard copy -r",
        (Errno::EISDIR, Sink, _) => "a directory of that name is there: name a file in it",
        (Errno::ENOTDIR, ..) => "a part of the path is a file",
        (Errno::ELOOP, ..) => "its symlinks lead in a circle",
        (Errno::ENXIO, _, Opening) => "for a socket use unix:PATH; a device may be absent",
        (Errno::ENOSPC, Sink, MovingBlocks) => "the device ends there, or its pool is full",
        (Errno::ENOSPC, Sink, _) => "free some space there, or write elsewhere",
        (Errno::EDQUOT, Sink, _) => "your quota there is used up",
        (Errno::EFBIG, Sink, _) => {
            "past the largest file allowed here (ulimit -f, or the file system)"
        }
        (Errno::EROFS, Sink, _) => "that file system is mounted read-only",
        // deny_write_access; IS_SWAPFILE in generic_write_checks, mm/filemap.c.
        (Errno::ETXTBSY, Sink, _) => {
            "it is a running program (copy it elsewhere, then mv), or an active swap file"
        }
        (Errno::EMFILE | Errno::ENFILE, ..) => "too many descriptors are open (ulimit -n)",
        (Errno::EPIPE, Sink, Moving | MovingBySocket) => "its reader has closed it",
        (Errno::EBADF, Source, _) => "it must be open for reading",
        (Errno::EBADF, Sink, _) => "it must be open for writing",
        (Errno::ESPIPE, Source, _) => "only files have offsets: leave --offset out",
        (Errno::EIO, _, MovingCharacters) => "the device failed, or its terminal was hung up",
        // net/tls/tls_sw.c: a record that is no data, as read(2) says of it.
        (Errno::EIO, _, MovingBySocket) => "its link failed, or a TLS record holds no data (kTLS)",
        (Errno::EIO, ..) => "the device or its link failed; dmesg may say more",
        // BLK_STS_MEDIUM, block/blk-core.c.
        (Errno::ENODATA, Source, MovingBlocks) => "the medium is damaged there; dmesg may say more",
        (Errno::ENODATA, Source, Moving) => "it was made shorter while it was read",
        _ => return None,
    })
}

/// Errors that mean this only for a socket.
fn of_a_socket(errno: Errno, side: Side, doing: Doing) -> Option<&'static str> {
    use Doing::{Connecting, Listening, MovingBySocket};
    Some(match (errno, side, doing) {
        (Errno::ENOENT, _, Connecting) => "that socket does not exist: start the listener first",
        (Errno::ENOENT, _, Listening) => "its directory must exist first (mkdir -p)",
        // connect(2): of a path, or without SO_BROADCAST.
        (Errno::EACCES, _, Connecting) => {
            "a socket's path takes write permission; an address may be a broadcast address"
        }
        (Errno::EACCES, _, Listening) => {
            "ports below 1024 and others' directories need a privilege"
        }
        (Errno::ENAMETOOLONG, _, Connecting | Listening) => {
            "socket paths hold 108 bytes at most, abstract names 107"
        }
        (Errno::ECONNRESET, ..) => "the peer broke the connection off",
        (Errno::ECONNREFUSED, ..) => "nothing listens there: check the address, start the listener",
        (Errno::ETIMEDOUT, ..) => "the peer does not answer: a firewall, or a wrong address",
        (Errno::EHOSTUNREACH | Errno::ENETUNREACH, ..) => "no route there: check the network",
        (Errno::EADDRINUSE, ..) => "the address is in use: take another",
        (Errno::EADDRNOTAVAIL, ..) => "that is no address of this machine",
        (Errno::EMSGSIZE, Side::Sink, MovingBySocket) => {
            "longer than a datagram may be: give a smaller --block"
        }
        (Errno::EDESTADDRREQ | Errno::ENOTCONN, ..) => "the socket is not connected to a peer",
        (Errno::EPROTOTYPE, ..) => {
            "the socket there is of another type (stream, datagram, seqpacket)"
        }
        _ => return None,
    })
}

/// Errors of sockets that a file or a device gives: its file system has a server,
/// in user space or on the network, or the disk is on the network.
fn of_a_file_server(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        // fuse_get_req, fs/fuse/dev.c.
        Errno::ENOTCONN | Errno::ECONNABORTED | Errno::ECONNREFUSED => {
            "the server of its file system has ended: unmount it, and mount it again"
        }
        // NFS mounted with `soft`; BLK_STS_TIMEOUT, block/blk-core.c.
        Errno::ETIMEDOUT => "its file server or device does not answer; dmesg may say more",
        Errno::EHOSTDOWN | Errno::EHOSTUNREACH | Errno::ENETUNREACH => {
            "its file server cannot be reached: check the network"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_side_decides_what_helps() {
        let source = hint(Errno::ENOENT, Side::Source, Doing::Opening);
        let sink = hint(Errno::ENOENT, Side::Sink, Doing::Opening);
        assert!(source.is_some() && sink.is_some() && source != sink);
        assert_eq!(hint(Errno::EDOM, Side::Sink, Doing::Moving), None);
    }

    /// The help for one kind of descriptor does not mention another kind.
    #[test]
    fn the_kind_of_descriptor_decides_what_helps() {
        use Doing::*;
        let (a, _b) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(Doing::moving(&a), MovingBySocket);
        let null = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(Doing::moving(&null), MovingCharacters);
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(Doing::moving(&file), Moving);
        let at = |errno, doing| hint(errno, Side::Sink, doing).unwrap_or("");
        for doing in [Opening, Moving, MovingBlocks, Syncing, ReadingBack] {
            assert!(at(Errno::ENOTCONN, doing).contains("server of its file system"));
            assert!(at(Errno::ETIMEDOUT, doing).contains("file server"));
            assert!(at(Errno::ECONNREFUSED, doing).contains("server of its file system"));
            for errno in [Errno::ECONNRESET, Errno::EADDRINUSE] {
                assert_eq!(at(errno, doing), "");
            }
        }
        for doing in [Connecting, Listening, MovingBySocket] {
            assert!(at(Errno::ENOTCONN, doing).contains("the socket"));
            assert!(at(Errno::ETIMEDOUT, doing).contains("peer"));
            assert!(!at(Errno::EPERM, doing).contains("lsattr"));
        }
        assert!(at(Errno::ENOSPC, MovingBlocks).contains("the device ends"));
        assert!(!at(Errno::EIO, MovingBySocket).contains("dmesg"));
        let damaged = hint(Errno::ENODATA, Side::Source, MovingBlocks).unwrap_or("");
        assert!(damaged.contains("medium"));
    }

    #[test]
    fn one_line_each() {
        use Doing::*;
        // A new one is missing here, which does not compile.
        let next = |doing: &Doing| {
            Some(match doing {
                Opening => Connecting,
                Connecting => Listening,
                Listening => Emptying,
                Emptying => Moving,
                Moving => MovingBySocket,
                MovingBySocket => MovingBlocks,
                MovingBlocks => MovingCharacters,
                MovingCharacters => Listing,
                Listing => Syncing,
                Syncing => ReadingBack,
                ReadingBack => return None,
            })
        };
        let all: Vec<Doing> = std::iter::successors(Some(Opening), next).collect();
        assert_eq!(all.len(), ReadingBack as usize + 1);
        for number in 1..134 {
            for side in [Side::Source, Side::Sink] {
                for doing in all.iter().copied() {
                    let text = hint(Errno::from_raw(number), side, doing).unwrap_or("");
                    assert!(!text.contains('\n') && text.len() < 90 && !text.ends_with('.'));
                }
            }
        }
    }
}
