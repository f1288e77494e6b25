//! The peer of a UNIX socket.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

/// The process at the other end of a UNIX socket, when it connected or listened (`unix(7)`,
/// `SO_PEERCRED`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The number of the process. `None`: it has no number in this PID namespace
    /// (`pid_namespaces(7)`; `pid_vnr` returns 0, kernel/pid.c).
    pub pid: Option<u32>,
    /// Its effective user.
    pub uid: u32,
}

/// Returns the peer of a UNIX socket. rustix's `socket_peercred` reads the number of the process
/// as one that is never 0.
pub fn peer(socket: impl AsFd) -> Result<Peer, Errno> {
    let mut found = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let (number, at) = (socket.as_fd().as_raw_fd(), (&raw mut found).cast());
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: getsockopt(2) writes at most one ucred, which is valid for it.
    let done = unsafe { libc::getsockopt(number, level, name, at, &raw mut length) };
    if done != 0 {
        return Err(super::last_errno());
    }
    Ok(Peer {
        pid: u32::try_from(found.pid).ok().filter(|pid| *pid != 0),
        uid: found.uid,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_peer_of_a_pair_is_this_process() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let peer = peer(&socket).unwrap();
        assert_eq!(peer.pid, Some(std::process::id()));
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        let pipe = std::io::pipe().unwrap().0;
        assert_eq!(super::peer(&pipe), Err(Errno::NOTSOCK));
    }
}
