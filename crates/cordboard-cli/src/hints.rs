//! What helps: by errno, by side, by what was being done.

use cordboard::{Errno, Side};

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
    /// Reading what is in a directory.
    Listing,
    /// Waiting until it is on the disk.
    Syncing,
    /// Reading what was written.
    ReadingBack,
}

/// One line of help, or nothing where the errno's meaning says it all.
pub fn hint(errno: Errno, side: Side, doing: Doing) -> Option<&'static str> {
    use Doing::{Connecting, Listening, Moving, Opening};
    use Side::{Sink, Source};
    Some(match (errno, side, doing) {
        (Errno::ENOENT, Source, Opening) => "check the spelling, and where you are",
        (Errno::ENOENT, Sink, Opening) => "its directory must exist first (mkdir -p)",
        (Errno::ENOENT, _, Connecting) => "that socket does not exist: start the listener first",
        (Errno::ENOENT, _, Listening) => "its directory must exist first (mkdir -p)",
        (Errno::EACCES, Source, Opening) => "you need read permission for it",
        (Errno::EACCES, Sink, Opening) => "you need write permission for it, or its directory",
        (Errno::EACCES, _, Connecting) => "you need write permission for the socket",
        (Errno::EACCES, _, Listening) => {
            "ports below 1024 and others' directories need a privilege"
        }
        (Errno::EPERM, Sink, _) => "it may be immutable (lsattr), or a policy forbids it",
        (Errno::EISDIR, Source, _) => "to copy a directory: cordboard copy -r",
        (Errno::EISDIR, Sink, _) => "a directory of that name is there: name a file in it",
        (Errno::ENOTDIR, ..) => "a part of the path is a file",
        (Errno::ELOOP, ..) => "its symlinks lead in a circle",
        (Errno::ENXIO, _, Opening) => "for a socket use unix:PATH; a device may be absent",
        (Errno::ENAMETOOLONG, _, Connecting | Listening) => "socket paths hold 107 bytes at most",
        (Errno::ENOSPC, Sink, _) => "free some space there, or write elsewhere",
        (Errno::EDQUOT, Sink, _) => "your quota there is used up",
        (Errno::EFBIG, Sink, _) => {
            "past the largest file allowed here (ulimit -f, or the file system)"
        }
        (Errno::EROFS, Sink, _) => "that file system is mounted read-only",
        (Errno::ETXTBSY, Sink, _) => "it is a program that is running: copy it elsewhere, then mv",
        (Errno::EMFILE | Errno::ENFILE, ..) => "too many descriptors are open (ulimit -n)",
        (Errno::EPIPE, Sink, Moving) => "its reader has closed it",
        (Errno::ECONNRESET, ..) => "the peer broke the connection off",
        (Errno::ECONNREFUSED, ..) => "nothing listens there: check the address, start the listener",
        (Errno::ETIMEDOUT, ..) => "the peer does not answer: a firewall, or a wrong address",
        (Errno::EHOSTUNREACH | Errno::ENETUNREACH, ..) => "no route there: check the network",
        (Errno::EADDRINUSE, ..) => "the address is in use: take another",
        (Errno::EADDRNOTAVAIL, ..) => "that is no address of this machine",
        (Errno::EMSGSIZE, Sink, Moving) => "longer than a datagram may be: give a smaller --block",
        (Errno::EDESTADDRREQ | Errno::ENOTCONN, ..) => "the socket is not connected to a peer",
        (Errno::EBADF, Source, _) => "it must be open for reading",
        (Errno::EBADF, Sink, _) => "it must be open for writing",
        (Errno::ESPIPE, Source, _) => "only files have offsets: leave --offset out",
        (Errno::EIO, Source, _) => "the device or its link failed; dmesg may say more",
        (Errno::EIO, Sink, _) => "the device or its link failed; dmesg may say more",
        (Errno::EBADMSG, Source, Moving) => "what was made of the bytes before it is written",
        (Errno::ENODATA, Source, Moving) => "it was made shorter while it was read",
        (Errno::EPROTOTYPE, ..) => {
            "the socket there is of another type (stream, datagram, seqpacket)"
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

    #[test]
    fn one_line_each() {
        use Doing::*;
        let all = [
            Opening,
            Connecting,
            Listening,
            Emptying,
            Moving,
            Listing,
            Syncing,
            ReadingBack,
        ];
        for number in 1..134 {
            for side in [Side::Source, Side::Sink] {
                for doing in all {
                    let text = hint(Errno::from_raw(number), side, doing).unwrap_or("");
                    assert!(!text.contains('\n') && text.len() < 90 && !text.ends_with('.'));
                }
            }
        }
    }
}
