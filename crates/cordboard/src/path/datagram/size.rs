//! How long datagrams are, and how long they can be.

use crate::endpoint::Kind;
use crate::path::flow::Flow;
use crate::sys::{self, Known};

/// Bytes that are joined for a stream before they are written, and datagrams.
pub(super) const JOINED: usize = 64 << 10;
pub(super) const MOST_JOINED: usize = 64;

/// The largest UDP datagram with room to spare, and the least that a buffer
/// for one has.
const LARGEST: usize = 64 << 10;
/// The messages that a stream is cut into for a local socket.
pub(super) const LOCAL: usize = 128 << 10;
/// What is enough for a block of the caller's that a local socket refuses.
const LARGEST_BLOCK: usize = 16 << 20;
/// What fits an Ethernet frame, where the path's MTU is not known.
const UDP_PAYLOAD: usize = 1472;

/// The longest message of a UNIX socket: what `kmalloc` gives at most in one
/// piece, 4 MiB with pages of 4 KiB, and as many pages as a packet has fragments:
/// 17, and 45 at most (`CONFIG_MAX_SKB_FRAGS`, since Linux 6.4;
/// `unix_dgram_sendmsg`, net/unix/af_unix.c; `sock_alloc_send_pskb`,
/// net/core/sock.c). A sender needs `SO_SNDBUFFORCE` for it, or a larger
/// `wmem_max`. An odd number of pages: slots of this length do not begin at the
/// same places of a cache.
#[cfg(target_pointer_width = "64")]
const LONGEST_LOCAL: usize = (4 << 20) + (196 << 10);
/// A 32-bit process has few addresses.
#[cfg(not(target_pointer_width = "64"))]
const LONGEST_LOCAL: usize = 1 << 20;

/// What a buffer for any datagram of this kind of socket takes, where there are
/// so many addresses.
pub(in crate::path) fn longest(kind: Kind) -> usize {
    if kind == Kind::Udp {
        LARGEST
    } else {
        LONGEST_LOCAL
    }
}

/// What a buffer for datagrams of this kind of socket needs: for all that an
/// ordinary sender can make.
pub(in crate::path) fn largest(kind: Kind) -> usize {
    if kind == Kind::Udp {
        LARGEST
    } else {
        largest_local()
    }
}

/// The size of the datagrams that a stream is cut into: the caller's block, or
/// what the sink's way takes without fragments.
pub(in crate::path) fn size_for(flow: &Flow<'_>) -> usize {
    if let Some(block) = flow.options.block {
        // No more memory than what any such socket could send: the datagram
        // is then still too long for it, and EMSGSIZE the answer.
        let most = match flow.sink.kind() {
            Kind::Udp => LARGEST,
            _ => LARGEST_BLOCK,
        };
        return block.min(most);
    }
    let fd = flow.sink.fd();
    match flow.sink.kind() {
        Kind::Udp => sys::path_mtu(fd).map_or(UDP_PAYLOAD, |mtu| mtu.clamp(548, 65_507)),
        // What a loop with the usual buffer would send, where the send buffer
        // has room for it: a message longer than that is EMSGSIZE.
        Kind::UnixDatagram | Kind::UnixSeqpacket => {
            let room = rustix::net::sockopt::socket_send_buffer_size(fd).unwrap_or(LARGEST);
            (room / 4 * 3).clamp(4096, LOCAL)
        }
        _ => UDP_PAYLOAD,
    }
}

/// The largest datagram that a local sender can make by default: what its
/// send buffer may be set to, which the kernel doubles.
fn largest_local() -> usize {
    static LIMIT: Known = Known::not_yet();
    LIMIT.get(|| {
        let max = sys::number("/proc/sys/net/core/wmem_max").unwrap_or(212_992);
        (max.saturating_mul(2))
            .clamp(LARGEST, 1 << 20)
            .next_multiple_of(4096)
    })
}
