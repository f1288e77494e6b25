//! The network between two processes: loopback, or a veth pair between two network
//! namespaces.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Result, ensure};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use testkit::veth::Veth;

/// A network with two ends.
#[derive(Debug)]
pub enum Network {
    /// The loopback device of this namespace.
    Loopback,
    /// Two namespaces that a veth pair connects.
    Veth(Veth),
}

impl Network {
    /// Makes two namespaces and a veth pair with this MTU between them.
    ///
    /// # Errors
    ///
    /// The reason why that is not possible here.
    pub fn veth(mtu: u32) -> Result<Network> {
        ensure!(rustix::process::geteuid().is_root(), "not root");
        Ok(Network::Veth(Veth::new(mtu)?))
    }

    /// The name in the settings.
    pub fn name(&self) -> &'static str {
        match self {
            Network::Loopback => "loopback",
            Network::Veth(_) => "veth",
        }
    }

    /// Returns the two ends of a new connection.
    pub fn connection(&self) -> Result<(OwnedFd, OwnedFd)> {
        let (near, far) = match self {
            Network::Loopback => loopback()?,
            Network::Veth(veth) => veth.connection()?,
        };
        Ok((near.into(), far.into()))
    }
}

/// Returns the two ends of a connection over loopback, without pacing.
pub fn loopback() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    without_pacing(&listener)?;
    let flags = SocketFlags::CLOEXEC;
    let near = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    without_pacing(&near)?;
    rustix::net::connect(&near, &listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    Ok((near.into(), far))
}

/// Sets an algorithm that does not pace, which each kernel has, as `cordboard` does for a
/// connection within the host. With BBR, the default of some machines, a timer and the wake-ups
/// of the reader determine the rates of all contestants. A connection that has begun with BBR stays
/// paced.
pub fn without_pacing(socket: impl AsFd) -> Result<()> {
    Ok(sockopt::set_tcp_congestion(socket, "reno")?)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn a_byte_arrives_on(network: &Network) {
        let (near, far) = network.connection().unwrap();
        let (mut near, mut far) = (TcpStream::from(near), TcpStream::from(far));
        near.write_all(b"x").unwrap();
        let mut got = [0];
        far.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"x");
    }

    #[test]
    fn both_networks_connect() {
        a_byte_arrives_on(&Network::Loopback);
        let here = || std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        let before = here();
        match Network::veth(9000) {
            Ok(veth) => a_byte_arrives_on(&veth),
            Err(why) => {
                testkit::skip::here(format!("{why:#}"));
            }
        }
        assert_eq!(here(), before, "this thread keeps its namespace");
    }
}
