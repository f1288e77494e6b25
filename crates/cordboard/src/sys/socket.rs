//! Queries of sockets, and credentials of senders.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::event::PollFlags;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags,
};

use super::again::again;
use super::attempt::{CallError, attempt};
use super::last_errno::last_errno;
use super::poll::shows_now;
use crate::errno::Errno;

/// Whether a UDP socket may join datagrams of one sender (`UDP_GRO`, since Linux 5.0).
/// Before Linux 5.13 the option can be set but not queried; a filter may refuse the
/// query too.
pub(crate) fn joins_datagrams(fd: BorrowedFd<'_>) -> bool {
    joined(fd) != Ok(0)
}

/// As [`joins_datagrams`], but false if the kernel does not report it (`ENOPROTOOPT` of
/// `udp_lib_getsockopt` in net/ipv4/udp.c).
pub(crate) fn is_said_to_join(fd: BorrowedFd<'_>) -> bool {
    !matches!(joined(fd), Ok(0) | Err(Errno::ENOPROTOOPT))
}

fn joined(fd: BorrowedFd<'_>) -> Result<libc::c_int, Errno> {
    option(fd, libc::SOL_UDP, libc::UDP_GRO)
}

/// Whether a connection is closed: its state is `TCP_CLOSE`. `None`: this is not TCP,
/// or a filter refuses the query.
pub(crate) fn tcp_is_closed(fd: BorrowedFd<'_>) -> Option<bool> {
    // From tcp_states.h.
    const CLOSE: u8 = 7;
    tcp_state(fd).map(|state| state == CLOSE)
}

/// Returns whether the first send begins the connection of a TCP socket (`TCP_FASTOPEN_CONNECT`,
/// since Linux 4.11): `connect(2)` has returned, and no packet was sent
/// (`tcp_fastopen_defer_connect`, net/ipv4/tcp_fastopen.c). False if a filter refuses a query.
pub(crate) fn defers_connection(fd: BorrowedFd<'_>) -> bool {
    // include/uapi/linux/tcp.h; libc does not define it.
    const TCP_FASTOPEN_CONNECT: libc::c_int = 30;
    // From tcp_states.h.
    const SYN_SENT: u8 = 2;
    // One query suffices for most sockets. A connection that is being made is in the same state
    // and does not poll writable (`tcp_poll`, net/ipv4/tcp.c). It may be complete at any moment, so
    // the state is queried last.
    option(fd, libc::IPPROTO_TCP, TCP_FASTOPEN_CONNECT).is_ok_and(|on| on != 0)
        && shows_now(fd, PollFlags::OUT)
        && tcp_state(fd) == Some(SYN_SENT)
}

/// Returns the state of a connection. `None`: as for [`tcp_is_closed`].
fn tcp_state(fd: BorrowedFd<'_>) -> Option<u8> {
    // The state is the first byte.
    let mut info = [0u8; 8];
    tcp_info(fd, &mut info).map(|_| info[0])
}

/// How far the peer of a TCP connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TcpProgress {
    /// The bytes that it has acknowledged.
    pub(crate) acknowledged: u64,
    /// Its free receive buffer: the window that it advertises.
    pub(crate) free: u64,
}

/// Returns how far the peer of a connection is. `None`: this is not TCP, a filter refuses the
/// query, or the kernel does not report the window (`tcpi_snd_wnd`, since Linux 5.4).
pub(crate) fn tcp_progress(fd: BorrowedFd<'_>) -> Option<TcpProgress> {
    // Offsets in `struct tcp_info` of include/uapi/linux/tcp.h: `tcpi_bytes_acked`, since Linux
    // 4.1, and `tcpi_snd_wnd`.
    const ACKNOWLEDGED: usize = 120;
    const WINDOW: usize = 228;
    let mut info = [0u8; WINDOW + 4];
    let length = tcp_info(fd, &mut info)?;
    if length < info.len() {
        return None;
    }
    let acknowledged = info[ACKNOWLEDGED..].first_chunk()?;
    let window = info[WINDOW..].first_chunk()?;
    Some(TcpProgress {
        acknowledged: u64::from_ne_bytes(*acknowledged),
        free: u32::from_ne_bytes(*window).into(),
    })
}

/// Reads the first bytes of `struct tcp_info`: the kernel writes as much as fits. Returns the
/// number of bytes written.
fn tcp_info(fd: BorrowedFd<'_>, info: &mut [u8]) -> Option<usize> {
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: `info` is valid for `length` bytes.
    let done = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    (done == 0).then_some(length as usize)
}

/// Returns whether the kernel makes TLS records of the bytes sent to this socket (`TCP_ULP`,
/// since Linux 4.13). False if a filter refuses the query.
pub(crate) fn makes_tls_records(fd: BorrowedFd<'_>) -> bool {
    // include/uapi/linux/tcp.h; musl does not define it.
    const TCP_ULP: libc::c_int = 31;
    // `TCP_ULP_NAME_MAX` of include/net/tcp.h.
    let mut name = [0u8; 16];
    let mut length = size_of_val(&name) as libc::socklen_t;
    // SAFETY: `name` is valid for `length` bytes.
    let done = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_ULP,
            name.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    done == 0 && name.starts_with(b"tls\0")
}

/// Returns the bytes that a pipe or socket holds for its reader: `FIONREAD`.
pub(crate) fn unsent(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    Ok(again(|| rustix::io::ioctl_fionread(fd))?)
}

/// `recvfrom(2)`; `recvmsg(2)` if a filter refuses that, which takes the same flags.
/// With `MSG_TRUNC`, returns the length of the message. Discards ancillary data.
pub(crate) fn recv(
    fd: BorrowedFd<'_>,
    into: &mut [u8],
    flags: RecvFlags,
) -> Result<usize, CallError> {
    // Repeats a call without taking anything. A socket that ignores `MSG_PEEK` has no pending
    // `EACCES`.
    let look = flags | RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let done = recvfrom(fd, into, flags);
    match done.map_err(|errno| CallError::new(errno, || recvfrom(fd, &mut [], look))) {
        Err(error) if error.refused => {
            let done = recvmsg(fd, into, flags);
            done.map_err(|errno| CallError::new(errno, || recvmsg(fd, &mut [], look)))
        }
        done => done,
    }
}

fn recvfrom(fd: BorrowedFd<'_>, into: &mut [u8], flags: RecvFlags) -> Result<usize, Errno> {
    Ok(rustix::net::recv(fd, into, flags)?.1)
}

fn recvmsg(fd: BorrowedFd<'_>, into: &mut [u8], flags: RecvFlags) -> Result<usize, Errno> {
    let (mut parts, mut none) = ([IoSliceMut::new(into)], Default::default());
    Ok(rustix::net::recvmsg(fd, &mut parts, &mut none, flags)?.bytes)
}

/// `sendto(2)`; `sendmsg(2)` if a filter refuses that, which takes the same flags.
pub(crate) fn send(fd: BorrowedFd<'_>, bytes: &[u8], flags: SendFlags) -> Result<usize, CallError> {
    match attempt(|| Ok(rustix::net::send(fd, bytes, flags)?)) {
        Err(error) if error.refused => send_parts(fd, &[IoSlice::new(bytes)], flags),
        done => done,
    }
}

/// `sendmsg(2)`.
pub(crate) fn send_parts(
    fd: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    flags: SendFlags,
) -> Result<usize, CallError> {
    attempt(|| {
        let mut none = SendAncillaryBuffer::default();
        Ok(rustix::net::sendmsg(fd, parts, &mut none, flags)?)
    })
}

/// Peeks at the next bytes of a socket, or of its next message (`MSG_PEEK`). Returns
/// how many there are; the length of a message with `MSG_TRUNC`.
///
/// If the host has set `SO_PEEK_OFF` (`socket(7)`; UNIX since Linux 3.4, UDP since
/// 4.17, TCP since 6.9), the kernel skips that many bytes, waits for those after them,
/// and advances the offset. This call peeks from the beginning, and restores the
/// option.
pub(crate) fn peek(fd: BorrowedFd<'_>, flags: RecvFlags) -> Result<usize, CallError> {
    peek_into(fd, &mut [0u8; 1], flags)
}

/// As [`peek`], and copies the bytes.
pub(crate) fn peek_into(
    fd: BorrowedFd<'_>,
    into: &mut [u8],
    flags: RecvFlags,
) -> Result<usize, CallError> {
    let before = peek_offset(fd);
    if before.is_some() {
        set_peek_offset(fd, 0);
    }
    let seen = recv(fd, into, flags | RecvFlags::PEEK);
    if let Some(before) = before {
        set_peek_offset(fd, before);
    }
    seen
}

/// Returns `SO_PEEK_OFF`, if it is set.
fn peek_offset(fd: BorrowedFd<'_>) -> Option<libc::c_int> {
    let offset = option(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF);
    offset.ok().filter(|offset| *offset >= 0)
}

/// Ignores an error: the peek then uses the host's offset.
fn set_peek_offset(fd: BorrowedFd<'_>, offset: libc::c_int) {
    let _ = set_option(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, offset);
}

/// Sets `SO_PASSCRED` and returns its old value. With this option every received
/// message carries its sender's credentials, and the end of the stream carries none.
/// Nothing else distinguishes a message of zero length from the end on a
/// sequenced-packet socket (`unix(7)`).
pub(crate) fn pass_credentials(fd: BorrowedFd<'_>, on: bool) -> Result<bool, Errno> {
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PASSCRED);
    let before = option(fd, level, name)? != 0;
    if before != on {
        set_option(fd, level, name, on.into())?;
    }
    Ok(before)
}

/// Has this UNIX socket accept no descriptors: the send of one fails with `EPERM`
/// (`SO_PASSRIGHTS`, since Linux 6.16; `unix_stream_sendmsg`, net/unix/af_unix.c).
///
/// # Errors
///
/// `ENOPROTOOPT`: an earlier kernel. Another errno of a seccomp filter.
pub(crate) fn accept_no_descriptors(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // include/uapi/asm-generic/socket.h; parisc and sparc have another number.
    const SO_PASSRIGHTS: libc::c_int = 83;
    match cfg!(any(target_arch = "sparc", target_arch = "sparc64")) {
        true => Err(Errno::ENOPROTOOPT),
        false => set_option(fd, libc::SOL_SOCKET, SO_PASSRIGHTS, 0),
    }
}

/// `recvmsg(2)`. Also returns the descriptors that were passed, which the kernel would close
/// on the calling thread, and that may wait.
pub(crate) fn recv_with_descriptors(
    fd: BorrowedFd<'_>,
    into: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, Vec<OwnedFd>), Errno> {
    // SCM_MAX_FD, include/net/scm.h.
    const MOST: usize = 253;
    let mut space = [const { MaybeUninit::uninit() }; cmsg_space!(ScmRights(MOST))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let mut parts = [IoSliceMut::new(into)];
    let bytes = rustix::net::recvmsg(fd, &mut parts, &mut ancillary, flags)?.bytes;
    let passed = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(passed) => passed.collect(),
        _ => Vec::new(),
    });
    Ok((bytes, passed.collect()))
}

/// Returns the largest payload, in bytes, that a connected datagram socket sends
/// without fragments: the path MTU less the headers (`IP_MTU`, `ip(7)`; `IPV6_MTU`,
/// `ipv6(7)`).
pub(crate) fn path_mtu(fd: BorrowedFd<'_>) -> Option<usize> {
    use rustix::net::{AddressFamily, sockopt};
    const UDP_HEADER: usize = 8;
    let (level, name, headers) = match sockopt::socket_domain(fd).ok()? {
        AddressFamily::INET => (libc::IPPROTO_IP, libc::IP_MTU, 20 + UDP_HEADER),
        AddressFamily::INET6 => (libc::IPPROTO_IPV6, libc::IPV6_MTU, 40 + UDP_HEADER),
        _ => return None,
    };
    // ENOTCONN: no peer, and so no path.
    let mtu = option(fd, level, name).ok()?;
    usize::try_from(mtu).ok()?.checked_sub(headers)
}

/// Returns the number of bytes that a blocking read, and `poll(2)`, wait for:
/// `SO_RCVLOWAT` (`socket(7)`). `None`: a filter refuses the query.
pub(crate) fn receive_mark(fd: BorrowedFd<'_>) -> Option<u64> {
    let mark = option(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT).ok()?;
    u64::try_from(mark).ok()
}

/// `getsockopt(2)` of an integer.
fn option(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int) -> Result<libc::c_int, Errno> {
    let mut value: libc::c_int = 0;
    let mut length = size_of_val(&value) as libc::socklen_t;
    let at = (&raw mut value).cast();
    // SAFETY: `value` is valid for `length` bytes.
    match unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, at, &raw mut length) } {
        0 => Ok(value),
        _ => Err(last_errno()),
    }
}

/// `setsockopt(2)` of an integer.
fn set_option(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> Result<(), Errno> {
    let length = size_of_val(&value) as libc::socklen_t;
    let at = (&raw const value).cast();
    // SAFETY: `value` is valid for `length` bytes.
    match unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, at, length) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_connection_is_deferred_until_the_first_send() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let socket = TcpStream::connect(address).unwrap();
        assert!(!defers_connection(socket.as_fd()));
        let socket = match testkit::sockets::deferred(address.port()) {
            Ok(socket) => socket,
            Err(error) => return testkit::skip::here(format!("no deferred connection: {error}")),
        };
        assert!(defers_connection(socket.as_fd()));
        assert_eq!(send(socket.as_fd(), b"x", SendFlags::NOSIGNAL), Ok(1));
        assert!(!defers_connection(socket.as_fd()));
        // The option is set, and the connection is not deferred.
        assert!(option(socket.as_fd(), libc::IPPROTO_TCP, 30).is_ok_and(|on| on != 0));
    }

    #[test]
    fn a_socket_that_makes_tls_records_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(!makes_tls_records(socket.as_fd()));
        let (unix, _) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(!makes_tls_records(unix.as_fd()));
        let name = b"tls";
        let (fd, level) = (socket.as_raw_fd(), libc::IPPROTO_TCP);
        // SAFETY: `name` is valid for its length. 31 is `TCP_ULP`.
        let set = unsafe { libc::setsockopt(fd, level, 31, name.as_ptr().cast(), 3) };
        if set != 0 {
            return testkit::skip::report("makes_tls_records", "no TLS in the kernel");
        }
        assert!(makes_tls_records(socket.as_fd()));
    }
}
