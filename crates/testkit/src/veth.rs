//! Two network namespaces that a veth pair connects.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Reserved for documentation, and unique in the namespaces.
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const DEVICES: [&str; 2] = ["veth-near", "veth-far"];

/// Two network namespaces with a veth pair between them. They have no names: they exist while
/// this process has their descriptors, or a socket in them is open, so they end with the
/// process, even if it is killed. The veth pair ends with them.
#[derive(Debug)]
pub struct Veth([OwnedFd; 2]);

impl Veth {
    /// Makes them. `mtu`: the MTU of the pair.
    ///
    /// # Errors
    ///
    /// `EPERM` without root; `ENOENT` without `ip(8)`; any other one if it fails.
    pub fn new(mtu: u32) -> io::Result<Veth> {
        on_a_thread(|| {
            let namespaces = [new_namespace()?, new_namespace()?];
            let number = namespaces[0].as_raw_fd();
            let first = format!("/proc/{}/fd/{number}", std::process::id());
            let [near, far] = DEVICES;
            ip(&format!("link add {near} type veth peer name {far}"))?;
            ip(&format!("link set dev {near} netns {first}"))?;
            for (end, namespace) in namespaces.iter().enumerate() {
                enter(namespace)?;
                let (address, device) = (ADDRESSES[end], DEVICES[end]);
                ip(&format!("address add {address}/30 dev {device}"))?;
                ip(&format!("link set dev {device} mtu {mtu} up"))?;
            }
            Ok(Veth(namespaces))
        })
    }

    /// Returns the ends of a new TCP connection, one in each namespace.
    pub fn connection(&self) -> io::Result<(TcpStream, TcpStream)> {
        let Veth([near, far]) = self;
        // A socket stays in the namespace in which it was made.
        let listener = within(far, || TcpListener::bind((ADDRESSES[1], 0)))?;
        let address = listener.local_addr()?;
        let near = within(near, || TcpStream::connect(address))?;
        Ok((near, listener.accept()?.0))
    }
}

/// Runs `work` on a thread in this namespace.
fn within<T: Send>(
    namespace: &OwnedFd,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    on_a_thread(|| {
        enter(namespace)?;
        work()
    })
}

/// Runs `work` on a thread that may change its namespace. The calling thread keeps its own.
fn on_a_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let joined = scope.spawn(work).join();
        joined.map_err(|_| io::Error::other("a thread in a network namespace has panicked"))?
    })
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
        .output()
        .map_err(|error| {
            let text = format!("cannot run ip, of Debian's package iproute2: {error}");
            io::Error::new(error.kind(), text)
        })?;
    match ran.status.success() {
        true => Ok(()),
        false => {
            let complaint = String::from_utf8_lossy(&ran.stderr);
            Err(io::Error::other(format!("ip: {}", complaint.trim())))
        }
    }
}
