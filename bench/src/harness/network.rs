//! The network between two processes: loopback, or a veth pair between two network
//! namespaces.

use std::os::fd::OwnedFd;

use anyhow::{Result, ensure};
pub use testkit::tcp::{loopback, without_pacing};
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

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
