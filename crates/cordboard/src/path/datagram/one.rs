//! One datagram, without a batch.

use rustix::net::RecvFlags;

use super::size::longest;
use crate::endpoint::Kind;
use crate::errno::Errno;
use crate::path::common::socket::{self, Fits};
use crate::path::flow::Flow;
use crate::sys::{self, How, Received};

/// The result of receiving one datagram.
pub(in crate::path) enum One {
    /// It is in the buffer.
    Here(Received),
    /// It is longer than the rest of the size, and stays queued.
    TooLong,
}

/// Receives one datagram into a buffer, for the path without batches. `annotated`:
/// with ancillary data, which costs a tenth of a small datagram.
pub(in crate::path) fn receive_one(
    flow: &mut Flow<'_>,
    into: &mut [u8],
    wait: bool,
    annotated: bool,
) -> Result<One, Errno> {
    let left = flow.allowance.remaining();
    let rest = usize::try_from(left).map_or(into.len(), |left| left.min(into.len()));
    let (mut room, mut annotated) = (into.len(), annotated);
    if left >= longest(flow.source.kind()) as u64 {
        room = rest;
    } else {
        match socket::next_fits(flow, into, wait)? {
            Fits::Yes => {}
            Fits::No => return Ok(One::TooLong),
            // The flags of the message show whether it was cut.
            Fits::Unknown => (room, annotated) = (rest, true),
        }
    }
    let into = &mut into[..room];
    let received = match annotated {
        true => receive_annotated(flow, into, wait)?,
        false => receive_plain(flow, into, wait)?,
    };
    flow.cut(u64::from(received.truncated));
    Ok(One::Here(received))
}

/// How datagrams of this source are received.
pub(super) fn how(flow: &Flow<'_>, wait: bool) -> How {
    let kind = flow.source.kind();
    How {
        wait,
        descriptors: matches!(kind, Kind::UnixDatagram | Kind::UnixSeqpacket),
    }
}

/// Receives with ancillary data. If a seccomp filter refuses `recvmsg(2)`, there is
/// none. The boundaries of datagrams that the kernel has joined (`UDP_GRO`) are
/// then unknown, which is permissible only for a stream.
fn receive_annotated(flow: &Flow<'_>, into: &mut [u8], wait: bool) -> Result<Received, Errno> {
    match sys::receive_one(flow.source.fd(), into, how(flow, wait)) {
        Err(error) if error.refused => match flow.source.kind() {
            Kind::Udp if flow.writes_messages() && sys::is_said_to_join(flow.source.fd()) => {
                Err(error.errno)
            }
            _ => receive_plain(flow, into, wait),
        },
        done => Ok(done?),
    }
}

/// Receives without ancillary data: descriptors that were sent along are closed by
/// the kernel.
///
/// `j1939_sk_recvmsg` (net/can/j1939/socket.c) refuses `MSG_TRUNC` with `EINVAL`,
/// `vcc_recvmsg` (net/atm/common.c) with `EOPNOTSUPP`. These return the errno again; the
/// kernel reports an error of a connection once.
fn receive_plain(flow: &Flow<'_>, into: &mut [u8], wait: bool) -> Result<Received, Errno> {
    let whole = match socket::receive(flow, into, RecvFlags::TRUNC, wait) {
        Err(errno @ (Errno::EINVAL | Errno::EOPNOTSUPP)) => {
            let look = RecvFlags::TRUNC | RecvFlags::PEEK;
            if socket::receive(flow, &mut [], look, false) != Err(errno) {
                return Err(errno);
            }
            socket::receive(flow, into, RecvFlags::empty(), wait)?
        }
        done => done?,
    };
    Ok(Received {
        length: whole.min(into.len()),
        truncated: whole > into.len(),
        credentials: false,
        segment: None,
    })
}
