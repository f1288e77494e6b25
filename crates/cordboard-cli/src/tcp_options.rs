//! The options of a TCP connection that the command opens.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use rustix::net::{SocketAddrAny, getpeername, getsockname, sockopt};

/// The algorithm of each kernel, which any process may use (`tcp_allowed_congestion_control` in
/// tcp(7)). It sends as soon as the windows permit.
const WITHOUT_PACING: &str = "reno";

/// Sets the options of a connection that carries a transfer. An error leaves an option as it is.
pub fn set(socket: impl AsFd) {
    // The last bytes are sent without delay.
    let _ = sockopt::set_tcp_nodelay(&socket, true);
    if is_local(&socket) && is_paced(&socket) {
        let _ = sockopt::set_tcp_congestion(&socket, WITHOUT_PACING);
    }
}

/// Returns whether a timer determines when the connection sends. BBR measures the rate of a path and
/// paces by it (net/ipv4/tcp_bbr.c). Between processes of one host there is no such path: it divides
/// the bytes into pieces, and each wakes the reader. `sendfile(2)` had an eighth of the rate of reno, at
/// seven times the processor time.
fn is_paced(socket: impl AsFd) -> bool {
    sockopt::tcp_congestion(socket).is_ok_and(|name| name.starts_with("bbr"))
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

    /// Returns both ends of a connection to this address.
    fn connection(to: IpAddr) -> [TcpStream; 2] {
        let listener = TcpListener::bind((to, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [client, listener.accept().unwrap().0]
    }

    /// Returns the address of an interface other than the loopback one.
    fn own_address() -> Option<IpAddr> {
        let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
        socket.connect("192.0.2.1:9").ok()?;
        Some(socket.local_addr().ok()?.ip())
    }

    #[test]
    fn a_connection_within_the_host_is_not_paced() {
        let mut addresses: Vec<IpAddr> = vec!["127.0.0.1".parse().unwrap()];
        addresses.push("127.0.0.2".parse().unwrap());
        addresses.extend(own_address());
        for address in addresses {
            for socket in connection(address) {
                // It may be missing, or forbidden.
                let paced = sockopt::set_tcp_congestion(&socket, "bbr");
                set(&socket);
                assert!(sockopt::tcp_nodelay(&socket).unwrap());
                assert!(is_local(&socket), "{address}");
                assert!(!is_paced(&socket));
                if paced.is_ok() {
                    assert_eq!(sockopt::tcp_congestion(&socket).unwrap(), WITHOUT_PACING);
                }
            }
        }
    }

    #[test]
    fn another_algorithm_stays() {
        for socket in connection("127.0.0.1".parse().unwrap()) {
            if sockopt::set_tcp_congestion(&socket, "cubic").is_err() {
                return testkit::skip::here("the algorithm cubic is missing");
            }
            set(&socket);
            assert_eq!(sockopt::tcp_congestion(&socket).unwrap(), "cubic");
        }
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
