//! Sockets of families that few kernels have.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Makes an `AF_ALG` socket that returns the SHA-256 digest of the bytes written to it.
///
/// # Errors
///
/// `EAFNOSUPPORT` without `AF_ALG`; `ENOENT` without this hash.
pub fn sha256() -> io::Result<OwnedFd> {
    let algorithm = socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0)?;
    // SAFETY: all fields are integers, for which zero is valid.
    let mut name: libc::sockaddr_alg = unsafe { std::mem::zeroed() };
    name.salg_family = libc::AF_ALG as u16;
    name.salg_type[..4].copy_from_slice(b"hash");
    name.salg_name[..6].copy_from_slice(b"sha256");
    bind(&algorithm, &name)?;
    // SAFETY: null pointers request no address.
    owned(unsafe {
        libc::accept(
            algorithm.as_raw_fd(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    })
}

/// Makes an SCTP socket for messages of all peers (`SOCK_SEQPACKET`), and one that is
/// connected to it.
///
/// # Errors
///
/// `EPROTONOSUPPORT` or `ESOCKTNOSUPPORT` without SCTP.
pub fn sctp() -> io::Result<(OwnedFd, OwnedFd)> {
    sctp_peers(libc::SOCK_SEQPACKET)
}

/// Makes two connected SCTP sockets for a stream.
///
/// # Errors
///
/// As [`sctp`].
pub fn sctp_stream() -> io::Result<(OwnedFd, OwnedFd)> {
    let (listener, near) = sctp_peers(libc::SOCK_STREAM)?;
    Ok((near, accepted(&listener)?))
}

/// Makes a listening SCTP socket of this type, and one that is connected to it.
fn sctp_peers(kind: libc::c_int) -> io::Result<(OwnedFd, OwnedFd)> {
    let both = (
        socket(libc::AF_INET, kind, libc::IPPROTO_SCTP)?,
        socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP)?,
    );
    let mut name = loopback();
    bind(&both.0, &name)?;
    // SAFETY: takes integers.
    check(unsafe { libc::listen(both.0.as_raw_fd(), 1) })?;
    let mut length = size_of_val(&name) as libc::socklen_t;
    let at = (&raw mut name).cast::<libc::sockaddr>();
    // SAFETY: `name` is valid for `length` bytes.
    check(unsafe { libc::getsockname(both.0.as_raw_fd(), at, &raw mut length) })?;
    // SAFETY: as above.
    check(unsafe { libc::connect(both.1.as_raw_fd(), at, length) })?;
    Ok(both)
}

/// Makes two connected VSOCK sockets for sequenced packets (`vsock(7)`, since Linux 5.14).
///
/// # Errors
///
/// `EADDRNOTAVAIL` without the loopback transport (`vsock_loopback`, since Linux 5.6).
pub fn vsock() -> io::Result<(OwnedFd, OwnedFd)> {
    let packets = || socket(libc::AF_VSOCK, libc::SOCK_SEQPACKET, 0);
    let (listener, near) = (packets()?, packets()?);
    // SAFETY: all fields are integers, for which zero is valid.
    let mut name: libc::sockaddr_vm = unsafe { std::mem::zeroed() };
    name.svm_family = libc::AF_VSOCK as u16;
    name.svm_cid = libc::VMADDR_CID_LOCAL;
    name.svm_port = libc::VMADDR_PORT_ANY;
    bind(&listener, &name)?;
    let mut length = size_of_val(&name) as libc::socklen_t;
    let at = (&raw mut name).cast::<libc::sockaddr>();
    // SAFETY: `name` is valid for `length` bytes.
    check(unsafe { libc::getsockname(listener.as_raw_fd(), at, &raw mut length) })?;
    // SAFETY: takes integers.
    check(unsafe { libc::listen(listener.as_raw_fd(), 1) })?;
    // SAFETY: as above.
    check(unsafe { libc::connect(near.as_raw_fd(), at, length) })?;
    Ok((near, accepted(&listener)?))
}

fn accepted(listener: &OwnedFd) -> io::Result<OwnedFd> {
    let none = std::ptr::null_mut();
    let flags = libc::SOCK_CLOEXEC;
    // SAFETY: null pointers request no address.
    owned(unsafe { libc::accept4(listener.as_raw_fd(), none, std::ptr::null_mut(), flags) })
}

/// Makes an ICMP socket (`icmp(7)`, since Linux 3.0) whose echo requests the kernel itself
/// answers, in a new network namespace.
///
/// # Errors
///
/// `EPERM` without root; `ENOENT` without procfs.
pub fn ping() -> io::Result<OwnedFd> {
    // The calling thread keeps its network namespace.
    let made = std::thread::spawn(|| {
        // SAFETY: takes an integer.
        check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
        let allowed = "/proc/sys/net/ipv4/ping_group_range";
        std::fs::write(allowed, "0 0")?;
        let ping = socket(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP)?;
        // SAFETY: all fields are integers, for which zero is valid.
        let mut device: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in device.ifr_name.iter_mut().zip(*b"lo") {
            *to = from as libc::c_char;
        }
        device.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
        let up = libc::SIOCSIFFLAGS as _;
        // SAFETY: the request is live, and of the type that the call takes.
        check(unsafe { libc::ioctl(ping.as_raw_fd(), up, &raw const device) })?;
        let name = loopback();
        let length = size_of_val(&name) as libc::socklen_t;
        let at = (&raw const name).cast();
        // SAFETY: `name` is valid for `length` bytes.
        check(unsafe { libc::connect(ping.as_raw_fd(), at, length) })?;
        Ok(ping)
    });
    made.join()
        .map_err(|_| io::Error::other("the thread has panicked"))?
}

/// Makes a TCP socket whose connection to this port of the loopback device begins with the first
/// send (`TCP_FASTOPEN_CONNECT`, without a cookie: since Linux 4.15).
///
/// # Errors
///
/// `EOPNOTSUPP` if `net.ipv4.tcp_fastopen` excludes clients; `ENOPROTOOPT` before Linux 4.15;
/// another error if the kernel has begun the connection.
pub fn deferred(port: u16) -> io::Result<std::net::TcpStream> {
    // include/uapi/linux/tcp.h; libc does not define them.
    const TCP_FASTOPEN_CONNECT: libc::c_int = 30;
    const TCP_FASTOPEN_NO_COOKIE: libc::c_int = 34;
    // From tcp_states.h.
    const SYN_SENT: u8 = 2;
    let socket = socket(libc::AF_INET, libc::SOCK_STREAM, 0)?;
    let (fd, level) = (socket.as_raw_fd(), libc::IPPROTO_TCP);
    for name in [TCP_FASTOPEN_CONNECT, TCP_FASTOPEN_NO_COOKIE] {
        let on: libc::c_int = 1;
        let length = size_of_val(&on) as libc::socklen_t;
        let at = (&raw const on).cast();
        // SAFETY: `on` is valid for `length` bytes.
        check(unsafe { libc::setsockopt(fd, level, name, at, length) })?;
    }
    let mut name = loopback();
    name.sin_port = port.to_be();
    let length = size_of_val(&name) as libc::socklen_t;
    let at = (&raw const name).cast();
    // SAFETY: `name` is valid for `length` bytes.
    check(unsafe { libc::connect(fd, at, length) })?;
    let (mut state, mut length) = (0u8, 1);
    let at = (&raw mut state).cast();
    // SAFETY: `state` is valid for one byte, the first of struct tcp_info.
    check(unsafe { libc::getsockopt(fd, level, libc::TCP_INFO, at, &raw mut length) })?;
    match state {
        SYN_SENT => Ok(socket.into()),
        _ => Err(io::Error::other("the kernel has begun the connection")),
    }
}

fn loopback() -> libc::sockaddr_in {
    // SAFETY: all fields are integers, for which zero is valid.
    let mut name: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    name.sin_family = libc::AF_INET as u16;
    name.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
    name
}

fn socket(family: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes integers.
    owned(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) })
}

fn bind<T>(socket: &OwnedFd, name: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    let name = (&raw const *name).cast();
    // SAFETY: `name` is a name of a socket, and as long as this.
    check(unsafe { libc::bind(socket.as_raw_fd(), name, length) })
}

fn check(done: libc::c_int) -> io::Result<()> {
    match done {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    check(fd)?;
    // SAFETY: the kernel has just made it, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
