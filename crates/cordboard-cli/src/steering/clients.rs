//! The connections to one control socket.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cordboard::cue::{Done, Record, Status};
use rustix::event::{PollFd, PollFlags};
use rustix::net::{SocketFlags, getsockname};

use super::client::{Client, Steered};
use crate::polling::{is_of_one_connection, poll_or_rest};
use crate::{socket_calls, sys, user};

/// The maximum number of connections. A further one is closed at once.
const MOST: usize = 16;

/// The connections.
#[derive(Default)]
pub struct Clients {
    all: Vec<Client>,
    /// A connection was not accepted, for lack of a descriptor or because a filter refuses the
    /// call. It stays in the queue of the listener, which polls readable until then.
    is_short: bool,
}

impl Clients {
    /// Returns whether there are no connections.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the sockets with their events to poll for, and the time of the next report, or of
    /// the next attempt to send records.
    pub fn interest(&self) -> (Vec<(Arc<OwnedFd>, PollFlags)>, Option<Instant>) {
        let sockets = self.all.iter().map(|client| {
            let (reads, writes) = client.interest();
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, reads);
            flags.set(PollFlags::OUT, writes);
            (Arc::clone(&client.socket), flags)
        });
        let due = self.all.iter().filter_map(Client::due).min();
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
        match socket_calls::accept(listener, SocketFlags::CLOEXEC) {
            Ok((socket, _)) if may_steer(&socket) && self.all.len() < MOST => {
                self.all.push(Client::new(socket));
            }
            Ok(_) => {}
            Err(errno) => self.is_short = !is_of_one_connection(errno),
        }
    }

    /// Returns whether the listener is to be polled now. After a connection was not accepted
    /// and stays in the queue, returns `false` once: a poll would return at once.
    pub fn can_accept(&mut self) -> bool {
        !std::mem::take(&mut self.is_short)
    }

    /// Sends the end of the transfer to all clients. `last`: its last status, for clients whose
    /// request waits.
    pub fn end(&mut self, last: Status, done: Done) {
        (self.all.iter_mut()).for_each(|client| client.answer(last));
        self.send(&Record::Done(done));
    }

    /// Sends the records that wait, for at most this time: a client may read slowly, or not at
    /// all.
    pub fn flush(&mut self, time: Duration) {
        let until = Instant::now() + time;
        loop {
            self.all.iter_mut().for_each(Client::send);
            let waiting: Vec<_> = (self.all.iter())
                .filter(|client| client.has_records())
                .collect();
            let now = Instant::now();
            if waiting.is_empty() || now >= until {
                return;
            }
            let mut fds: Vec<PollFd<'_>> = (waiting.iter())
                .filter(|client| client.interest().1)
                .map(|client| PollFd::from_borrowed_fd(client.socket.as_fd(), PollFlags::OUT))
                .collect();
            let retry = waiting.iter().filter_map(|client| client.retry).min();
            let next = retry.map_or(until, |retry| retry.min(until));
            let _ = poll_or_rest(&mut fds, Some(next.saturating_duration_since(now)));
        }
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
    sys::peer(socket)
        .is_ok_and(|peer| peer.uid == 0 || user::is_own(peer.uid, getsockname(socket).ok()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use testkit::refuse::{ACCEPT, apart, refuse};

    use super::*;

    /// The end reaches a client that reads it later, and one that does not read delays it by
    /// no more than the time.
    #[test]
    fn records_of_the_end_wait_for_slow_clients() {
        use std::io::Read;
        let (peer, ours) = UnixStream::pair().unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(&ours, 4096).unwrap();
        let mut clients = Clients::default();
        clients.all.push(Client::new(ours.into()));
        let record = Record::Started(1);
        let mut sent = 0;
        while !clients.all[0].interest().1 {
            clients.send(&record);
            sent += 1;
        }
        clients.flush(Duration::ZERO);
        assert!(clients.all[0].interest().1);
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            (&peer).read_to_end(&mut all).unwrap();
            all.len()
        });
        clients.flush(Duration::from_secs(3600));
        assert!(!clients.all[0].interest().1);
        drop(clients);
        let mut one = Vec::new();
        record.encode(&mut one);
        assert_eq!(reader.join().unwrap(), sent * one.len());
    }

    /// The socket of a client for which the kernel has no memory polls writable.
    #[test]
    fn the_end_rests_while_there_is_no_memory() {
        let (_peer, ours) = UnixStream::pair().unwrap();
        let mut clients = Clients::default();
        clients.all.push(Client::new(ours.into()));
        apart(|| {
            refuse(&[libc::SYS_sendto], libc::ENOBUFS);
            clients.send(&Record::Started(1));
            let (sockets, due) = clients.interest();
            assert!(!sockets[0].1.contains(PollFlags::OUT) && due.is_some());
            clients.flush(Duration::from_millis(1));
        });
        assert!(clients.all[0].has_records());
        clients.flush(Duration::from_secs(3600));
        assert!(!clients.all[0].has_records());
    }

    #[test]
    fn a_listener_rests_if_its_connection_is_not_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let _peer = UnixStream::connect(&path).unwrap();
        let listener = OwnedFd::from(listener);
        let mut clients = Clients::default();
        assert!(clients.can_accept());
        // The errors of a filter and of a security module come before the connection is
        // taken off the queue.
        for errno in [libc::EMFILE, libc::EPERM, libc::ENOSYS, libc::EACCES] {
            apart(|| {
                refuse(ACCEPT, errno);
                clients.accept(&listener);
            });
            assert!(!clients.can_accept(), "{errno}");
            assert!(clients.is_empty());
            assert!(clients.can_accept(), "it is tried again");
        }
        clients.accept(&listener);
        assert!(clients.can_accept());
        assert!(!clients.is_empty());
        clients.accept(&listener);
        assert!(clients.can_accept(), "no connection waits");
    }

    /// There, all users without a number have the same one, also this process.
    #[test]
    fn in_a_user_namespace_without_numbers_the_file_of_the_socket_decides() {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::SocketAddr;
        use testkit::child::{in_a_child, own_users};
        if !in_a_child(own_users) {
            return testkit::skip::here("no user namespaces here");
        }
        let directory = tempfile::tempdir().unwrap();
        let name = format!("cordboard-steering-{}", std::process::id());
        let file = SocketAddr::from_pathname(directory.path().join("s")).unwrap();
        let name = SocketAddr::from_abstract_name(name).unwrap();
        let [file, name] = [file, name].map(|address| {
            let listener = UnixListener::bind_addr(&address).unwrap();
            let peer = UnixStream::connect_addr(&address).unwrap();
            (OwnedFd::from(listener.accept().unwrap().0), peer)
        });
        assert!(may_steer(&file.0));
        assert!(in_a_child(|| own_users()
            && may_steer(&file.0)
            && !may_steer(&name.0)));
    }

    #[test]
    fn a_connection_is_accepted_by_an_older_call() {
        if ACCEPT.len() < 2 {
            return testkit::skip::here("this architecture has one call");
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let listener = OwnedFd::from(UnixListener::bind(&path).unwrap());
        let mut clients = Clients::default();
        for (errno, count) in [(libc::EPERM, 1), (libc::ENOSYS, 2), (libc::EACCES, 3)] {
            let _peer = UnixStream::connect(&path).unwrap();
            apart(|| {
                refuse(&[libc::SYS_accept4], errno);
                clients.accept(&listener);
            });
            assert_eq!(clients.all.len(), count);
        }
    }
}
