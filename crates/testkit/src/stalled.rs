//! TCP connections whose peer does not read, each with a state that is easily taken for
//! readiness.

use std::io::Read;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendFlags, send};

/// A state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Transmit timestamps are queued (`SO_TIMESTAMPING`).
    Timestamps,
    /// Notifications of `MSG_ZEROCOPY` are queued.
    Zerocopy,
    /// The buffer has room that `TCP_NOTSENT_LOWAT` forbids to use.
    Unsent,
    /// The buffer has a few KiB.
    Small,
}

/// All of them.
pub const TROUBLES: [Trouble; 4] = [
    Trouble::Timestamps,
    Trouble::Zerocopy,
    Trouble::Unsent,
    Trouble::Small,
];

impl Trouble {
    /// Whether `poll(2)` reports it as `POLLERR` until the error queue is read.
    pub fn shows_an_error(self) -> bool {
        matches!(self, Trouble::Timestamps | Trouble::Zerocopy)
    }
}

/// Sets a socket option that is an integer.
pub fn set(socket: impl AsFd, level: i32, name: i32, value: i32) {
    // SAFETY: reads one integer.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    let error = std::io::Error::last_os_error();
    assert_eq!(done, 0, "{level} {name}: {error}");
}

/// Returns the events that `poll(2)` reports at this moment.
pub fn shows(fd: impl AsFd) -> PollFlags {
    let fd = fd.as_fd();
    let mut fds = [PollFd::new(&fd, PollFlags::IN | PollFlags::OUT)];
    poll(&mut fds, Some(&Timespec::default())).unwrap();
    fds[0].revents()
}

const SIOCOUTQNSD: libc::Ioctl = 0x894B;

/// Returns the number of bytes that a connection has not sent.
fn unsent(socket: &TcpStream) -> i32 {
    ask(socket.as_fd(), SIOCOUTQNSD)
}

/// Returns the number of bytes that a socket's peer has not read.
pub fn untaken(socket: BorrowedFd<'_>) -> i32 {
    ask(socket, libc::TIOCOUTQ)
}

/// Returns the number of bytes that a TCP connection has sent and its peer has not acknowledged.
/// With none, a peer that reads nothing makes no more room.
pub fn in_flight(socket: BorrowedFd<'_>) -> i32 {
    let unsent = ask(socket, SIOCOUTQNSD);
    ask(socket, libc::TIOCOUTQ) - unsent
}

fn ask(socket: BorrowedFd<'_>, what: libc::Ioctl) -> i32 {
    let mut unsent = 0;
    // SAFETY: fills in one integer.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), what, &raw mut unsent) };
    assert_eq!(done, 0);
    unsent
}

/// Returns a connection whose segments are as short as on a real network: the last one
/// of a window does not wait for a timer until a long one fits.
fn small_segments() -> (TcpStream, TcpStream) {
    use rustix::net::{AddressFamily, SocketType, connect, socket};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let sink = TcpStream::from(socket);
    set(&sink, libc::IPPROTO_TCP, libc::TCP_MAXSEG, 1400);
    connect(&sink, &listener.local_addr().unwrap()).unwrap();
    (sink, listener.accept().unwrap().0)
}

/// Returns a connection in this state, with nothing in it.
pub fn pair(trouble: Trouble) -> (TcpStream, TcpStream) {
    let (sink, peer) = small_segments();
    set(&peer, libc::SOL_SOCKET, libc::SO_RCVBUF, 32 << 10);
    match trouble {
        Trouble::Timestamps => {
            let sent = libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
            set(&sink, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, sent as i32);
        }
        Trouble::Zerocopy => set(&sink, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1),
        Trouble::Unsent => set(&sink, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, 16 << 10),
        Trouble::Small => {}
    }
    if trouble != Trouble::Unsent {
        set(&sink, libc::SOL_SOCKET, libc::SO_SNDBUF, 16 << 10);
    }
    (sink, peer)
}

/// Sends until the connection accepts no more, and has an entry in its error queue if
/// this state has some. Returns the number of bytes.
pub fn fill(sink: &TcpStream, trouble: Trouble) -> usize {
    let mut flags = SendFlags::DONTWAIT;
    if trouble == Trouble::Zerocopy {
        flags |= SendFlags::from_bits_retain(libc::MSG_ZEROCOPY as u32);
    }
    let mut filled = 0;
    loop {
        if let Ok(n) = send(sink, &[7; 4096], flags) {
            filled += n;
            continue;
        }
        let seen = shows(sink);
        let told = seen.contains(PollFlags::ERR) == trouble.shows_an_error();
        if told && !seen.contains(PollFlags::OUT) && unsent(sink) > 0 {
            return filled;
        }
        std::thread::yield_now();
    }
}

/// Returns a connection that accepts no more, and the number of bytes in it.
pub fn stalled(trouble: Trouble) -> (TcpStream, TcpStream, usize) {
    let (sink, peer) = pair(trouble);
    let filled = fill(&sink, trouble);
    (sink, peer, filled)
}

/// Returns a silent connection, with an entry in its error queue if this state has
/// some.
pub fn silent(trouble: Trouble) -> (TcpStream, TcpStream) {
    let (socket, mut peer) = pair(trouble);
    let flags = match trouble {
        Trouble::Zerocopy => SendFlags::from_bits_retain(libc::MSG_ZEROCOPY as u32),
        _ => SendFlags::empty(),
    };
    send(&socket, b"hello", flags).unwrap();
    peer.read_exact(&mut [0; 5]).unwrap();
    while shows(&socket).contains(PollFlags::ERR) != trouble.shows_an_error() {
        std::thread::yield_now();
    }
    (socket, peer)
}
