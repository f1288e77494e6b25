//! Calls on sockets, each with the call that replaces it if a filter refuses it.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::{Errno, FdFlags, fcntl_setfd, ioctl_fionbio};
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrAny, SocketFlags, acceptfrom,
    acceptfrom_with, recvmsg, sendmsg,
};

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

/// `recvfrom(2)`, or `recvmsg(2)`. Discards ancillary data.
pub fn recv(
    socket: impl AsFd,
    bytes: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, Option<SocketAddrAny>), Errno> {
    let look = flags | RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match rustix::net::recvfrom(&socket, &mut *bytes, flags) {
        // A pending error of the connection (`icmpv6_err_convert`, net/ipv6/icmp.c) is reported
        // once.
        Err(Errno::ACCESS)
            if rustix::net::recv(&socket, &mut [0; 0], look) != Err(Errno::ACCESS) =>
        {
            Err(Errno::ACCESS)
        }
        Err(errno) if is_refusal(errno) => {
            let (mut parts, mut none) = ([IoSliceMut::new(bytes)], Default::default());
            let done = recvmsg(&socket, &mut parts, &mut none, flags)?;
            Ok((done.bytes, done.address))
        }
        done => done.map(|(_, received, peer)| (received, peer)),
    }
}

/// `sendto(2)`, or `sendmsg(2)`.
pub fn send(socket: impl AsFd, bytes: &[u8], flags: SendFlags) -> Result<usize, Errno> {
    let mut done = rustix::net::send(&socket, bytes, flags);
    if done == Err(Errno::ACCESS) {
        // As in `recv`. After the pending error, the connection has ended.
        done = match rustix::net::send(&socket, bytes, flags) {
            Err(Errno::PIPE) => return Err(Errno::ACCESS),
            done => done,
        };
    }
    match done {
        Err(errno) if is_refusal(errno) => {
            let mut none = SendAncillaryBuffer::default();
            sendmsg(&socket, &[IoSlice::new(bytes)], &mut none, flags)
        }
        done => done,
    }
}

/// Returns whether this errno may be that of a filter or a security module that refuses a call, or
/// of a kernel that lacks it.
fn is_refusal(errno: Errno) -> bool {
    matches!(errno, Errno::PERM | Errno::ACCESS | Errno::NOSYS)
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

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

    #[test]
    fn bytes_are_moved_by_another_call() {
        let (one, other) = UnixStream::pair().unwrap();
        for errno in REFUSALS {
            apart(|| {
                refuse(&[libc::SYS_recvfrom, libc::SYS_sendto], errno);
                assert_eq!(send(&one, b"abc", SendFlags::NOSIGNAL), Ok(3));
                let mut bytes = [0; 8];
                let (received, _) = recv(&other, &mut bytes, RecvFlags::DONTWAIT).unwrap();
                assert_eq!(&bytes[..received], b"abc");
                let none = recv(&other, &mut bytes, RecvFlags::DONTWAIT);
                assert_eq!(none.err(), Some(Errno::AGAIN));
            });
        }
        drop(one);
        let end = recv(&other, &mut [0; 8], RecvFlags::DONTWAIT);
        assert_eq!(end.unwrap().0, 0);
        let sent = send(&other, b"abc", SendFlags::NOSIGNAL);
        assert_eq!(sent, Err(Errno::PIPE));
    }
}
