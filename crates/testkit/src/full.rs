//! UNIX sockets without room.

use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};
use rustix::pipe::{SpliceFlags, pipe, splice};

/// Makes a UNIX socket that takes no message of this length, and no byte of a stream,
/// by any call: (the socket, its peer).
pub fn unix(kind: SocketType, length: usize, nonblocking: bool) -> (OwnedFd, OwnedFd) {
    let message = vec![1; length];
    let flags = SocketFlags::CLOEXEC;
    let (sink, peer) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
    while rustix::net::send(&sink, &message, SendFlags::DONTWAIT).is_ok() {}
    if kind == SocketType::STREAM {
        // Before Linux 6.5, splice(2) adds to the last message of a full socket
        // (`unix_stream_sendpage`, net/unix/af_unix.c) until that has no room.
        let (rest, feed) = pipe().unwrap();
        rustix::io::ioctl_fionbio(&sink, true).unwrap();
        let more = || rustix::io::write(&feed, &message);
        while more().is_ok()
            && splice(&rest, None, &sink, None, length, SpliceFlags::NONBLOCK).is_ok()
        {}
    }
    rustix::io::ioctl_fionbio(&sink, nonblocking).unwrap();
    (sink, peer)
}
