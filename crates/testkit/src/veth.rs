//! A TCP connection between two network namespaces.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Reserved for documentation, and unique in the namespaces.
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const DEVICES: [&str; 2] = ["veth-near", "veth-far"];

/// Makes two network namespaces and a veth pair between them. Returns the ends of a
/// connection, one in each. The namespaces last as long as the ends.
///
/// # Errors
///
/// `EPERM` without root; `ENOENT` without `ip(8)`; any other one if it fails.
pub fn connection() -> io::Result<(TcpStream, TcpStream)> {
    // The calling thread keeps its namespace.
    let made = std::thread::spawn(|| {
        let namespaces = [new_namespace()?, new_namespace()?];
        let [near, far] = DEVICES;
        ip(&format!("link add {near} type veth peer name {far}"))?;
        let number = namespaces[0].as_raw_fd();
        let near_namespace = format!("/proc/{}/fd/{number}", std::process::id());
        ip(&format!("link set dev {near} netns {near_namespace}"))?;
        for (end, namespace) in namespaces.iter().enumerate() {
            enter(namespace)?;
            let (address, device) = (ADDRESSES[end], DEVICES[end]);
            ip(&format!("address add {address}/30 dev {device}"))?;
            ip(&format!("link set dev {device} up"))?;
        }
        // A socket stays in the namespace in which it was made.
        let listener = TcpListener::bind((ADDRESSES[1], 0))?;
        let address = listener.local_addr()?;
        enter(&namespaces[0])?;
        let near = TcpStream::connect(address)?;
        Ok((near, listener.accept()?.0))
    });
    made.join()
        .map_err(|_| io::Error::other("the thread has panicked"))?
}

/// Moves this thread into a new namespace and returns it.
fn new_namespace() -> io::Result<OwnedFd> {
    // SAFETY: takes an integer.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(std::fs::File::open("/proc/thread-self/ns/net")?.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn enter(namespace: &OwnedFd) -> io::Result<()> {
    let kind = Some(LinkNameSpaceType::Network);
    Ok(move_into_link_name_space(namespace.as_fd(), kind)?)
}

/// Runs `ip(8)`, which inherits the namespace of this thread.
fn ip(words: &str) -> io::Result<()> {
    let ran = Command::new("ip")
        .args(words.split(' '))
        .stdin(Stdio::null())
        .output()?;
    match ran.status.success() {
        true => Ok(()),
        false => {
            let complaint = String::from_utf8_lossy(&ran.stderr);
            Err(io::Error::other(format!("ip: {}", complaint.trim())))
        }
    }
}
