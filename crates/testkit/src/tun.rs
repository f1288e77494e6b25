//! A network interface whose other end is a descriptor: `/dev/net/tun`. Each read or
//! write is a packet.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The interface's name, in the network namespace of its thread.
const NAME: &[u8] = b"packets0";

/// An interface that is up.
pub struct Tun {
    /// The kernel receives what is written to it.
    pub fd: OwnedFd,
}

/// What the kernel has received from it.
#[derive(Debug, PartialEq, Eq)]
pub struct Received {
    /// Packets.
    pub packets: u64,
    /// Bytes in them.
    pub bytes: u64,
}

impl Tun {
    /// Moves the calling thread to a network namespace of its own, and makes an
    /// interface there.
    ///
    /// # Errors
    ///
    /// `EPERM` without root; `ENOENT` or `ENODEV` without a driver.
    pub fn new() -> io::Result<Tun> {
        // SAFETY: takes a plain number.
        check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
        let device = File::options()
            .read(true)
            .write(true)
            .open("/dev/net/tun")?;
        let mut request = named();
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: the request is live, and of the type that the call takes.
        check(unsafe {
            libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &raw const request)
        })?;
        let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
        let mut request = named();
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        // SAFETY: as above.
        check(unsafe {
            libc::ioctl(
                socket.as_raw_fd(),
                libc::SIOCSIFFLAGS as _,
                &raw const request,
            )
        })?;
        Ok(Tun { fd: device.into() })
    }

    /// Sets the length of the longest packet. Call it on the thread that has made the interface.
    ///
    /// # Errors
    ///
    /// Those of `SIOCSIFMTU` (netdevice(7)).
    pub fn carrying(&self, length: usize) -> io::Result<()> {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
        let mut request = named();
        request.ifr_ifru.ifru_mtu = length as libc::c_int;
        // SAFETY: the request is live, and of the type that the call takes.
        check(unsafe {
            libc::ioctl(
                socket.as_raw_fd(),
                libc::SIOCSIFMTU as _,
                &raw const request,
            )
        })
    }

    /// Has the kernel send these packets by the interface, whose descriptor reads them. Call it
    /// on the thread that has made the interface.
    ///
    /// # Errors
    ///
    /// Those of `socket(2)` and `sendto(2)` with `AF_PACKET`.
    pub fn send(&self, packets: &[Vec<u8>]) -> io::Result<()> {
        let protocol = (libc::ETH_P_IP as u16).to_be();
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        // SAFETY: takes plain numbers.
        let socket = unsafe { libc::socket(libc::AF_PACKET, kind, i32::from(protocol)) };
        check(socket)?;
        // SAFETY: the kernel has just made it, and nothing else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        // SAFETY: the name ends in a zero.
        let index = unsafe { libc::if_nametoindex(named().ifr_name.as_ptr()) };
        // SAFETY: all fields are integers, for which zero is valid.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = libc::AF_PACKET as _;
        to.sll_protocol = protocol;
        to.sll_ifindex = index as _;
        for packet in packets {
            // SAFETY: the packet and the address are live, and as long as stated.
            let sent = unsafe {
                libc::sendto(
                    socket.as_raw_fd(),
                    packet.as_ptr().cast(),
                    packet.len(),
                    0,
                    (&raw const to).cast(),
                    size_of::<libc::sockaddr_ll>() as _,
                )
            };
            if usize::try_from(sent) != Ok(packet.len()) {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// Returns the interface's own counts.
    pub fn received(&self) -> io::Result<Received> {
        let all = std::fs::read_to_string("/proc/thread-self/net/dev")?;
        let name = String::from_utf8_lossy(NAME);
        let line = all
            .lines()
            .find_map(|line| line.trim().strip_prefix(&*name)?.strip_prefix(':'));
        let mut figures = line
            .unwrap_or("")
            .split_whitespace()
            .map(|word| word.parse());
        match (figures.next(), figures.next()) {
            (Some(Ok(bytes)), Some(Ok(packets))) => Ok(Received { packets, bytes }),
            _ => Err(io::Error::other(all)),
        }
    }
}

fn named() -> libc::ifreq {
    // SAFETY: all fields are integers, for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(NAME) {
        *to = *from as libc::c_char;
    }
    request
}

fn check(done: libc::c_int) -> io::Result<()> {
    match done {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
