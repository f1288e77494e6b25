//! The options of a TCP connection that the command opens.
//!
//! Between processes of one host, the connection is not paced. BBR (net/ipv4/tcp_bbr.c) measures the rate
//! of a path, and a timer sends at this rate. Within a host there is no such path: it divides the bytes into
//! pieces, and each wakes the reader. `sendfile(2)` had an eighth of the rate of reno, at seven times the
//! processor time.
//!
//! A connection that BBR has begun stays paced with each algorithm (`sk_pacing_status`). So the socket has
//! reno before it connects or listens, and its default again if the peer is on another host.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags, SocketType, getpeername, getsockname, sockopt};

/// The algorithm of each kernel, which any process may use (`tcp_allowed_congestion_control` in
/// tcp(7)). It sends as soon as the windows permit.
const WITHOUT_PACING: &str = "reno";

/// Prepares a socket that will connect or listen. An error leaves it as it is.
pub fn prepare(socket: impl AsFd) {
    let Ok(default) = sockopt::tcp_congestion(&socket) else {
        return;
    };
    if is_paced(&default) && can_return_to(&default, &socket) {
        let _ = sockopt::set_tcp_congestion(&socket, WITHOUT_PACING);
    }
}

/// Sets the options of a connection that carries a transfer, whose socket was prepared or has come
/// from such a listener. An error leaves an option as it is.
pub fn set(socket: impl AsFd) {
    // The last bytes are sent without delay.
    let _ = sockopt::set_tcp_nodelay(&socket, true);
    let is_prepared = sockopt::tcp_congestion(&socket).is_ok_and(|name| name == WITHOUT_PACING);
    if is_prepared
        && !is_local(&socket)
        && let Ok(default) = new_like(&socket).and_then(sockopt::tcp_congestion)
        && is_paced(&default)
    {
        let _ = sockopt::set_tcp_congestion(&socket, &default);
    }
}

/// Returns whether a socket like this one may have this algorithm again after another one. A user
/// may not if `tcp_allowed_congestion_control` does not name it.
fn can_return_to(name: &str, socket: impl AsFd) -> bool {
    let returned = new_like(socket).and_then(|new| {
        sockopt::set_tcp_congestion(&new, WITHOUT_PACING)?;
        sockopt::set_tcp_congestion(&new, name)
    });
    returned.is_ok()
}

fn new_like(socket: impl AsFd) -> Result<OwnedFd, Errno> {
    let domain = sockopt::socket_domain(socket)?;
    rustix::net::socket_with(domain, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// Returns whether a timer determines when a connection with this algorithm sends.
fn is_paced(name: &str) -> bool {
    name.starts_with("bbr")
}

/// Returns whether both ends are on this host: a connection to one of the host's own addresses has it
/// on both sides, and the loopback network has several.
fn is_local(socket: impl AsFd) -> bool {
    let own = getsockname(&socket).ok().and_then(ip);
    let peer = getpeername(&socket).ok().flatten().and_then(ip);
    peer.is_some_and(|peer| peer.is_loopback() || own == Some(peer))
}

fn ip(address: SocketAddrAny) -> Option<IpAddr> {
    let address = SocketAddr::try_from(address).ok()?;
    Some(address.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    /// Returns the address of an interface other than the loopback one.
    fn own_address() -> Option<IpAddr> {
        let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
        socket.connect("192.0.2.1:9").ok()?;
        Some(socket.local_addr().ok()?.ip())
    }

    #[test]
    fn a_connection_within_the_host_stays_unpaced() {
        let mut addresses: Vec<IpAddr> = vec!["127.0.0.1".parse().unwrap()];
        addresses.push("127.0.0.2".parse().unwrap());
        addresses.extend(own_address());
        for address in addresses {
            let listener = TcpListener::bind((address, 0)).unwrap();
            // It may be missing, or forbidden.
            let paced = sockopt::set_tcp_congestion(&listener, "bbr");
            prepare(&listener);
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (socket, _) = listener.accept().unwrap();
            set(&socket);
            assert!(sockopt::tcp_nodelay(&socket).unwrap());
            assert!(is_local(&socket) && is_local(&client), "{address}");
            if paced.is_ok() {
                assert_eq!(sockopt::tcp_congestion(&socket).unwrap(), WITHOUT_PACING);
            }
        }
    }

    #[test]
    fn another_algorithm_stays() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        if sockopt::set_tcp_congestion(&socket, "cubic").is_err() {
            return testkit::skip::here("the algorithm cubic is missing");
        }
        prepare(&socket);
        set(&socket);
        assert_eq!(sockopt::tcp_congestion(&socket).unwrap(), "cubic");
    }

    #[test]
    fn a_default_that_could_not_return_stays() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let default = sockopt::tcp_congestion(&socket).unwrap();
        assert!(can_return_to(&default, &socket));
        assert!(!can_return_to("none of these", &socket));
        assert_eq!(sockopt::tcp_congestion(&socket).unwrap(), default);
    }

    #[test]
    fn a_connection_to_another_host_has_the_default() {
        // It has no peer, as if on another host.
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let default = sockopt::tcp_congestion(&socket).unwrap();
        prepare(&socket);
        let prepared = sockopt::tcp_congestion(&socket).unwrap();
        assert!(!is_paced(&prepared));
        set(&socket);
        assert_eq!(sockopt::tcp_congestion(&socket).unwrap(), default);
    }

    #[test]
    fn a_connection_to_another_host_is_not_local() {
        let unconnected = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(!is_local(&unconnected));
        let Some(own) = own_address() else {
            return testkit::skip::here("there is no route to another host");
        };
        // A datagram socket has the addresses of a connection, and sends nothing.
        let remote = UdpSocket::bind((own, 0)).unwrap();
        remote.connect("192.0.2.1:9").unwrap();
        assert!(!is_local(&remote));
    }
}
