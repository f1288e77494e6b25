//! One process that steers the command.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cordboard::Errno;
use cordboard::cue::{Command, Commands, Limit, Record, Status};
use rustix::event::PollFlags;
use rustix::net::{RecvFlags, SendFlags};

use crate::{socket_calls, sys};

/// The number of bytes of waiting records from which no further command is carried out.
const ENOUGH: usize = 1024;
const SHORTEST: Duration = Duration::from_millis(10);
/// The time after which records are sent again if the kernel had no memory.
const RETRY: Duration = Duration::from_millis(10);
/// The maximum number of consecutive reads, so that a client that sends without end does not
/// delay the others.
const READS: u32 = 8;

/// A transfer that clients steer.
pub trait Steered {
    /// Returns its status.
    fn status(&self) -> Status;
    /// Returns whether the status is current. Otherwise requests it: commands of this client
    /// wait until [`Client::advance`] is called with the answer.
    fn is_current(&self) -> bool {
        true
    }
    /// Carries out a command that concerns the transfer.
    fn steer(&self, command: Command) -> Result<(), Errno>;
}

/// A connection to the control socket.
pub struct Client {
    pub socket: Arc<OwnedFd>,
    commands: Commands,
    output: Vec<u8>,
    /// The time at which records are sent again. The kernel had no memory at the last attempt,
    /// and the socket counts as writable.
    pub retry: Option<Instant>,
    /// The allowed commands, one bit each (`Limit::Commands`).
    allowed: u32,
    progress: Option<(Duration, Instant)>,
    /// Reports of progress that were left out since the last status.
    left_out: u32,
    /// It has requested the status, which is not current yet.
    waits: bool,
    /// The peer sends no more commands, but may still read records.
    has_ended: bool,
    /// The peer reads no more records. It may have closed its end: the commands that have
    /// arrived before are still carried out.
    is_deaf: bool,
    /// No more commands arrive, and the peer reads no more records.
    pub is_closed: bool,
}

impl Client {
    pub fn new(socket: OwnedFd) -> Client {
        Client {
            socket: Arc::new(socket),
            commands: Commands::default(),
            output: Vec::new(),
            retry: None,
            allowed: u32::MAX,
            progress: None,
            left_out: 0,
            waits: false,
            has_ended: false,
            is_deaf: false,
            is_closed: false,
        }
    }

    /// Returns whether it waits for commands, and for room for records.
    pub fn interest(&self) -> (bool, bool) {
        let reads = !self.has_ended && !self.waits && self.output.len() < ENOUGH;
        (reads, self.has_records() && self.retry.is_none())
    }

    /// Returns whether records wait.
    pub fn has_records(&self) -> bool {
        !self.output.is_empty()
    }

    /// Returns the time of the next report of progress, or at which records are sent again.
    pub fn due(&self) -> Option<Instant> {
        let progress = self.progress.filter(|_| !self.is_deaf);
        let report = progress.map(|(_, next)| next);
        report.into_iter().chain(self.retry).min()
    }

    /// Carries out the commands that have arrived, and sends the records that are due.
    pub fn advance(&mut self, steered: &dyn Steered) {
        if let Some((every, next)) = self.progress
            && Instant::now() >= next
        {
            self.progress = Some((every, Instant::now() + every));
            match self.output.is_empty() {
                true => self.put_status(steered.status()),
                false => self.left_out = self.left_out.saturating_add(1),
            }
        }
        let mut reads = 0;
        loop {
            self.send();
            if self.is_closed || self.output.len() >= ENOUGH {
                return;
            }
            if self.waits {
                if !self.is_deaf && !steered.is_current() && !self.hangs_up() {
                    return;
                }
                self.answer(steered.status());
                continue;
            }
            match self.commands.next_with_word() {
                Some((word, found)) => {
                    let done = found.map_err(|_| Errno::EINVAL);
                    if let Err(errno) = done.and_then(|command| self.execute(command, steered)) {
                        self.put(&Record::Refused { word, errno });
                    }
                }
                None if self.has_ended => return self.end_input(),
                None if reads < READS && self.receive() => reads += 1,
                None if self.has_ended => {}
                None => return,
            }
        }
    }

    /// Reads commands. Returns whether any bytes have arrived.
    fn receive(&mut self) -> bool {
        let mut bytes = [0; 512];
        let room = self.commands.room().min(bytes.len());
        match socket_calls::recv(&*self.socket, &mut bytes[..room], RecvFlags::DONTWAIT) {
            Ok((n @ 1.., _)) => self.commands.push(&bytes[..n]) > 0,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => false,
            Ok((0, _)) => {
                self.has_ended = true;
                false
            }
            // Commands that have arrived are read before the error (`unix_stream_read_generic`,
            // net/unix/af_unix.c).
            Err(_) => {
                self.is_closed = true;
                false
            }
        }
    }

    /// Handles the end of the commands. A peer that has only shut down its writing side gets
    /// further records.
    fn end_input(&mut self) {
        if let Some(word) = self.commands.take_incomplete() {
            let errno = Errno::ENODATA;
            self.put(&Record::Refused { word, errno });
            self.send();
        }
        self.is_closed |= self.is_deaf || self.hangs_up();
    }

    /// Returns whether the peer has closed its end.
    fn hangs_up(&self) -> bool {
        let shown = sys::shown_now(self.socket.as_fd(), PollFlags::empty());
        shown.is_ok_and(|shown| !shown.is_empty())
    }

    /// Answers a request of the status that waits.
    pub fn answer(&mut self, status: Status) {
        if std::mem::take(&mut self.waits) {
            self.put_status(status);
        }
    }

    /// Appends a status with the number of reports that were left out before it.
    fn put_status(&mut self, mut status: Status) {
        status.left_out = std::mem::take(&mut self.left_out);
        self.put(&Record::Status(status));
    }

    fn execute(&mut self, command: Command, steered: &dyn Steered) -> Result<(), Errno> {
        if self.allowed & command.bit() == 0 {
            return Err(Errno::EPERM);
        }
        match command {
            Command::Status => self.waits = true,
            Command::Progress(0) => self.progress = None,
            Command::Progress(every) => {
                let every = Duration::from_millis(u64::from(every)).max(SHORTEST);
                self.progress = Some((every, Instant::now() + every));
            }
            Command::Limit(Limit::Commands(allowed)) => self.allowed &= allowed,
            command => return steered.steer(command),
        }
        Ok(())
    }

    pub fn put(&mut self, record: &Record) {
        if !self.is_deaf {
            record.encode(&mut self.output);
        }
    }

    pub fn send(&mut self) {
        self.retry = None;
        while !self.output.is_empty() {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match socket_calls::send(&*self.socket, &self.output, flags) {
                Ok(sent) => drop(self.output.drain(..sent)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                // `sock_alloc_send_pskb`, net/core/sock.c.
                Err(rustix::io::Errno::NOBUFS) => {
                    self.retry = Some(Instant::now() + RETRY);
                    return;
                }
                Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => {
                    self.output.clear();
                    self.is_deaf = true;
                }
                // A filter: the peer does not wait for an answer.
                Err(_) => {
                    self.output.clear();
                    self.is_closed = true;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A transfer whose status is current from the second question on.
    #[derive(Default)]
    struct Slow {
        asked: Cell<bool>,
        paused: Cell<bool>,
    }

    impl Steered for Slow {
        fn status(&self) -> Status {
            Status::idle()
        }

        fn is_current(&self) -> bool {
            self.asked.replace(true)
        }

        fn steer(&self, command: Command) -> Result<(), Errno> {
            self.paused.set(command == Command::Pause);
            Ok(())
        }
    }

    fn with(commands: &[Command]) -> (UnixStream, Client) {
        let (mut peer, ours) = UnixStream::pair().unwrap();
        let mut bytes = Vec::new();
        commands
            .iter()
            .for_each(|command| command.encode(&mut bytes));
        peer.write_all(&bytes).unwrap();
        (peer, Client::new(OwnedFd::from(ours)))
    }

    #[test]
    fn commands_wait_for_a_current_status() {
        let (mut peer, mut client) = with(&[Command::Status, Command::Pause]);
        peer.set_nonblocking(true).unwrap();
        let slow = Slow::default();
        client.advance(&slow);
        assert!(peer.read(&mut [0; 256]).is_err(), "no record");
        assert!(!slow.paused.get());
        assert_eq!(client.interest(), (false, false));
        client.advance(&slow);
        assert!(peer.read(&mut [0; 256]).unwrap() > 0);
        assert!(slow.paused.get());
    }

    #[test]
    fn the_next_status_counts_the_reports_that_were_left_out() {
        use cordboard::cue::Records;
        let (mut peer, mut client) = with(&[Command::Status]);
        client.progress = Some((Duration::from_secs(3600), Instant::now()));
        client.put(&Record::Started(1));
        let slow = Slow::default();
        slow.asked.set(true);
        client.advance(&slow);
        let (mut records, mut bytes) = (Records::default(), [0; 256]);
        let n = peer.read(&mut bytes).unwrap();
        records.push(&bytes[..n]);
        assert_eq!(records.next(), Some(Record::Started(1)));
        let Some(Record::Status(status)) = records.next() else {
            panic!("no status");
        };
        assert_eq!(status.left_out, 1);
    }

    /// The first status is not current: a record cannot be sent before the peer has closed its
    /// end.
    #[test]
    fn commands_behind_a_status_outlive_their_peer() {
        let (peer, mut client) = with(&[Command::Progress(1), Command::Status, Command::Pause]);
        drop(peer);
        let slow = Slow::default();
        client.advance(&slow);
        assert!(slow.paused.get());
        assert!(client.is_closed);
        assert_eq!(client.due(), None);
    }

    /// A record that cannot be sent does not end the commands.
    #[test]
    fn a_peer_that_reads_no_records_sends_commands() {
        let (mut peer, mut client) = with(&[Command::Status, Command::Progress(1)]);
        peer.shutdown(std::net::Shutdown::Read).unwrap();
        let slow = Slow::default();
        slow.asked.set(true);
        client.advance(&slow);
        assert!(!client.is_closed);
        assert_eq!(client.due(), None, "no wake-ups for reports");
        assert_eq!(client.interest(), (true, false));
        let mut pause = Vec::new();
        Command::Pause.encode(&mut pause);
        peer.write_all(&pause).unwrap();
        client.advance(&slow);
        assert!(slow.paused.get());
        assert_eq!(client.interest(), (true, false));
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        client.advance(&slow);
        assert!(client.is_closed);
    }

    /// A filter may know only the calls for messages.
    #[test]
    fn commands_and_records_are_moved_by_other_calls() {
        let (mut peer, mut client) = with(&[Command::Status, Command::Pause]);
        peer.set_nonblocking(true).unwrap();
        testkit::refuse::apart(|| {
            let slow = Slow::default();
            slow.asked.set(true);
            testkit::refuse::refuse(&[libc::SYS_recvfrom, libc::SYS_sendto], libc::EPERM);
            client.advance(&slow);
            assert!(slow.paused.get() && !client.is_closed);
        });
        assert!(peer.read(&mut [0; 256]).unwrap() > 0);
    }

    /// The socket polls writable all the time.
    #[test]
    fn records_without_memory_are_sent_again_later() {
        let (mut peer, mut client) = with(&[Command::Status]);
        peer.set_nonblocking(true).unwrap();
        testkit::refuse::apart(|| {
            let slow = Slow::default();
            slow.asked.set(true);
            testkit::refuse::refuse(&[libc::SYS_sendto], libc::ENOBUFS);
            client.advance(&slow);
        });
        assert_eq!(client.interest(), (true, false));
        assert!(client.has_records() && client.due().is_some());
        client.advance(&Slow::default());
        assert!(!client.has_records() && client.due().is_none());
        assert!(peer.read(&mut [0; 256]).unwrap() > 0);
    }

    /// Otherwise the peer would wait for an answer.
    #[test]
    fn a_peer_that_cannot_be_answered_is_removed() {
        let (_peer, mut client) = with(&[Command::Status]);
        let slow = Slow::default();
        slow.asked.set(true);
        client.put(&Record::Started(1));
        testkit::refuse::apart(move || {
            testkit::refuse::refuse(&[libc::SYS_sendto, libc::SYS_sendmsg], libc::EPERM);
            client.advance(&slow);
            assert!(client.is_closed);
        });
    }

    #[test]
    fn only_a_peer_that_has_closed_its_end_is_removed() {
        let (peer, mut client) = with(&[Command::Pause]);
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        client.advance(&Slow::default());
        assert!(!client.is_closed);
        assert_eq!(client.interest(), (false, false));
        drop(peer);
        client.advance(&Slow::default());
        assert!(client.is_closed);
    }
}
