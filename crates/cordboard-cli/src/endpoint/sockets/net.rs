//! TCP and UDP endpoints. Every socket opened here is non-blocking.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrAny, SocketFlags, SocketType, sockopt};

use super::operand::Operand;
use crate::endpoint::name::Host;
use crate::interruptible::wait;
use crate::output::print_line;
use crate::problem::{Action, Problem};
use crate::signals::uninterruptible;
use crate::{socket_calls, tcp_options};

/// Returns the addresses of a host, which are looked up once.
pub fn resolve(host: &Host, operand: Operand<'_>) -> Result<Vec<SocketAddr>, Problem> {
    if let Some(addresses) = host.addresses.get() {
        return Ok(addresses.clone());
    }
    let addresses = addresses_of(host, operand)?;
    Ok(host.addresses.get_or_init(|| addresses).clone())
}

fn addresses_of(host: &Host, operand: Operand<'_>) -> Result<Vec<SocketAddr>, Problem> {
    if host.host.is_empty() {
        return Ok(vec![SocketAddr::new(every_address(), host.port)]);
    }
    if let Ok(address) = host.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, host.port)]);
    }
    let found = uninterruptible(|| (host.host.as_str(), host.port).to_socket_addrs())?;
    let why = match found {
        Ok(addresses) => {
            let addresses: Vec<_> = addresses.collect();
            if !addresses.is_empty() {
                return Ok(addresses);
            }
            "the host has no address".to_owned()
        }
        Err(error) => {
            let text = error.to_string();
            text.strip_prefix("failed to lookup address information: ")
                .unwrap_or(&text)
                .to_owned()
        }
    };
    Err(Problem {
        errno: None,
        ..Problem::refused(
            operand.shown,
            operand.side,
            Errno::NOENT.into(),
            format!(
                "cannot find host {} of the {}: {why}",
                host.host, operand.side
            ),
        )
        .help("check the spelling, or specify an address")
    })
}

/// Tries the addresses in turn. Returns the first that works, or the last error of those that are
/// the most specific. `EADDRINUSE` ends the search of an address to listen at: peers try the
/// addresses in the same order, and would reach the other listener.
fn first<T>(
    host: &Host,
    operand: Operand<'_>,
    action: Action,
    mut attempt: impl FnMut(SocketAddr) -> Result<Result<T, Errno>, Problem>,
) -> Result<T, Problem> {
    let mut found = Errno::ADDRNOTAVAIL;
    for address in resolve(host, operand)? {
        match attempt(address)? {
            Ok(done) => return Ok(done),
            Err(errno) if specificity(errno) >= specificity(found) => found = errno,
            Err(_) => {}
        }
        if action == Action::Listen && found == Errno::ADDRINUSE {
            break;
        }
    }
    Err(operand.problem(found, action))
}

/// Ranks the errors of several addresses. `getaddrinfo(3)` returns addresses of IPv6 also to a
/// host without it, behind those that can be used (RFC 6724, rule 1).
fn specificity(errno: Errno) -> u8 {
    match errno {
        Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL => 0,
        Errno::NETUNREACH => 1,
        // Also returned for a host on a network that can be reached.
        Errno::HOSTUNREACH => 2,
        _ => 3,
    }
}

/// Returns the address that stands for all: that of IPv6, which includes IPv4, or that of IPv4 on
/// a kernel without IPv6.
fn every_address() -> IpAddr {
    let every = IpAddr::from(Ipv6Addr::UNSPECIFIED);
    match socket(SocketAddr::new(every, 0), SocketType::DGRAM) {
        Err(Errno::AFNOSUPPORT) => Ipv4Addr::UNSPECIFIED.into(),
        _ => every,
    }
}

/// Makes a socket of the family of an address.
pub fn socket(address: SocketAddr, kind: SocketType) -> Result<OwnedFd, Errno> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, kind, flags, None)
}

/// Connects to a server, or makes a UDP socket with a peer.
pub fn connect(host: &Host, kind: SocketType, operand: Operand<'_>) -> Result<OwnedFd, Problem> {
    first(host, operand, Action::Connect, |address| {
        let socket = match socket(address, kind) {
            Ok(socket) => socket,
            Err(errno) => return Ok(Err(errno)),
        };
        if kind == SocketType::STREAM {
            tcp_options::prepare(&socket);
        }
        let connected = match rustix::net::connect(&socket, &address) {
            Err(Errno::INPROGRESS) => match wait(&socket, PollFlags::OUT, None)? {
                Ok(_) => sockopt::socket_error(&socket).and_then(|result| result),
                Err(errno) => Err(errno),
            },
            result => result,
        };
        if kind == SocketType::STREAM && connected.is_ok() {
            tcp_options::set(&socket);
        }
        Ok(connected.map(|()| socket))
    })
}

/// Makes a socket that is bound to a local address.
fn bind(host: &Host, kind: SocketType, operand: Operand<'_>) -> Result<OwnedFd, Problem> {
    first(host, operand, Action::Listen, |address| {
        Ok(socket(address, kind).and_then(|socket| {
            if kind == SocketType::STREAM {
                sockopt::set_socket_reuseaddr(&socket, true)?;
                tcp_options::prepare(&socket);
            }
            if address.is_ipv6() {
                let _ = sockopt::set_ipv6_v6only(&socket, false);
            }
            rustix::net::bind(&socket, &address)?;
            Ok(socket)
        }))
    })
}

/// Prints the port that was chosen for port 0.
fn announce(host: &Host, socket: &OwnedFd) {
    if host.port == 0
        && let Ok(Ok(address)) = rustix::net::getsockname(socket).map(SocketAddr::try_from)
    {
        print_line(format_args!("cordboard: listening on {address}"));
    }
}

/// Makes a listener for this number of connections.
pub fn listen(host: &Host, backlog: i32, operand: Operand<'_>) -> Result<OwnedFd, Problem> {
    let listener = bind(host, SocketType::STREAM, operand)?;
    rustix::net::listen(&listener, backlog).map_err(|e| operand.problem(e, Action::Listen))?;
    announce(host, &listener);
    Ok(listener)
}

/// Accepts a connection. `None`: there is none.
pub fn try_accept(listener: &OwnedFd, operand: Operand<'_>) -> Result<Option<OwnedFd>, Problem> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match socket_calls::accept(listener, flags) {
        Ok((socket, _)) => Ok(Some(socket)),
        // The connection was closed before it was accepted.
        Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
        Err(errno) => Err(operand.problem(errno, Action::Listen)),
    }
}

/// Makes a socket that receives datagrams.
pub fn datagrams(host: &Host, operand: Operand<'_>) -> Result<OwnedFd, Problem> {
    let socket = bind(host, SocketType::DGRAM, operand)?;
    announce(host, &socket);
    Ok(socket)
}

/// Connects a socket to the sender of the first datagram, which is not part of the transfer.
/// `false`: there is no datagram.
pub fn connect_to_sender(socket: &OwnedFd, operand: Operand<'_>) -> Result<bool, Problem> {
    match sender(socket) {
        Ok(Some(peer)) => {
            let connected = rustix::net::connect(socket, &peer);
            connected.map_err(|e| operand.problem(e, Action::Connect))?;
            Ok(true)
        }
        Ok(None) | Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(errno) => Err(operand.problem(errno, Action::Listen)),
    }
}

/// Takes the next datagram, and returns its sender.
fn sender(socket: &OwnedFd) -> Result<Option<SocketAddrAny>, Errno> {
    Ok(socket_calls::recv(socket, &mut [0], RecvFlags::DONTWAIT)?.1)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::OnceLock;

    use cordboard::Side;

    use super::*;

    const OPERAND: Operand<'_> = Operand {
        shown: "tcp:host:1",
        side: Side::Sink,
    };

    fn host_with(addresses: &[SocketAddr]) -> Host {
        Host {
            host: "host".to_owned(),
            port: 1,
            addresses: OnceLock::from(addresses.to_vec()),
        }
    }

    /// Returns the errno of a search in which the addresses have these errors in turn, and the
    /// number of attempts.
    fn searched(action: Action, errors: &[Errno]) -> (Option<cordboard::Errno>, usize) {
        let address = "127.0.0.1:1".parse().unwrap();
        let host = host_with(&vec![address; errors.len()]);
        let mut attempts = 0;
        let done = first::<()>(&host, OPERAND, action, |_| {
            attempts += 1;
            Ok(Err(errors[attempts - 1]))
        });
        (done.unwrap_err().errno, attempts)
    }

    #[test]
    fn the_error_is_that_of_the_address_that_can_be_reached() {
        use Errno as E;
        for (errors, expected) in [
            (&[E::CONNREFUSED, E::ADDRNOTAVAIL][..], E::CONNREFUSED),
            (&[E::CONNREFUSED, E::AFNOSUPPORT], E::CONNREFUSED),
            (&[E::TIMEDOUT, E::NETUNREACH], E::TIMEDOUT),
            (&[E::HOSTUNREACH, E::NETUNREACH], E::HOSTUNREACH),
            (&[E::NETUNREACH, E::CONNREFUSED], E::CONNREFUSED),
            (&[E::CONNREFUSED, E::TIMEDOUT], E::TIMEDOUT),
            (&[E::ADDRINUSE, E::CONNREFUSED], E::CONNREFUSED),
            (&[E::AFNOSUPPORT], E::AFNOSUPPORT),
        ] {
            let found = searched(Action::Connect, errors);
            assert_eq!(found, (Some(expected.into()), errors.len()), "{errors:?}");
        }
        assert_eq!(searched(Action::Connect, &[]).1, 0);
    }

    #[test]
    fn an_address_in_use_ends_the_search() {
        use Errno as E;
        for (errors, attempts) in [
            (&[E::ADDRINUSE, E::ADDRNOTAVAIL][..], 1),
            (&[E::ADDRNOTAVAIL, E::ADDRINUSE, E::ACCESS], 2),
        ] {
            let found = searched(Action::Listen, errors);
            assert_eq!(found, (Some(E::ADDRINUSE.into()), attempts));
        }
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let free = "127.0.0.1:0".parse().unwrap();
        let host = host_with(&[taken.local_addr().unwrap(), free]);
        let errno = listen(&host, 1, OPERAND).unwrap_err().errno;
        assert_eq!(errno, Some(cordboard::Errno::EADDRINUSE));
    }

    /// Its address of IPv4 is bound, and not listened at.
    #[test]
    fn a_refused_connection_is_reported_without_ipv6() {
        let ipv4 = socket("127.0.0.1:0".parse().unwrap(), SocketType::STREAM).unwrap();
        rustix::net::bind(&ipv4, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
        let bound = rustix::net::getsockname(&ipv4).unwrap();
        let bound = SocketAddr::try_from(bound).unwrap();
        let host = host_with(&[bound, (Ipv6Addr::LOCALHOST, bound.port()).into()]);
        let family = u32::from(AddressFamily::INET6.as_raw());
        let failed = testkit::refuse::apart(|| {
            testkit::refuse::refuse_where(libc::SYS_socket, 0, family, libc::EAFNOSUPPORT);
            connect(&host, SocketType::STREAM, OPERAND).unwrap_err()
        });
        assert_eq!(failed.errno, Some(cordboard::Errno::ECONNREFUSED));
    }

    #[test]
    fn every_address_is_one_of_ipv4_without_ipv6() {
        let family = u32::from(AddressFamily::INET6.as_raw());
        let without = std::thread::spawn(move || {
            testkit::refuse::refuse_where(libc::SYS_socket, 0, family, libc::EAFNOSUPPORT);
            every_address()
        });
        assert_eq!(without.join().unwrap(), IpAddr::from(Ipv4Addr::UNSPECIFIED));
    }
}
