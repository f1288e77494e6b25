//! Data connections: passive and active.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::budget::Share;
use super::waiting::Waited;
use super::{next_of, random};
use crate::polling::is_of_one_connection;
use crate::{sys, tcp_options};

/// The longest wait for a connection from the client or to the client.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The longest time for which a port is held for a client that neither connects nor sends a command
/// that uses it.
const UNUSED: Duration = Duration::from_secs(60);
/// An active connection to a lower port is refused, because a server on the client's
/// machine might listen there (RFC 2577).
const FIRST_PORT: u16 = 1024;

/// The mode of the next data connection.
#[derive(Debug, Default)]
pub enum Mode {
    #[default]
    Unset,
    Passive(Passive),
    Active(SocketAddr),
}

impl Mode {
    /// Returns when `expire` is to be called.
    pub fn expires(&self) -> Option<Instant> {
        match self {
            Mode::Passive(passive) => passive.until,
            Mode::Unset | Mode::Active(_) => None,
        }
    }

    /// Closes a listener whose time is over, unless a connection has arrived there.
    pub fn expire(&mut self, now: Instant) {
        let Mode::Passive(passive) = self else {
            return;
        };
        if passive.until.is_none_or(|until| now < until) {
            return;
        }
        passive.until = None;
        let shown = sys::shown_now(passive.listener.as_fd(), PollFlags::IN);
        if shown.is_ok_and(|shown| !shown.is_empty()) {
            return;
        }
        *self = Mode::Unset;
    }
}

/// A listener for a client.
#[derive(Debug)]
pub struct Passive {
    listener: TcpListener,
    /// The time until which a connection must arrive. `None`: one has arrived.
    until: Option<Instant>,
    _port: Share,
}

impl Passive {
    /// Listens for one data connection, at the address of the control connection. `port`: the
    /// client's share of the ports of the range.
    pub fn begin(
        address: SocketAddr,
        ports: Option<(u16, u16)>,
        mut port: Share,
        now: Instant,
    ) -> io::Result<Passive> {
        match port.add(1) {
            true => Ok(Passive {
                listener: prepared(listen(address, ports)?),
                until: Some(now + UNUSED),
                _port: port,
            }),
            false => Err(used_up()),
        }
    }

    pub fn port(&self) -> io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }
}

/// Prepares a listener: its connections have its options.
fn prepared(listener: TcpListener) -> TcpListener {
    tcp_options::prepare(&listener);
    listener
}

/// Returns the number of the passive ports, of which each address leaves some to others.
pub fn number_of(ports: Option<(u16, u16)>) -> u64 {
    ports.map_or(u64::MAX, |(first, last)| u64::from(last - first) + 1)
}

fn used_up() -> io::Error {
    io::Error::new(io::ErrorKind::AddrInUse, "the passive ports are used up")
}

/// Listens for one data connection, at the address of the control connection.
fn listen(address: SocketAddr, ports: Option<(u16, u16)>) -> io::Result<TcpListener> {
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
        io::ErrorKind::AddrInUse => used_up(),
        _ => refused,
    })
}

/// Returns the ports of a range in turn. The number selects the first one: if it is random, another
/// host cannot predict the next port, and cannot connect before the client.
fn from((first, last): (u16, u16), number: u64) -> impl Iterator<Item = u16> {
    let count = number_of(Some((first, last)));
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
        Mode::Passive(passive) => accept(&passive.listener, client, wait)?,
    };
    tcp_options::set(&socket);
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
    tcp_options::prepare(&socket);
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
        match next_of(listener) {
            Ok((socket, peer)) if peer.ip().to_canonical() == client.to_canonical() => {
                return Ok(socket);
            }
            Ok(_) => {}
            Err(errno) if is_of_one_connection(errno) => {}
            Err(errno) => return Err(NoConnection::Failed(errno.into())),
        }
    }
    let error = io::Error::other("Other hosts connect to the passive port");
    Err(NoConnection::Failed(error))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use rustix::event::{PollFd, poll};

    use super::super::budget::Budget;
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

    /// A listener that has begun at this time.
    fn passive(now: Instant) -> Passive {
        let budget = Budget::new(number_of(None));
        let share = Share::none_of(&budget, Ipv4Addr::LOCALHOST.into());
        Passive::begin("127.0.0.1:0".parse().unwrap(), None, share, now).unwrap()
    }

    #[test]
    fn a_client_on_this_host_is_not_paced() {
        let passive = passive(Instant::now());
        let local = passive.listener.local_addr().unwrap();
        let client = TcpStream::connect(local).unwrap();
        let mut wait = |fd: BorrowedFd<'_>, events| {
            poll(&mut [PollFd::from_borrowed_fd(fd, events)], None).unwrap();
            Waited::Ready
        };
        let at = (local, client.local_addr().unwrap().ip());
        let socket = connect(Mode::Passive(passive), at, &mut wait).unwrap();
        let default = sockopt::tcp_congestion(&client).unwrap();
        let expected = if default == "bbr" { "reno" } else { &default };
        assert_eq!(sockopt::tcp_congestion(&socket).unwrap(), expected);
    }

    #[test]
    fn a_port_without_a_connection_is_given_back() {
        let now = Instant::now();
        let mut mode = Mode::Passive(passive(now));
        let over = now + UNUSED;
        assert_eq!(mode.expires(), Some(over));
        mode.expire(over - Duration::from_nanos(1));
        assert_eq!(mode.expires(), Some(over));
        mode.expire(over);
        assert!(matches!(mode, Mode::Unset) && mode.expires().is_none());
        // A client that has connected may send its command later.
        let connected = passive(now);
        let port = connected.port().unwrap();
        let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        poll(&mut [PollFd::new(&connected.listener, PollFlags::IN)], None).unwrap();
        let mut mode = Mode::Passive(connected);
        mode.expire(over);
        // The session does not wake up for it again and again.
        assert!(matches!(mode, Mode::Passive(_)) && mode.expires().is_none());
    }

    #[test]
    fn an_address_leaves_ports_to_others() {
        let budget = Budget::new(number_of(Some((1000, 1003))));
        let begin = |host: u8| {
            let share = Share::none_of(&budget, [10, 0, 0, host].into());
            Passive::begin("127.0.0.1:0".parse().unwrap(), None, share, Instant::now())
        };
        let _one = [begin(1).unwrap(), begin(1).unwrap()];
        let error = begin(1).unwrap_err();
        assert_eq!(error.to_string(), "the passive ports are used up");
        let other = begin(2).unwrap();
        drop(other);
        assert!(begin(2).is_ok());
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
