//! The connections to one control socket.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use cordboard::cue::{Done, Record, Status};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, sockopt};
use rustix::process::geteuid;

use super::client::{Client, Steered};

/// The maximum number of connections. A further one is closed at once.
const MOST: usize = 16;

/// The connections.
#[derive(Default)]
pub struct Clients {
    all: Vec<Client>,
    /// A connection was not accepted, for lack of a descriptor or of memory. It stays in the
    /// queue of the listener, which polls readable until then.
    is_short: bool,
}

impl Clients {
    /// Returns whether there are no connections.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the sockets with their events to poll for, and the time of the next report.
    pub fn interest(&self) -> (Vec<(Arc<OwnedFd>, PollFlags)>, Option<Instant>) {
        let sockets = self.all.iter().map(|client| {
            let (reads, writes) = client.interest();
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, reads);
            flags.set(PollFlags::OUT, writes);
            (Arc::clone(&client.socket), flags)
        });
        let due = self.all.iter().filter_map(Client::next_report).min();
        (sockets.collect(), due)
    }

    /// Carries out the commands that have arrived, and sends the records that are due.
    pub fn advance(&mut self, steered: &dyn Steered) {
        (self.all.iter_mut()).for_each(|client| client.advance(steered));
        self.all.retain(|client| !client.is_closed);
    }

    /// Accepts a connection of the same user, or of root. Does not block if the listener is
    /// non-blocking.
    pub fn accept(&mut self, listener: &OwnedFd) {
        match accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(socket) if may_steer(&socket) && self.all.len() < MOST => {
                self.all.push(Client::new(socket));
            }
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                self.is_short = true;
            }
            // Any other error concerns one connection only.
            Ok(_) | Err(_) => {}
        }
    }

    /// Returns whether the listener is to be polled now. After a connection was not accepted
    /// for lack of a resource, returns `false` once: a poll would return at once.
    pub fn can_accept(&mut self) -> bool {
        !std::mem::take(&mut self.is_short)
    }

    /// Sends the end of the transfer to all clients. `last`: its last status, for clients whose
    /// request waits.
    pub fn end(&mut self, last: Status, done: Done) {
        (self.all.iter_mut()).for_each(|client| client.answer(last));
        self.send(&Record::Done(done));
    }

    /// Sends a record to all clients.
    pub fn send(&mut self, record: &Record) {
        for client in &mut self.all {
            client.put(record);
            client.send();
        }
    }
}

/// Returns whether the peer is the same user, or root.
fn may_steer(socket: &OwnedFd) -> bool {
    sockopt::socket_peercred(socket).is_ok_and(|peer| peer.uid.is_root() || peer.uid == geteuid())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use testkit::refuse::{apart, refuse};

    use super::*;

    #[test]
    fn a_listener_rests_without_a_descriptor_for_its_connection() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let _peer = UnixStream::connect(&path).unwrap();
        let listener = OwnedFd::from(listener);
        let mut clients = Clients::default();
        assert!(clients.can_accept());
        apart(|| {
            refuse(&[libc::SYS_accept4], libc::EMFILE);
            clients.accept(&listener);
        });
        assert!(!clients.can_accept());
        assert!(clients.is_empty());
        assert!(clients.can_accept(), "it is tried again");
        clients.accept(&listener);
        assert!(clients.can_accept());
        assert!(!clients.is_empty());
    }
}
