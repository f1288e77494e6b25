//! Telling an empty datagram from the end of the source.

use rustix::event::PollFlags;
use rustix::net::RecvFlags;

use crate::endpoint::Kind;
use crate::path::flow::Flow;
use crate::sys::{self, Received};

/// `SO_PASSCRED` on a sequenced-packet source: credentials come with every
/// message, and with the end there are none.
#[derive(Default)]
pub(in crate::path) struct Credentials {
    /// To be taken off at the end.
    set: bool,
}

impl Credentials {
    /// Asks for them where they tell something.
    pub(in crate::path) fn ask(flow: &Flow<'_>) -> Credentials {
        let set = flow.source.kind() == Kind::UnixSeqpacket
            && sys::pass_credentials(flow.source.fd(), true) == Ok(false);
        Credentials { set }
    }

    /// Leaves the source as it was found.
    pub(in crate::path) fn give_back(&mut self, flow: &Flow<'_>) {
        if std::mem::take(&mut self.set) {
            let _ = sys::pass_credentials(flow.source.fd(), false);
        }
    }
}

/// Whether a message of no bytes is the end: reading was shut down, and no bytes
/// are left. Without credentials an empty message cannot be told from the end:
/// on other than sequenced-packet sockets, where a filter refuses `SO_PASSCRED`,
/// and where another process that shares the socket has cleared it.
pub(in crate::path) fn is_end(flow: &Flow<'_>, message: &Received) -> bool {
    match flow.source.kind() {
        // If no call tells (RLIMIT_NOFILE), no bytes are the end.
        Kind::UnixSeqpacket => {
            !message.credentials && reading_was_shut_down(flow) != Some(false) && is_empty(flow)
        }
        _ => reading_was_shut_down(flow) == Some(true) && is_empty(flow),
    }
}

/// Whether a source that polled readable, and then gave `EAGAIN`, has ended. Once
/// reading was shut down, a call that waits returns 0, but a call that does not
/// wait still fails with `EAGAIN` (`__skb_recv_udp`, net/ipv4/udp.c;
/// `__unix_dgram_recvmsg`, net/unix/af_unix.c).
pub(in crate::path) fn has_ended(flow: &Flow<'_>) -> bool {
    let datagrams = flow.source.kind().is_datagram();
    datagrams && reading_was_shut_down(flow) == Some(true) && is_empty(flow)
}

/// No message is in it, as far as is known. `FIONREAD` tells the length of the
/// next message only (`first_packet_length`, net/ipv4/udp.c; `unix_inq_len`,
/// net/unix/af_unix.c), and 0 may be an empty one with others behind it: if there
/// is one, a look at it is no error. A sequenced-packet socket tells the sum of
/// all, and gives 0 for its end to a look as well. Where a filter refuses
/// `FIONREAD`, the look tells of a next message that is not empty.
fn is_empty(flow: &Flow<'_>) -> bool {
    let (fd, packets) = (flow.source.fd(), flow.source.kind() == Kind::UnixSeqpacket);
    match sys::unsent(fd) {
        Ok(1..) => false,
        Ok(0) if packets => true,
        _ => match sys::peek(fd, RecvFlags::DONTWAIT) {
            Ok(0) => packets,
            Ok(_) => false,
            Err(_) => true,
        },
    }
}

/// `None`: no call tells.
fn reading_was_shut_down(flow: &Flow<'_>) -> Option<bool> {
    let shown = sys::poll_now(flow.source.fd(), PollFlags::RDHUP).ok()?;
    shown.shows(PollFlags::RDHUP | PollFlags::HUP)
}
