//! Data connections: passive and active.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::random;
use super::waiting::Waited;
use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// The longest wait for a connection from the client or to the client.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// An active connection to a lower port is refused, because a server on the client's
/// machine might listen there (RFC 2577).
const FIRST_PORT: u16 = 1024;

/// The mode of the next data connection.
#[derive(Debug, Default)]
pub enum Mode {
    #[default]
    Unset,
    Passive(TcpListener),
    Active(SocketAddr),
}

/// Listens for one data connection, at the address of the control connection.
pub fn listen(address: SocketAddr, ports: Option<(u16, u16)>) -> io::Result<TcpListener> {
    let Some(ports) = ports else {
        return TcpListener::bind(at_port(address, 0));
    };
    let mut refused = io::ErrorKind::AddrInUse.into();
    for port in from(ports, random::number()) {
        match bind_at(at_port(address, port)) {
            Ok(listener) => return Ok(listener),
            Err(error) => refused = error,
        }
    }
    Err(match refused.kind() {
        io::ErrorKind::AddrInUse => io::Error::new(refused.kind(), "the passive ports are used up"),
        _ => refused,
    })
}

/// Returns the ports of a range in turn. The number selects the first one: if it is random, another
/// host cannot predict the next port, and cannot connect before the client.
fn from((first, last): (u16, u16), number: u64) -> impl Iterator<Item = u16> {
    let count = u64::from(last - first) + 1;
    (0..count).map(move |step| first + ((number % count + step) % count) as u16)
}

/// Returns the address with another port. A link-local address of IPv6 keeps its interface
/// (`sin6_scope_id`), without which it cannot be used.
fn at_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// Listens at a port at which no other socket listens. Earlier connections in TIME_WAIT do
/// not prevent this (`SO_REUSEADDR`).
fn bind_at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(address, SocketFlags::CLOEXEC)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, 8)?;
    Ok(TcpListener::from(socket))
}

fn socket(address: SocketAddr, flags: SocketFlags) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    Ok(rustix::net::socket_with(
        family,
        SocketType::STREAM,
        flags,
        None,
    )?)
}

/// Returns the address of an active connection, if it is allowed. It must be the address of
/// the client, so that no other host can be attacked through the server. A client cannot name
/// the interface of a link-local address: it is that of the control connection. A socket of
/// IPv6 cannot connect from an address of IPv4, so a mapped address becomes one of IPv4.
pub fn destination(mut to: SocketAddr, peer: SocketAddr) -> Option<SocketAddr> {
    if let (SocketAddr::V6(to), SocketAddr::V6(peer)) = (&mut to, peer) {
        to.set_scope_id(peer.scope_id());
    }
    to.set_ip(to.ip().to_canonical());
    let is_client = to.ip() == peer.ip().to_canonical();
    (is_client && to.port() >= FIRST_PORT).then_some(to)
}

/// Why there is no data connection.
#[derive(Debug)]
pub enum NoConnection {
    Failed(io::Error),
    /// The wait has ended without a connection.
    Waited(Waited),
}

/// Waits for events of a descriptor.
pub type Wait<'a> = dyn FnMut(BorrowedFd<'_>, PollFlags) -> Waited + 'a;

/// Makes the data connection. `local` is the address of the control connection.
pub fn connect(
    mode: Mode,
    (local, client): (SocketAddr, IpAddr),
    wait: &mut Wait<'_>,
) -> Result<TcpStream, NoConnection> {
    let socket = match mode {
        Mode::Unset => return Err(NoConnection::Failed(io::ErrorKind::NotConnected.into())),
        Mode::Active(to) => open(to, local, wait)?,
        Mode::Passive(listener) => accept(&listener, client, wait)?,
    };
    // The last bytes are sent without delay.
    let _ = socket.set_nodelay(true);
    Ok(socket)
}

/// Connects to the client, from the local address of the control connection.
fn open(to: SocketAddr, local: SocketAddr, wait: &mut Wait<'_>) -> Result<TcpStream, NoConnection> {
    let failed = |errno: rustix::io::Errno| NoConnection::Failed(errno.into());
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket(to, flags).map_err(NoConnection::Failed)?;
    let local = match to {
        SocketAddr::V4(_) => SocketAddr::new(local.ip().to_canonical(), 0),
        SocketAddr::V6(_) => at_port(local, 0),
    };
    rustix::net::bind(&socket, &local).map_err(failed)?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) => {}
        Err(rustix::io::Errno::INPROGRESS) => ready(socket.as_fd(), PollFlags::OUT, wait)?,
        Err(errno) => return Err(failed(errno)),
    }
    match sockopt::socket_error(&socket) {
        Ok(Ok(())) => {}
        Ok(Err(errno)) | Err(errno) => return Err(failed(errno)),
    }
    let socket = TcpStream::from(socket);
    socket
        .set_nonblocking(false)
        .map_err(NoConnection::Failed)?;
    Ok(socket)
}

fn ready(fd: BorrowedFd<'_>, events: PollFlags, wait: &mut Wait<'_>) -> Result<(), NoConnection> {
    match wait(fd, events) {
        Waited::Ready => Ok(()),
        other => Err(NoConnection::Waited(other)),
    }
}

/// The number of connections from other hosts to one passive port. While connections wait there,
/// the wait sees neither its deadline nor ABOR.
const MOST_FOREIGN: u32 = 100;

/// Accepts a connection from the client. Connections from other hosts are closed: another
/// host could otherwise receive the file, or replace it (RFC 2577).
fn accept(
    listener: &TcpListener,
    client: IpAddr,
    wait: &mut Wait<'_>,
) -> Result<TcpStream, NoConnection> {
    for _ in 0..MOST_FOREIGN {
        ready(listener.as_fd(), PollFlags::IN, wait)?;
        match listener.accept() {
            Ok((socket, peer)) if peer.ip().to_canonical() == client.to_canonical() => {
                return Ok(socket);
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(NoConnection::Failed(error)),
        }
    }
    let error = io::Error::other("Other hosts connect to the passive port");
    Err(NoConnection::Failed(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_client_itself_is_connected_to() {
        let to = |to: &str, client: &str| {
            let found = destination(to.parse().unwrap(), client.parse().unwrap());
            found.map(|address| address.to_string())
        };
        let client = "10.0.0.1:5";
        assert_eq!(to("10.0.0.1:1024", client), Some("10.0.0.1:1024".into()));
        for client in [client, "[::ffff:10.0.0.1]:5"] {
            let mapped = to("[::ffff:10.0.0.1]:5000", client);
            assert_eq!(mapped, Some("10.0.0.1:5000".into()));
        }
        for other in ["10.0.0.1:1023", "10.0.0.2:5000", "[::1]:5000"] {
            assert_eq!(to(other, client), None);
        }
    }

    #[test]
    fn a_link_local_address_has_the_interface_of_the_client() {
        let client = "[fe80::1%7]:5".parse().unwrap();
        let to = destination("[fe80::1]:5000".parse().unwrap(), client);
        assert_eq!(to, Some("[fe80::1%7]:5000".parse().unwrap()));
        assert_eq!(at_port(client, 9), "[fe80::1%7]:9".parse().unwrap());
    }

    /// The wait would not see its deadline while they connect.
    #[test]
    fn other_hosts_end_the_wait_for_the_client() {
        let listener = listen("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let at = listener.local_addr().unwrap();
        let mut waits = 0;
        let mut wait = |_: BorrowedFd<'_>, _: PollFlags| {
            waits += 1;
            drop(TcpStream::connect(at).unwrap());
            Waited::Ready
        };
        let client = "127.0.0.2".parse().unwrap();
        let done = accept(&listener, client, &mut wait);
        assert!(matches!(done, Err(NoConnection::Failed(_))), "{done:?}");
        assert_eq!(waits, MOST_FOREIGN);
    }

    #[test]
    fn each_port_of_the_range_is_tried() {
        let ports = |range, number| from(range, number).collect::<Vec<_>>();
        assert_eq!(ports((10, 12), 4), [11, 12, 10]);
        assert_eq!(ports((10, 12), u64::MAX), [10, 11, 12]);
        assert_eq!(ports((7, 7), u64::MAX), [7]);
        assert_eq!(ports((0, u16::MAX), u64::MAX).len(), 1 << 16);
    }

    /// With the ports in turn, each one would be the successor of the one before.
    #[test]
    fn the_next_port_is_not_predictable() {
        let first = || from((1, 60_000), random::number()).next().unwrap();
        let ports: Vec<u16> = (0..20).map(|_| first()).collect();
        let is_next = |pair: &[u16]| pair[1] == pair[0] + 1;
        assert!(!ports.windows(2).all(is_next), "{ports:?}");
    }

    #[test]
    fn ports_of_the_range_are_used() {
        let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let free = TcpListener::bind(address)
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let listener = listen(address, Some((free, free))).unwrap();
        assert_eq!(listener.local_addr().unwrap().port(), free);
        let taken = listen(address, Some((free, free)));
        let error = taken.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(error.to_string(), "the passive ports are used up");
    }
}
