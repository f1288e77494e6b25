//! Sockets that wait for their peer.
//!
//! Several endpoints of one address share a listener. If each had one of its own, the close of the
//! first would reset the connection of a second peer that had connected by then.

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
use crate::tcp_options;

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

    /// Binds a socket, or takes the listener that another endpoint of this address has used.
    /// `None`: this endpoint does not wait for a peer.
    pub fn begin(
        name: &Name,
        operand: Operand<'_>,
        shared: &mut Shared,
    ) -> Result<Option<Listening>, Problem> {
        if let Some(listening) = shared.take(name) {
            return Ok(Some(listening));
        }
        let backlog = shared.unopened(name);
        let unix = |path, kind| {
            let (socket, file) = unix::listen(path, kind, backlog, operand)?;
            Ok::<_, Problem>((socket, file, Kind::Listener(StreamKind::Unix)))
        };
        let (socket, file, kind) = match name {
            Name::TcpListen(host) => {
                let socket = net::listen(host, backlog, operand)?;
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

    /// Returns the endpoint, if its peer is there; else the socket that still waits. Leaves the
    /// listener to the next endpoint of this name.
    pub fn try_accept(
        self,
        name: &Name,
        operand: Operand<'_>,
        shared: &mut Shared,
    ) -> Result<Result<Opened, Listening>, Problem> {
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
            tcp_options::set(&connection);
        }
        let opened = match operand.side {
            Side::Source => Opened::owned(connection, operand.shown),
            Side::Sink => Opened::connection(connection, operand.shown, stream),
        };
        shared.leave(name, self);
        Ok(Ok(opened))
    }

    /// Waits for the peer.
    pub fn accept(
        mut self,
        name: &Name,
        operand: Operand<'_>,
        shared: &mut Shared,
    ) -> Result<Opened, Problem> {
        loop {
            wait(&self.socket, PollFlags::IN, None)?
                .map_err(|errno| operand.problem(errno, Action::Listen))?;
            match self.try_accept(name, operand, shared)? {
                Ok(opened) => return Ok(opened),
                Err(still) => self = still,
            }
        }
    }
}

/// The listeners of addresses that several endpoints of the command have.
#[derive(Default)]
pub struct Shared {
    /// The endpoints that listen and have accepted no connection.
    unopened: Vec<Name>,
    /// Listeners that none of them uses at the moment.
    left: Vec<(Name, Listening)>,
}

impl Shared {
    /// The listeners of a command with these endpoints.
    pub fn by<'a>(names: impl IntoIterator<Item = &'a Name>) -> Shared {
        Shared {
            unopened: names.into_iter().cloned().collect(),
            left: Vec::new(),
        }
    }

    /// The number of endpoints of this address that have accepted no connection.
    fn unopened(&self, name: &Name) -> i32 {
        let same = self.unopened.iter().filter(|at| at.is_same_address(name));
        i32::try_from(same.count().max(1)).unwrap_or(i32::MAX)
    }

    fn take(&mut self, name: &Name) -> Option<Listening> {
        let index = (self.left.iter()).position(|(at, _)| at.is_same_address(name))?;
        Some(self.left.swap_remove(index).1)
    }

    /// Keeps the listener of an endpoint that has accepted its connection, if another endpoint of
    /// this address has not; otherwise closes it.
    fn leave(&mut self, name: &Name, listening: Listening) {
        let same = |at: &Name| at.is_same_address(name);
        if let Some(index) = self.unopened.iter().position(same) {
            self.unopened.swap_remove(index);
        }
        if self.unopened.iter().any(same) {
            self.left.push((name.clone(), listening));
        }
    }
}
