//! Sockets that wait for their peer.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cordboard::Side;
use rustix::event::PollFlags;
use rustix::net::SocketType;

use super::name::Name;
use super::opened::{Opened, StreamKind};
use super::sockets::unix::SocketFile;
use super::sockets::{Operand, net, unix};
use crate::interruptible::wait;
use crate::problem::{Action, Problem};

/// A socket that waits for its peer.
pub struct Listening {
    /// Dropped first, so that it is removed while the socket is still open.
    _file: Option<SocketFile>,
    socket: OwnedFd,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A listener accepts one connection.
    Listener(StreamKind),
    /// The sender of the first datagram becomes the peer.
    Datagrams,
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Listening {
    /// Whether this endpoint waits for its peer.
    pub fn is_one(name: &Name, side: Side) -> bool {
        match name {
            Name::UdpListen(_) => side == Side::Sink,
            Name::TcpListen(_) | Name::UnixListen(_) | Name::UnixSeqpacketListen(_) => true,
            _ => false,
        }
    }

    /// Binds a socket. `None`: this endpoint does not wait for a peer.
    pub fn begin(name: &Name, operand: Operand<'_>) -> Result<Option<Listening>, Problem> {
        let unix = |path, kind| {
            let (socket, file) = unix::listen(path, kind, operand)?;
            Ok::<_, Problem>((socket, file, Kind::Listener(StreamKind::Unix)))
        };
        let (socket, file, kind) = match name {
            Name::TcpListen(host) => {
                let socket = net::listen(host, operand)?;
                (socket, None, Kind::Listener(StreamKind::Tcp))
            }
            Name::UdpListen(host) if operand.side == Side::Sink => {
                (net::datagrams(host, operand)?, None, Kind::Datagrams)
            }
            Name::UnixListen(path) => unix(path, SocketType::STREAM)?,
            Name::UnixSeqpacketListen(path) => unix(path, SocketType::SEQPACKET)?,
            _ => return Ok(None),
        };
        Ok(Some(Listening {
            _file: file,
            socket,
            kind,
        }))
    }

    /// Returns the endpoint, if its peer is there; else the socket that still waits.
    pub fn try_accept(self, operand: Operand<'_>) -> Result<Result<Opened, Listening>, Problem> {
        let stream = match self.kind {
            Kind::Listener(stream) => stream,
            Kind::Datagrams => {
                return Ok(match net::connect_to_sender(&self.socket, operand)? {
                    true => Ok(Opened::owned(self.socket, operand.shown)),
                    false => Err(self),
                });
            }
        };
        let Some(connection) = net::try_accept(&self.socket, operand)? else {
            return Ok(Err(self));
        };
        if stream == StreamKind::Tcp {
            net::send_at_once(&connection);
        }
        let mut opened = Opened::owned(connection, operand.shown);
        opened.stream = Some(stream).filter(|_| operand.side == Side::Sink);
        Ok(Ok(opened))
    }

    /// Waits for the peer.
    pub fn accept(mut self, operand: Operand<'_>) -> Result<Opened, Problem> {
        loop {
            wait(&self.socket, PollFlags::IN, None)?
                .map_err(|errno| operand.problem(errno, Action::Listen))?;
            match self.try_accept(operand)? {
                Ok(opened) => return Ok(opened),
                Err(still) => self = still,
            }
        }
    }
}
