//! The connections to one control socket.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use cordboard::cue::{Done, Record};
use rustix::event::PollFlags;
use rustix::net::{SocketFlags, accept_with, sockopt};
use rustix::process::geteuid;

use super::client::{Client, Steered};

/// Connections at a time; one more is closed at once.
const MOST: usize = 16;

/// The connections.
#[derive(Default)]
pub struct Clients(Vec<Client>);

impl Clients {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sockets with what to poll for, and when the next report is due.
    pub fn interest(&self) -> (Vec<(Arc<OwnedFd>, PollFlags)>, Option<Instant>) {
        let sockets = self.0.iter().map(|client| {
            let (reads, writes) = client.interest();
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, reads);
            flags.set(PollFlags::OUT, writes);
            (Arc::clone(&client.socket), flags)
        });
        let due = self.0.iter().filter_map(Client::next_report).min();
        (sockets.collect(), due)
    }

    /// Carries out what has arrived, and sends what is due.
    pub fn advance(&mut self, steered: &dyn Steered) {
        self.0.iter_mut().for_each(|client| client.advance(steered));
        self.0.retain(|client| !client.is_closed);
    }

    /// Accepts a connection of the same user, or of root. Does not wait if the listener
    /// is non-blocking.
    pub fn accept(&mut self, listener: &OwnedFd) {
        // An error concerns one connection only.
        if let Ok(socket) = accept_with(listener, SocketFlags::CLOEXEC)
            && may_steer(&socket)
            && self.0.len() < MOST
        {
            self.0.push(Client::new(socket));
        }
    }

    /// Tells all how the transfer has ended.
    pub fn end(&mut self, done: Done) {
        self.send(&Record::Done(done));
    }

    /// Sends a record to all.
    pub fn send(&mut self, record: &Record) {
        for client in &mut self.0 {
            client.put(record);
            client.send();
        }
    }
}

/// Whether the peer is the same user, or root.
fn may_steer(socket: &OwnedFd) -> bool {
    sockopt::socket_peercred(socket).is_ok_and(|peer| peer.uid.is_root() || peer.uid == geteuid())
}
