//! TCP connections without pacing, whatever the default of the machine is. With BBR, a timer and the
//! wake-ups of the reader determine the rate, and the path into a connection depends on it too.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// Returns the two ends of a connection over loopback.
///
/// # Errors
///
/// Those of the calls.
pub fn loopback() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let flags = SocketFlags::CLOEXEC;
    let near = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    without_pacing(&listener)?;
    without_pacing(&near)?;
    rustix::net::connect(&near, &listener.local_addr()?)?;
    let near = TcpStream::from(near);
    let own = near.local_addr()?;
    loop {
        let (far, from) = listener.accept()?;
        if from == own {
            return Ok((near, far));
        }
    }
}

/// Sets an algorithm that does not pace, which each kernel has, as `cordboard` does for a
/// connection within the host. To be called before `connect(2)` or `listen(2)`: a connection that has
/// begun with BBR stays paced.
///
/// # Errors
///
/// Those of `setsockopt(2)`.
pub fn without_pacing(socket: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_tcp_congestion(socket, "reno")?)
}
