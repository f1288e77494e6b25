//! Calls on sockets, each with the call that takes its place if a filter knows only that one.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::{Errno, FdFlags, fcntl_setfd, ioctl_fionbio};
use rustix::net::{SocketAddrAny, SocketFlags, acceptfrom, acceptfrom_with};

/// Accepts a connection, and returns it with the address of its peer. `flags`: of
/// `SOCK_NONBLOCK` and `SOCK_CLOEXEC`.
pub fn accept(
    listener: impl AsFd,
    flags: SocketFlags,
) -> Result<(OwnedFd, Option<SocketAddrAny>), Errno> {
    let done = acceptfrom_with(&listener, flags);
    if !done.as_ref().is_err_and(|errno| is_refusal(*errno)) {
        return done;
    }
    let (socket, peer) = acceptfrom(&listener)?;
    // The connection is used also if a filter refuses these calls.
    if flags.contains(SocketFlags::CLOEXEC) {
        let _ = fcntl_setfd(&socket, FdFlags::CLOEXEC);
    }
    if flags.contains(SocketFlags::NONBLOCK) {
        let _ = ioctl_fionbio(&socket, true);
    }
    Ok((socket, peer))
}

/// Returns whether a filter or a security module returns this errno for a call, or a kernel that
/// lacks it.
fn is_refusal(errno: Errno) -> bool {
    matches!(errno, Errno::PERM | Errno::ACCESS | Errno::NOSYS)
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use rustix::fs::{OFlags, fcntl_getfl};
    use rustix::io::fcntl_getfd;
    use testkit::refuse::{ACCEPT, apart, refuse};

    use super::*;

    const REFUSALS: [i32; 3] = [libc::EPERM, libc::ENOSYS, libc::EACCES];

    #[test]
    fn a_connection_is_accepted_by_an_older_call() {
        if ACCEPT.len() < 2 {
            return testkit::skip::here("this architecture has one call");
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        for errno in REFUSALS {
            for nonblocking in [SocketFlags::empty(), SocketFlags::NONBLOCK] {
                let client = TcpStream::connect(at).unwrap();
                let (socket, peer) = apart(|| {
                    refuse(&[libc::SYS_accept4], errno);
                    accept(&listener, nonblocking | SocketFlags::CLOEXEC).unwrap()
                });
                let peer = SocketAddr::try_from(peer.unwrap()).unwrap();
                assert_eq!(peer, client.local_addr().unwrap());
                assert!(fcntl_getfd(&socket).unwrap().contains(FdFlags::CLOEXEC));
                let is_nonblocking = fcntl_getfl(&socket).unwrap().contains(OFlags::NONBLOCK);
                assert_eq!(is_nonblocking, !nonblocking.is_empty());
            }
        }
    }
}
