//! A connection to a control descriptor: that of its owner, or that of a link.

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};

use crate::cue::limits::Mask;
use crate::cue::output::Output;
use crate::cue::protocol::Commands;
use crate::cue::registry::Socket;
use crate::errno::Errno;
use crate::sys::WithEnd;

/// One connection: the commands that arrive there, and the records that go back.
pub(in crate::cue) struct Port {
    /// That of the owner has number 0.
    pub(in crate::cue) number: u32,
    /// The control descriptor whose link has this connection.
    pub(in crate::cue) link: Option<u64>,
    socket: WithEnd<Socket>,
    /// The epoll instance has no room for its socket, which is polled instead.
    pub(in crate::cue) is_unwatched: bool,
    pub(super) commands: Commands,
    pub(super) output: Output,
    /// The commands that are allowed here, of those that the owner allows. The owner's own
    /// connection has no mask of its own.
    pub(super) mask: Mask,
    /// Set by commands for the next transfer.
    pub(super) source_offset: Option<u64>,
    pub(super) sink_offset: Option<u64>,
    pub(super) block: Option<NonZeroUsize>,
    /// The interval of progress, and the time of the next report.
    pub(super) progress: Option<(Duration, Duration)>,
    /// The first cancellation that has arrived was carried out ahead of the commands before it,
    /// which are still here. The transfers that they command are cancelled too, but no others.
    pub(super) has_cancelled: bool,
    /// No more commands arrive.
    pub(super) is_closed: bool,
    /// No process has the other end.
    is_hung_up: bool,
    /// The peer writes no more, or the source of the link has ended: no commands follow those
    /// that are on their way.
    is_left: bool,
}

impl Port {
    pub(super) fn new(number: u32, link: Option<u64>, socket: WithEnd<Socket>) -> Port {
        Port {
            number,
            link,
            socket,
            is_unwatched: false,
            commands: Commands::default(),
            output: Output::default(),
            mask: Mask::default(),
            source_offset: None,
            sink_offset: None,
            block: None,
            progress: None,
            has_cancelled: false,
            is_closed: false,
            is_hung_up: false,
            is_left: false,
        }
    }

    pub(super) fn into_socket(self) -> WithEnd<Socket> {
        self.socket
    }

    pub(in crate::cue) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns whether no event shows what it waits for.
    pub(super) fn is_polled(&self) -> bool {
        self.is_unwatched && !self.is_hung_up || self.output.has_no_memory()
    }

    /// Returns whether it waits for commands, and for room for records.
    pub(in crate::cue) fn interest(&self) -> (bool, bool) {
        let reads = !self.is_closed && self.commands.room() > 0;
        let writes = !self.output.is_empty() && !self.output.has_no_memory();
        (reads, writes)
    }

    /// Returns whether it waits for the peer to write no more. Without room for commands, no
    /// read finds that.
    pub(in crate::cue) fn awaits_leave(&self) -> bool {
        !self.is_closed && !self.is_left && self.commands.room() == 0
    }

    /// No process has the other end: records are no longer sent.
    pub(in crate::cue) fn hang_up(&mut self) {
        self.is_hung_up = true;
        self.discard_records();
    }

    /// The peer writes no more, or the source of the link has ended.
    pub(in crate::cue) fn leave(&mut self) {
        self.is_left = true;
    }

    /// No process reads the records: they are no longer sent, and delay no command.
    pub(in crate::cue) fn discard_records(&mut self) {
        self.output.close();
        self.progress = None;
    }

    pub(in crate::cue) fn is_hung_up(&self) -> bool {
        self.is_hung_up
    }

    /// Returns whether no more commands arrive.
    pub(super) fn is_gone(&self) -> bool {
        self.is_closed || self.is_hung_up
    }

    /// Returns whether no command can take effect before those that have arrived: no more
    /// commands follow, or there is no room for them and their sender has gone.
    pub(super) fn is_stuck(&self) -> bool {
        self.is_gone() || (self.is_left && self.commands.room() == 0)
    }

    /// Returns whether this process has made it.
    pub(super) fn is_at_home(&self) -> bool {
        self.socket.is_at_home()
    }

    /// Returns whether no more commands arrive, all are carried out, and all records are sent.
    pub(super) fn has_ended(&self) -> bool {
        self.is_closed && self.commands.peek(0).is_none() && self.output.is_empty()
    }

    /// Reads commands, as far as there is room. Returns whether bytes have arrived.
    pub(super) fn read(&mut self) -> bool {
        let room = self.commands.room();
        if self.is_closed || room == 0 {
            return false;
        }
        let mut bytes = [0; Commands::ROOM];
        match self.socket.receive(&mut bytes[..room]) {
            Ok(n @ 1..) => {
                self.commands.push(&bytes[..n]);
                true
            }
            Err(Errno::EAGAIN) => false,
            Err(Errno::EINTR) => true,
            Ok(0) => {
                self.is_closed = true;
                true
            }
            // The peer has passed descriptors, or a filter refuses the calls. Commands that the
            // peer sends from now on would be lost: its next write fails.
            Err(_) => {
                let _ = shutdown(self.socket.as_fd(), Shutdown::Read);
                self.is_closed = true;
                true
            }
        }
    }

    /// Sends records. Returns whether commands that waited for room can be carried out now: no
    /// event follows if the reader has made room meanwhile.
    pub(super) fn send(&mut self) -> bool {
        let was_full = self.output.is_full();
        self.output.send(self.socket.as_fd());
        if self.output.is_closed() {
            self.progress = None;
        }
        was_full && !self.output.is_full()
    }
}
