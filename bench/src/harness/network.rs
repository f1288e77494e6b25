//! The network between two processes: loopback, or a veth pair between two network
//! namespaces.
//!
//! The namespaces have no names. They exist while this process has their descriptors, or a
//! socket in them is open, so they end with the process, even if it is killed. The veth pair
//! ends with them.

use std::ffi::OsString;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::sys;

/// The addresses of the two ends. They are reserved for documentation, and unique within their
/// namespaces.
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const DEVICES: [&str; 2] = ["veth-near", "veth-far"];

/// A network with two ends.
#[derive(Debug)]
pub enum Network {
    /// The loopback device of this namespace.
    Loopback,
    /// Two namespaces that a veth pair connects.
    Veth([OwnedFd; 2]),
}

impl Network {
    /// Makes two namespaces and a veth pair with this MTU between them.
    ///
    /// # Errors
    ///
    /// The reason why that is not possible here.
    pub fn veth(mtu: u32) -> Result<Network> {
        ensure!(rustix::process::geteuid().is_root(), "not root");
        // The namespace of a thread that ends: the other threads keep theirs.
        let namespaces = on_a_thread(|| -> Result<[OwnedFd; 2]> {
            let namespaces = [new_namespace()?, new_namespace()?];
            let path = |end: usize| {
                let number = namespaces[end].as_raw_fd();
                format!("/proc/{}/fd/{number}", std::process::id())
            };
            let [near, far] = DEVICES;
            ip(&format!("link add {near} type veth peer name {far}"))?;
            ip(&format!("link set dev {near} netns {}", path(0)))?;
            for (end, namespace) in namespaces.iter().enumerate() {
                enter(namespace)?;
                let (address, device) = (ADDRESSES[end], DEVICES[end]);
                ip(&format!("address add {address}/30 dev {device}"))?;
                ip(&format!("link set dev {device} mtu {mtu} up"))?;
            }
            Ok(namespaces)
        })?;
        Ok(Network::Veth(namespaces))
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
            Network::Veth([near, far]) => {
                let listener = within(far, || TcpListener::bind((ADDRESSES[1], 0)))?;
                let address: SocketAddr = listener.local_addr()?;
                let near = within(near, || TcpStream::connect(address))?;
                (near, listener.accept()?.0)
            }
        };
        Ok((near.into(), far.into()))
    }
}

/// Returns the two ends of a connection over loopback.
pub fn loopback() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    Ok((near, far))
}

/// Moves this thread into a new namespace and returns it.
fn new_namespace() -> Result<OwnedFd> {
    sys::private_network().context("no network namespace")?;
    Ok(File::open("/proc/thread-self/ns/net")?.into())
}

fn enter(namespace: &OwnedFd) -> std::io::Result<()> {
    let kind = Some(LinkNameSpaceType::Network);
    Ok(move_into_link_name_space(namespace.as_fd(), kind)?)
}

/// Runs `work` on a thread in this namespace. A socket stays in the namespace in which it was
/// made.
fn within<T: Send>(
    namespace: &OwnedFd,
    work: impl FnOnce() -> std::io::Result<T> + Send,
) -> Result<T> {
    on_a_thread(|| {
        enter(namespace)?;
        Ok(work()?)
    })
}

fn on_a_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let joined = scope.spawn(work).join();
        joined.map_err(|_| anyhow!("a thread in a network namespace panicked"))?
    })
}

/// Runs `ip`, which inherits the namespace of this thread.
fn ip(words: &str) -> Result<()> {
    let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
    let ran = Command::new("ip")
        .args(&words)
        .stdin(Stdio::null())
        .output();
    let ran = ran.context("cannot run ip, of Debian's package iproute2")?;
    let complaint = String::from_utf8_lossy(&ran.stderr);
    ensure!(ran.status.success(), "ip: {}", complaint.trim());
    Ok(())
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
