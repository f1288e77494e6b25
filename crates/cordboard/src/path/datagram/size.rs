//! Usual and largest lengths of datagrams.

use crate::endpoint::Kind;
use crate::path::flow::Flow;
use crate::sys::{self, Known};

/// Bytes, and datagrams, that are joined for a stream before they are written.
pub(super) const JOINED: usize = 64 << 10;
pub(super) const MOST_JOINED: usize = 64;

/// The largest UDP datagram with room to spare, and the smallest buffer for one.
const LARGEST: usize = 64 << 10;
/// The largest message into which a stream is cut for a UNIX socket.
pub(super) const LOCAL: usize = 128 << 10;
/// Memory limit for a block given by the caller that a UNIX socket refuses.
const LARGEST_BLOCK: usize = 16 << 20;
/// The payload of an Ethernet frame, if the path MTU is unknown.
pub(in crate::path) const UDP_PAYLOAD: usize = 1472;

/// The longest message of a UNIX socket: the most that `kmalloc` returns in one
/// piece, 4 MiB with pages of 4 KiB, and as many pages as a packet has fragments:
/// 17, and 45 at most (`CONFIG_MAX_SKB_FRAGS`, since Linux 6.4;
/// `unix_dgram_sendmsg`, net/unix/af_unix.c; `sock_alloc_send_pskb`,
/// net/core/sock.c). A sender needs `SO_SNDBUFFORCE` for it, or a larger
/// `wmem_max`. An odd number of pages, so that slots of this length do not map to
/// the same cache sets.
#[cfg(target_pointer_width = "64")]
const LONGEST_LOCAL: usize = (4 << 20) + (196 << 10);
/// A 32-bit process has little address space.
#[cfg(not(target_pointer_width = "64"))]
const LONGEST_LOCAL: usize = 1 << 20;

/// The buffer length for any datagram of this kind of socket, if address space
/// allows.
pub(in crate::path) fn longest(kind: Kind) -> usize {
    if kind == Kind::Udp {
        LARGEST
    } else {
        LONGEST_LOCAL
    }
}

/// The buffer length for all datagrams of this kind of socket that an ordinary
/// sender can make.
pub(in crate::path) fn largest(kind: Kind) -> usize {
    if kind == Kind::Udp {
        LARGEST
    } else {
        largest_local()
    }
}

/// Returns the size of the datagrams into which a stream is cut: the caller's
/// block, or what the sink's path carries without fragments.
pub(in crate::path) fn size_for(flow: &Flow<'_>) -> usize {
    if let Some(block) = flow.options.block {
        return of_block(flow.sink.kind(), block);
    }
    let fd = flow.sink.fd();
    match flow.sink.kind() {
        Kind::Udp => sys::path_mtu(fd).map_or(UDP_PAYLOAD, |mtu| mtu.clamp(548, 65_507)),
        // What a loop with the usual buffer would send, if the send buffer has
        // room for it: a longer message is EMSGSIZE.
        Kind::UnixDatagram | Kind::UnixSeqpacket => {
            let room = rustix::net::sockopt::socket_send_buffer_size(fd).unwrap_or(LARGEST);
            (room / 4 * 3).clamp(4096, LOCAL)
        }
        _ => UDP_PAYLOAD,
    }
}

/// Returns the size of the datagrams into which a stream is cut for a block of the caller.
pub(in crate::path) fn of_block(sink: Kind, block: usize) -> usize {
    // No more memory than the largest datagram that such a socket could send:
    // a longer one is EMSGSIZE anyway.
    let most = match sink {
        Kind::Udp => LARGEST,
        _ => LARGEST_BLOCK,
    };
    block.min(most)
}

/// Returns the largest datagram that a local sender can make by default: the
/// limit of its send buffer, which the kernel doubles.
fn largest_local() -> usize {
    static LIMIT: Known = Known::not_yet();
    LIMIT.get(|| {
        let max = sys::number("/proc/sys/net/core/wmem_max").unwrap_or(212_992);
        (max.saturating_mul(2))
            .clamp(LARGEST, 1 << 20)
            .next_multiple_of(4096)
    })
}
