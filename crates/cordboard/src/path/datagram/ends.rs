//! Distinguishes an empty datagram from the end of the source.

use rustix::event::PollFlags;

use crate::endpoint::Kind;
use crate::path::flow::Flow;
use crate::sys::{self, Received};

/// `SO_PASSCRED` on a `SOCK_SEQPACKET` source: credentials come with every
/// message, and none with the end.
///
/// While the option is set, a send on a socket without an address gives it one, for good
/// (`unix_autobind`, net/unix/af_unix.c). So it is set for as short as possible.
#[derive(Default)]
pub(in crate::path) struct Credentials {
    /// The option was set here, and is cleared at the end.
    set: bool,
}

impl Credentials {
    /// Sets the option for the whole transfer if the sink takes empty messages. For another
    /// sink it is set after a receive of 0 bytes, for the next receive: an empty message
    /// leaves no trace there, and the end is returned again.
    pub(in crate::path) fn start(flow: &Flow<'_>) -> Credentials {
        match flow.sink.kind().is_datagram() {
            true => Credentials::ask(flow),
            false => Credentials::default(),
        }
    }

    /// Sets the option if it helps.
    pub(in crate::path) fn ask(flow: &Flow<'_>) -> Credentials {
        let set = flow.source.kind() == Kind::UnixSeqpacket
            && sys::pass_credentials(flow.source.fd(), true) == Ok(false);
        Credentials { set }
    }

    /// Restores the option.
    pub(in crate::path) fn give_back(&mut self, flow: &Flow<'_>) {
        if std::mem::take(&mut self.set) {
            let _ = sys::pass_credentials(flow.source.fd(), false);
        }
    }
}

/// Whether a message of no bytes is the end: reading was shut down, and no bytes
/// are left. Without credentials an empty message cannot be distinguished from
/// the end: on sockets other than `SOCK_SEQPACKET`, if a seccomp filter refuses
/// `SO_PASSCRED`, and if another process that shares the socket has cleared it.
pub(in crate::path) fn is_end(flow: &Flow<'_>, message: &Received) -> bool {
    match flow.source.kind() {
        // If the query fails (RLIMIT_NOFILE), no bytes are the end.
        Kind::UnixSeqpacket => {
            !message.credentials && reading_was_shut_down(flow) != Some(false) && is_empty(flow)
        }
        // Such an end may be returned again and again.
        _ if flow.source.facts().zero_ends => {
            reading_was_shut_down(flow) != Some(false) && is_empty(flow)
        }
        _ => reading_was_shut_down(flow) == Some(true) && is_empty(flow),
    }
}

/// Whether a source that polled readable, and then gave `EAGAIN`, has ended. Once
/// reading was shut down, a blocking call returns 0, but a non-blocking one still
/// fails with `EAGAIN` (`__skb_recv_udp`, net/ipv4/udp.c; `__unix_dgram_recvmsg`,
/// net/unix/af_unix.c).
pub(in crate::path) fn has_ended(flow: &Flow<'_>) -> bool {
    let datagrams = flow.source.kind().is_datagram();
    datagrams && reading_was_shut_down(flow) == Some(true) && is_empty(flow)
}

/// Whether no message is queued, as far as is known. `FIONREAD` returns the
/// length of the next message only (`first_packet_length`, net/ipv4/udp.c;
/// `unix_inq_len`, net/unix/af_unix.c), and 0 may be an empty one with others
/// behind it: if there is one, peeking succeeds. A `SOCK_SEQPACKET` socket
/// returns the sum of all, and its end peeks as 0 too. If a seccomp filter
/// refuses `FIONREAD`, peeking shows a next message that is not empty. Other sockets
/// with a connection return 0 to a peek at the end, and may have no `FIONREAD`:
/// `ENOIOCTLCMD` in `vsock_do_ioctl` (net/vmw_vsock/af_vsock.c) before Linux 6.17.
fn is_empty(flow: &Flow<'_>) -> bool {
    let (fd, packets) = (flow.source.fd(), flow.source.kind() == Kind::UnixSeqpacket);
    match sys::unsent(fd) {
        Ok(1..) => false,
        Ok(0) if packets => true,
        _ => match flow.peek() {
            Ok(Some(0)) => packets || flow.source.facts().zero_ends,
            Ok(Some(_)) => false,
            Ok(None) | Err(_) => true,
        },
    }
}

/// Whether reading was shut down. `None`: unknown.
fn reading_was_shut_down(flow: &Flow<'_>) -> Option<bool> {
    let shown = sys::poll_now(flow.source.fd(), PollFlags::RDHUP).ok()?;
    shown.shows(PollFlags::RDHUP | PollFlags::HUP)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

    use crate::endpoint::{Facts, Kind};
    use crate::report::Ended;
    use crate::{DataPath, Request, Switches, Transfer};

    /// A UNIX socket in place of a VSOCK socket: without `FIONREAD` for the sum of all
    /// messages, both return the same at the end.
    #[test]
    fn the_end_of_a_connection_is_no_empty_message() {
        for path in [DataPath::Datagram, DataPath::ReadWrite] {
            let flags = SocketFlags::CLOEXEC;
            let family = AddressFamily::UNIX;
            let (near, far) = socketpair(family, SocketType::SEQPACKET, flags, None).unwrap();
            send(&far, b"one", SendFlags::empty()).unwrap();
            drop(far);
            let (sink, reader) = UnixDatagram::pair().unwrap();
            let request = Request {
                switches: Some(Switches::only(&[path])),
                ..Request::default()
            };
            let mut transfer = Transfer::new(near.as_fd(), sink.as_fd(), request).unwrap();
            let source = &mut transfer.flow.source;
            source.set_endpoint(source.endpoint().with_facts(Facts {
                kind: Kind::DatagramSocket,
                zero_ends: true,
                ..*source.facts()
            }));
            let report = transfer.run().report;
            assert_eq!((report.ended, report.written), (Ended::Eof, 3));
            assert_eq!(report.path, [path]);
            assert_eq!(reader.recv(&mut [0; 8]).unwrap(), 3);
            reader.set_nonblocking(true).unwrap();
            assert!(
                reader.recv(&mut [0; 8]).is_err(),
                "an empty message, {path}"
            );
        }
    }
}
