//! The kinds of sockets.

use std::io::{BufRead, BufReader};
use std::os::fd::BorrowedFd;

use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};

use super::facts::Facts;
use super::kind::Kind;
use crate::errno::Errno;

/// Finds the kind of the socket with this inode, what it shows of its next message, and
/// whether it listens.
///
/// A socket of unknown type is an error: reading it as a stream could truncate its
/// messages, and `MSG_TRUNC`, which returns the length of a message, discards the bytes
/// of a stream (`tcp(7)`).
///
/// # Errors
///
/// Those of `getsockopt(2)`, if a filter refuses it and procfs does not list the
/// socket.
pub(super) fn look(fd: BorrowedFd<'_>, inode: u64, facts: &mut Facts) -> Result<(), Errno> {
    match sockopt::socket_type(fd) {
        Ok(kind) => {
            let family = family(fd);
            facts.kind = by_type(kind, family);
            if facts.kind == Kind::Tcp && !is_like_tcp(fd) {
                facts.kind = Kind::StreamSocket;
            }
            // `hash_recvmsg` and the others (crypto/algif_hash.c, …) ignore `MSG_PEEK`.
            facts.peeks = i32::from(family.as_raw()) != libc::AF_ALG;
            facts.tells_length = facts.kind.is_datagram() && tells_length(fd, kind, family);
            facts.seqpacket = kind == SocketType::SEQPACKET;
            facts.zero_ends = zero_ends(kind, family);
            facts.listening = listens(fd, kind, family);
        }
        // A socket's name in a file system, opened with O_PATH: it moves no bytes.
        Err(_) if !facts.readable && !facts.writable => facts.kind = Kind::StreamSocket,
        Err(errno) => {
            facts.kind = listed(inode).ok_or(errno)?;
            facts.seqpacket = facts.kind == Kind::UnixSeqpacket;
            (facts.peeks, facts.tells_length) = (true, facts.kind.is_datagram());
        }
    }
    Ok(())
}

/// Returns whether the socket carries connections instead of bytes. A one-to-many socket of
/// SCTP listens and receives the messages of all its peers; `accept(2)` is `EOPNOTSUPP`
/// (`sctp_accept`, net/sctp/socket.c).
fn listens(fd: BorrowedFd<'_>, kind: SocketType, family: AddressFamily) -> bool {
    !is_one_to_many(kind, family) && sockopt::socket_acceptconn(fd).unwrap_or(false)
}

fn is_one_to_many(kind: SocketType, family: AddressFamily) -> bool {
    kind == SocketType::SEQPACKET && is_inet(family)
}

/// `SOCK_DCCP` (linux/net.h). Linux 6.16 removed the protocol.
const DCCP: SocketType = SocketType::from_raw(6);

/// Returns whether a receive of 0 bytes may be the end of a connection: sequenced packets
/// (`__vsock_seqpacket_recvmsg`, net/vmw_vsock/af_vsock.c; `bt_sock_recvmsg`,
/// net/bluetooth/af_bluetooth.c) and DCCP (`dccp_recvmsg`, net/dccp/proto.c). Credentials
/// distinguish the end of a UNIX socket.
fn zero_ends(kind: SocketType, family: AddressFamily) -> bool {
    let is_unix = family == AddressFamily::UNIX;
    let is_sequenced = kind == SocketType::SEQPACKET && !is_unix && !is_one_to_many(kind, family);
    is_sequenced || kind == DCCP
}

fn family(fd: BorrowedFd<'_>) -> AddressFamily {
    let told = sockopt::socket_domain(fd);
    told.or_else(|_| rustix::net::getsockname(fd).map(|name| name.address_family()))
        .unwrap_or(AddressFamily::UNSPEC)
}

fn is_inet(family: AddressFamily) -> bool {
    family == AddressFamily::INET || family == AddressFamily::INET6
}

fn by_type(kind: SocketType, family: AddressFamily) -> Kind {
    let inet = is_inet(family);
    let unix = family == AddressFamily::UNIX;
    match kind {
        SocketType::STREAM if inet => Kind::Tcp,
        SocketType::STREAM if unix => Kind::UnixStream,
        SocketType::STREAM => Kind::StreamSocket,
        SocketType::DGRAM if inet => Kind::Udp,
        SocketType::DGRAM if unix => Kind::UnixDatagram,
        SocketType::SEQPACKET if unix => Kind::UnixSeqpacket,
        _ => Kind::DatagramSocket,
    }
}

/// Returns whether a stream socket of this family supports the calls of TCP, as those of MPTCP
/// and SMC do. SCTP refuses long sends, and has other options.
fn is_like_tcp(fd: BorrowedFd<'_>) -> bool {
    // From linux/in.h, since Linux 6.11.
    const SMC: u32 = 256;
    match sockopt::socket_protocol(fd) {
        Ok(Some(ipproto::TCP | ipproto::MPTCP)) => true,
        Ok(Some(other)) => other.as_raw().get() == SMC,
        // A filter refuses the query.
        Ok(None) | Err(_) => true,
    }
}

/// Returns whether a timer determines when the connection sends: `TCP_CONGESTION`, since Linux 2.6.13;
/// `bbr_init` in net/ipv4/tcp_bbr.c requests pacing. False if the query is refused.
pub(super) fn is_paced(fd: BorrowedFd<'_>) -> bool {
    sockopt::tcp_congestion(fd).is_ok_and(|algorithm| algorithm.starts_with("bbr"))
}

/// Returns whether `MSG_TRUNC` returns the length of a message. Not for: ping sockets
/// (`ping_recvmsg`, net/ipv4/ping.c), L2TP (`l2tp_ip_recvmsg`, net/l2tp/l2tp_ip.c), SCTP
/// (`sctp_recvmsg`, net/sctp/socket.c), CAN (`raw_recvmsg`, net/can/raw.c), AX.25, X.25,
/// ROSE, NET/ROM, TIPC and others.
fn tells_length(fd: BorrowedFd<'_>, kind: SocketType, family: AddressFamily) -> bool {
    match (family, kind) {
        (AddressFamily::UNIX | AddressFamily::NETLINK | AddressFamily::PACKET, _) => true,
        (AddressFamily::INET | AddressFamily::INET6, SocketType::RAW) => true,
        (AddressFamily::INET | AddressFamily::INET6, SocketType::DGRAM) => matches!(
            sockopt::socket_protocol(fd),
            Ok(Some(ipproto::UDP | ipproto::UDPLITE))
        ),
        _ => false,
    }
}

/// Files of `/proc/thread-self/net` (since Linux 3.17) that list the sockets of this
/// network namespace, with the column of the inode. An inode is unique among the
/// sockets of all namespaces (`sock_alloc`, net/socket.c). Sockets without an address
/// are not listed, except UNIX sockets.
const LISTS: [(&str, usize); 9] = [
    ("unix", 6),
    ("tcp", 9),
    ("tcp6", 9),
    ("udp", 9),
    ("udp6", 9),
    ("raw", 9),
    ("raw6", 9),
    ("packet", 8),
    ("netlink", 9),
];

/// Returns the kind of the socket with this inode, as procfs lists it.
fn listed(inode: u64) -> Option<Kind> {
    LISTS.iter().find_map(|(name, column)| {
        let file = std::fs::File::open(format!("/proc/thread-self/net/{name}")).ok()?;
        let mut lines = BufReader::new(file).split(b'\n').map_while(Result::ok);
        lines.find_map(|line| listed_as(name, &String::from_utf8_lossy(&line), *column, inode))
    })
}

/// Parses a line of a list; `None` if the line lists another socket.
fn listed_as(list: &str, line: &str, column: usize, inode: u64) -> Option<Kind> {
    let mut words = line.split_whitespace();
    // In a list of UNIX sockets the type is two columns before the inode
    // (`unix_seq_show`, net/unix/af_unix.c).
    let kind = words.nth(column.checked_sub(2)?)?;
    if words.nth(1)?.parse() != Ok(inode) {
        return None;
    }
    match (list, kind) {
        ("unix", "0001") => Some(Kind::UnixStream),
        ("unix", "0002") => Some(Kind::UnixDatagram),
        ("unix", "0005") => Some(Kind::UnixSeqpacket),
        ("unix", _) => None,
        ("tcp" | "tcp6", _) => Some(Kind::Tcp),
        ("udp" | "udp6", _) => Some(Kind::Udp),
        _ => Some(Kind::DatagramSocket),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::net::{SocketFlags, socketpair};

    use super::*;
    use crate::endpoint::Endpoint;

    /// One socket of each kind that this machine supports.
    fn sockets() -> Vec<OwnedFd> {
        let mut all: Vec<OwnedFd> = Vec::new();
        for kind in [SocketType::STREAM, SocketType::DGRAM, SocketType::SEQPACKET] {
            let flags = SocketFlags::CLOEXEC;
            let (a, b) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
            all.extend([a, b]);
        }
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            all.push(
                TcpStream::connect(listener.local_addr().unwrap())
                    .unwrap()
                    .into(),
            );
            all.push(listener.accept().unwrap().0.into());
            all.push(listener.into());
            all.push(UdpSocket::bind(address).unwrap().into());
        }
        let raw = SocketType::RAW;
        if let Ok(netlink) = rustix::net::socket(AddressFamily::NETLINK, raw, None) {
            rustix::net::bind(
                &netlink,
                &rustix::net::netlink::SocketAddrNetlink::new(0, 0),
            )
            .unwrap();
            all.push(netlink);
        }
        all
    }

    #[test]
    fn a_list_tells_what_getsockopt_does() {
        for socket in sockets() {
            let told = Endpoint::probe(socket.as_fd()).unwrap();
            let inode = told.facts().id.unwrap().inode;
            if !std::path::Path::new("/proc/thread-self/net/unix").exists() {
                return testkit::skip::report("listed", "procfs lists no sockets");
            }
            assert_eq!(listed(inode), Some(told.kind()), "{told:?}");
        }
        assert_eq!(listed(u64::MAX), None);
    }

    #[test]
    fn what_a_socket_shows_of_its_next_message() {
        use testkit::{needs, sockets};
        let shown = |fd: &OwnedFd| {
            let facts = *Endpoint::probe(fd.as_fd()).unwrap().facts();
            (facts.kind, facts.peeks, facts.tells_length)
        };
        for socket in self::sockets() {
            let (kind, peeks, tells_length) = shown(&socket);
            assert!(peeks, "{kind}");
            assert_eq!(tells_length, kind.is_datagram(), "{kind}");
        }
        let kind = Kind::DatagramSocket;
        if !needs::missing("a socket without MSG_PEEK", &[needs::Need::HashSockets]) {
            assert_eq!(shown(&sockets::sha256().unwrap()), (kind, false, false));
        }
        if !needs::missing("the length of a message", &[needs::Need::Sctp]) {
            let (many, one) = sockets::sctp().unwrap();
            assert_eq!(shown(&many), (kind, true, false));
            assert_eq!(shown(&one), (Kind::StreamSocket, true, false));
        }
        if !needs::missing("the length of a message", &[needs::Need::Ping]) {
            assert_eq!(shown(&sockets::ping().unwrap()), (Kind::Udp, true, false));
        }
    }

    #[test]
    fn only_bbr_is_paced() {
        for (algorithm, paced) in [("reno", false), ("cubic", false), ("bbr", true)] {
            let socket =
                rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            // It may be missing, or forbidden.
            match sockopt::set_tcp_congestion(&socket, algorithm) {
                Ok(()) => {
                    let mut end = Endpoint::probe(socket.as_fd()).unwrap();
                    end.look_for_pacing();
                    assert_eq!(end.facts().paced, paced, "{algorithm}");
                }
                Err(_) => testkit::skip::report(algorithm, "this algorithm cannot be set"),
            }
        }
    }

    #[test]
    fn lines_of_other_sockets_and_headers_tell_nothing() {
        let unix = "0000000000000000: 00000003 00000000 00000000 0005 03 77 @name";
        assert_eq!(listed_as("unix", unix, 6, 77), Some(Kind::UnixSeqpacket));
        assert_eq!(listed_as("unix", unix, 6, 3), None);
        let odd = unix.replace("0005", "0003");
        assert_eq!(listed_as("unix", &odd, 6, 77), None);
        for line in [
            "Num       RefCount Protocol Flags    Type St Inode Path",
            "0: 1",
            "",
        ] {
            assert_eq!(listed_as("unix", line, 6, 77), None, "{line:?}");
        }
        let packet = "00000000 3      3    0003   2     1 0      0      77";
        assert_eq!(
            listed_as("packet", packet, 8, 77),
            Some(Kind::DatagramSocket)
        );
    }

    #[test]
    fn an_unknown_type_is_an_error() {
        if cfg!(target_arch = "x86") {
            return testkit::skip::here("all calls on sockets are one here, socketcall(2)");
        }
        for errno in [Errno::EPERM, Errno::ENOSYS, Errno::EACCES] {
            for socket in sockets() {
                let known = Endpoint::probe(socket.as_fd()).unwrap().kind();
                let (told, untold) = testkit::refuse::apart(|| {
                    testkit::refuse::refuse(&[libc::SYS_getsockopt], errno.raw());
                    let told = Endpoint::probe(socket.as_fd()).map(|end| end.kind());
                    testkit::refuse::refuse(testkit::refuse::OPEN, libc::EPERM);
                    (told, Endpoint::probe(socket.as_fd()).map(|end| end.kind()))
                });
                if std::path::Path::new("/proc/thread-self/net/unix").exists() {
                    assert_eq!(told, Ok(known));
                }
                assert_eq!(untold, Err(errno), "{known}");
            }
        }
    }
}
