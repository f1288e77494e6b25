//! What a step works on: both endpoints, where they stand, what is left, and
//! the account.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::fs::OFlags;

use super::Verdict;
use super::cursor::{Cursor, move_cursor, place_of};
use super::direct::Room;
use super::lent::LentPipes;
use crate::endpoint::resets::Writer;
use crate::endpoint::{Endpoint, Facts, Kind, Side};
use crate::errno::Errno;
use crate::pipe::packets::{self, Front};
use crate::pipe::{self, Unreadable};
use crate::request::Backend;
use crate::request::Watermarks;
use crate::stage::Stages;
use crate::sys::{self, again};

/// Whether a blocking descriptor may be used without waiting.
///
/// A descriptor that is not in non-blocking mode, and whose call has no flag
/// of its own against waiting, is only used after `poll(2)` has found it
/// ready; each use takes the mark away. Setting `O_NONBLOCK` instead would
/// reach everyone who shares the open description.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ready {
    /// Polled ready, and not used since.
    pub(crate) marked: bool,
    /// It was marked before the use that is under way.
    pub(crate) was_marked: bool,
    /// Its calls never wait: non-blocking, or a file.
    pub(crate) never_waits: bool,
    /// Waiting inside a call is allowed.
    pub(crate) may_sleep: bool,
    /// `poll(2)` reports an error that no call returns: the socket's error
    /// queue has an entry, which is left to its requester. Only a change
    /// counts.
    pub(crate) doubted: bool,
}

impl Ready {
    /// Takes the mark; `false` if the side must be polled first. `covered`:
    /// the call has a flag of its own against waiting.
    pub(crate) fn take(&mut self, covered: bool) -> bool {
        self.take_polled() || self.may_sleep || covered
    }

    /// Takes the mark, where waiting inside the call would hold up others.
    pub(crate) fn take_polled(&mut self) -> bool {
        self.was_marked = std::mem::take(&mut self.marked);
        self.was_marked || self.never_waits
    }

    /// The use under way may wait, and `poll(2)` was not asked before.
    pub(super) fn is_unasked(&self) -> bool {
        !self.was_marked && !self.never_waits
    }
}

/// The working state that a transfer lends to its current path.
pub(crate) struct Flow<'fd> {
    pub(crate) source: Endpoint<'fd>,
    pub(crate) sink: Endpoint<'fd>,
    pub(crate) from: Cursor,
    pub(crate) to: Cursor,
    /// Bytes of the request that may still be read.
    pub(crate) left: u64,
    /// Nothing is left, for it was cancelled or idle.
    pub(crate) cut_short: bool,
    /// Bytes that this step may read, where a hole comes after them.
    pub(crate) span: u64,
    /// Taken from the source so far.
    pub(crate) read: u64,
    /// Accepted by the sink so far.
    pub(crate) written: u64,
    /// Datagrams that the kernel cut.
    pub(crate) truncated: u64,
    /// The side whose call the last step has found interrupted.
    pub(crate) interrupted: Option<Side>,
    /// Taken from a pipe that is the source, and not to be read: what comes next.
    pub(crate) unreadable: Option<Unreadable>,
    /// The source had ended, and was opened again before that was told.
    pub(crate) opened_again: bool,
    pub(crate) source_ready: Ready,
    pub(crate) sink_ready: Ready,
    /// `poll(2)` shows when the sink's reader has gone.
    pub(crate) sink_is_watched: bool,
    /// Sleeping inside a system call is allowed.
    pub(crate) may_sleep: bool,
    /// A path that declines is followed by another.
    pub(crate) has_next: bool,
    /// The thread has other transfers to see to, which wait for each call.
    pub(crate) shares_thread: bool,
    /// An observer is to be called as soon as any byte has moved.
    pub(crate) watched: bool,
    /// No other process uses the source's position.
    pub(crate) source_unshared: bool,
    /// No other process uses the sink's.
    pub(crate) sink_unshared: bool,
    /// Bytes a step, as the caller wants it.
    pub(crate) block: Option<usize>,
    /// The caller's marks for blocks in flight; `None`: as the device shows.
    pub(crate) watermarks: Option<Watermarks>,
    /// Blocks of zeros are to become holes.
    pub(crate) seek_zeros: bool,
    /// The sink is a file that may be shorter than where it is written next: no
    /// write may go to its end instead, if another process sets `O_APPEND`.
    pub(crate) in_place: bool,
    /// What the sink was made longer by, until it is known to be as long as what
    /// is counted.
    pub(crate) room: Option<Room>,
    /// The caller's pipes, which may be larger meanwhile.
    pub(crate) lent: LentPipes,
    /// How the kernel is given work that it does on its own.
    pub(crate) backend: Backend,
    /// What sits between reading and writing.
    pub(crate) stages: Stages,
    /// Where the sink is a stream socket, which another transfer may read.
    pub(crate) writer: Option<Arc<Writer>>,
}

impl<'fd> Flow<'fd> {
    /// Allows sleeping inside system calls, or does not. While a call sleeps in the
    /// source, the sink can die unseen: if the source can be polled, that is waited
    /// for instead, and the sink is watched.
    pub(crate) fn let_sleep(&mut self, may_sleep: bool) {
        let kind = self.source.kind();
        let polled = kind.is_socket() || kind == Kind::Tty || kind.is_record();
        self.may_sleep = may_sleep;
        self.source_ready.may_sleep = may_sleep && !(polled && self.sink_is_watched);
        self.sink_ready.may_sleep = may_sleep;
    }

    /// Before a step on a thread that is wanted back: whoever shares a
    /// description may have taken `O_NONBLOCK` off it since, as shells do, and
    /// a call that was to return at once would wait.
    pub(crate) fn look_again(&mut self) {
        if self.may_sleep {
            return;
        }
        let sides = [
            (&mut self.source, &mut self.source_ready),
            (&mut self.sink, &mut self.sink_ready),
        ];
        for (end, ready) in sides {
            if end.facts().nonblocking
                && end.facts().can_block()
                && rustix::fs::fcntl_getfl(end.fd()).is_ok_and(|f| !f.contains(OFlags::NONBLOCK))
            {
                *end = end.with_facts(Facts {
                    nonblocking: false,
                    ..*end.facts()
                });
                ready.never_waits = false;
            }
        }
    }

    pub(crate) fn source_fd(&self) -> BorrowedFd<'fd> {
        self.source.fd()
    }

    pub(crate) fn sink_fd(&self) -> BorrowedFd<'fd> {
        self.sink.fd()
    }

    /// Both ends may have messages, of which the sink tells nothing: what came
    /// as one goes on as one.
    pub(crate) fn keeps_messages(&self) -> bool {
        let source = self.source.facts();
        self.sink.facts().may_be_messages()
            && (source.kind.is_datagram() || source.may_be_messages())
    }

    /// What is written to the sink by one call is a message of its own.
    pub(crate) fn keeps_apart(&self) -> bool {
        let sink = &self.sink;
        sink.kind().is_datagram() || sink.facts().is_packet_pipe() || self.keeps_messages()
    }

    /// How many bytes to ask for: what is left, and not more than this.
    pub(crate) fn want(&self, at_most: usize) -> usize {
        // A made-up file may have nothing behind its first read (`do_proc_dointvec`,
        // kernel/sysctl.c).
        let block = self.block.filter(|_| self.source.kind() != Kind::Pseudo);
        let at_most = block.map_or(at_most, |block| block.min(at_most));
        // Past 2^63-1 there is no file: asking for more is EINVAL or EOVERFLOW.
        let here = match self.from {
            // Of what has no end.
            Cursor::Position if !self.source.kind().is_cached() => 0,
            _ => self.counted_place().unwrap_or(0),
        };
        let there_is = (i64::MAX as u64).saturating_sub(here);
        let claimed = self.from.claimed().unwrap_or(u64::MAX);
        let left = self.left.min(self.span).min(there_is).min(claimed);
        usize::try_from(left).map_or(at_most, |left| left.min(at_most))
    }

    /// So many bytes came from the source.
    pub(crate) fn took(&mut self, bytes: u64) {
        self.read += bytes;
        self.left = self.left.saturating_sub(bytes);
        self.span = self.span.saturating_sub(bytes);
    }

    /// Cuts off what a path has made the sink longer by, and nothing has filled.
    ///
    /// # Errors
    ///
    /// Of `fstat(2)` or `ftruncate(2)`: the sink may be longer than what is
    /// counted. It may be tried again.
    pub(crate) fn trim(&mut self) -> Result<(), Errno> {
        let Some(mut room) = self.room.take() else {
            return Ok(());
        };
        let done = (self.sink_place()).and_then(|to| room.trim(self.sink_fd(), to));
        self.room = done.is_err().then_some(room);
        done
    }

    /// So many bytes went into the sink.
    pub(crate) fn gave(&mut self, bytes: u64) {
        self.written += bytes;
        if let Some(room) = &mut self.room {
            room.fill(bytes);
        }
    }

    /// The source's next bytes are a hole, and so are the sink's.
    pub(crate) fn skipped(&mut self, hole: u64) {
        self.took(hole);
        self.stages.inspect_zeros(hole);
        self.gave(hole);
    }

    /// One call of the kernel's took so many bytes from the source and gave
    /// them to the sink.
    pub(crate) fn carried(&mut self, bytes: u64) -> Verdict {
        self.took(bytes);
        self.gave(bytes);
        Verdict::Moved(bytes)
    }

    /// A call returned `EINTR`, for a signal, or because a file system in user
    /// space says so, perhaps each time. The loop that runs the transfer decides
    /// whether the call is made again.
    pub(crate) fn was_interrupted(&mut self, side: Side) -> Verdict {
        self.interrupted = Some(side);
        Verdict::Moved(0)
    }

    /// Bytes known to be in hand after this step: those of a file that the
    /// request covers. Only then is it right to announce more to a socket;
    /// announced for nothing, a short message waits 200 ms.
    pub(crate) fn more_in_hand(&self) -> bool {
        self.source.kind().is_cached() && self.left > 0 && self.is_before_its_size()
    }

    /// More was announced to a connection, and does not come: what it holds back
    /// for that goes now. No option of the socket's changes: taking off a cork
    /// that is not there does nothing else (`__tcp_sock_set_cork`,
    /// net/ipv4/tcp.c), and one that the caller has put there stays.
    pub(crate) fn nothing_follows(&self) {
        use rustix::net::sockopt;
        let sink = self.sink_fd();
        if self.sink.kind() == Kind::Tcp && sockopt::tcp_cork(sink) == Ok(false) {
            // A connection that has failed says so elsewhere.
            let _ = sockopt::set_tcp_cork(sink, false);
        }
    }

    /// The source says that it is larger than what was read of it; that may be
    /// a lie.
    pub(crate) fn is_before_its_size(&self) -> bool {
        self.before_its_size().is_some_and(|bytes| bytes > 0)
    }

    /// How many bytes that is; `None` of a source without a size.
    pub(crate) fn before_its_size(&self) -> Option<u64> {
        let here = self.counted_place()?;
        let size = self.source.facts().size;
        size.map(|size| size.saturating_sub(here))
    }

    /// As many bytes were read as a file had when the transfer began, on a file
    /// system whose sizes can be relied on. Only on the way into another file,
    /// which takes what was read at once: a slow sink gives the source time to
    /// grow, and what it has grown by is moved too.
    pub(crate) fn is_at_size(&self) -> bool {
        let facts = self.source.facts();
        let at_size = || {
            self.counted_place()
                .is_some_and(|here| facts.size == Some(here))
        };
        self.sink.kind().is_file() && facts.has_true_size() && at_size()
    }

    /// Where the source is read next, as far as it follows from what was read;
    /// `None` of a source without positions.
    pub(super) fn counted_place(&self) -> Option<u64> {
        match self.from {
            Cursor::Position => Some(self.source.facts().position.unwrap_or(0) + self.read),
            cursor => cursor.place(),
        }
    }

    /// Whether the source has another byte where it stands, found out without
    /// taking it. `Ok(None)` for a source that cannot be read twice.
    pub(crate) fn source_goes_on(&mut self) -> Result<Option<bool>, Errno> {
        let kind = self.source.kind();
        if kind.is_stream_socket() {
            return self.socket_goes_on();
        }
        if !kind.is_cached() {
            return Ok(None);
        }
        let offset = match self.source_place() {
            Ok(offset) if offset < i64::MAX as u64 => offset,
            Ok(_) => return Ok(Some(false)),
            Err(Errno::EIO) => return Err(Errno::EIO), // An xfs that has shut down.
            Err(_) => return Ok(None),
        };
        let mut byte = [0u8; 1];
        let source = self.source_fd();
        match again(|| sys::pread(source, &mut byte, offset)) {
            Ok(n) => Ok(Some(n > 0)),
            // Direct I/O does not read single bytes; its reads know the end.
            Err(rustix::io::Errno::INVAL) if self.source.facts().direct => Ok(None),
            Err(rustix::io::Errno::SPIPE) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// A path has found an end that [`Flow::source_goes_on`] cannot confirm: of a
    /// file without positions, as a FUSE server may have one
    /// (`FOPEN_NONSEEKABLE`), or of a socket that may not be looked at. The next path
    /// reads; where there is none, the size of a file decides, if it is known: the size of none is what those claim that do not
    /// know theirs.
    pub(crate) fn ends_unseen(&self) -> bool {
        let facts = self.source.facts();
        let told = |size| size > 0 || facts.has_true_size();
        let short = || (facts.size).is_some_and(|size| self.read < size || !told(size));
        if facts.kind.is_stream_socket() {
            return self.has_next;
        }
        facts.kind.is_file() && facts.position.is_none() && (self.has_next || short())
    }

    /// Nothing will come of the source any more, as far as that can be seen
    /// without taking anything. `None`: only a call tells that takes something.
    ///
    /// # Errors
    ///
    /// A socket's own, which is told once: it is the source's failure.
    pub(crate) fn source_has_ended(&mut self) -> Result<Option<bool>, Errno> {
        let source = self.source_fd();
        if self.source.kind().is_pipe() {
            return Ok(
                pipe::has_ended(source).or_else(|| match packets::front(source, 1) {
                    Ok(front) => Some(front == Front::End),
                    Err(_) => None,
                }),
            );
        }
        match self.source_goes_on() {
            Err(errno) if self.source.kind().is_socket() => Err(errno),
            goes_on => Ok(Some(goes_on == Ok(Some(false)))),
        }
    }

    /// Where the source is read next, if it can seek.
    pub(crate) fn source_offset(&self) -> Option<u64> {
        self.source_place().ok()
    }

    /// The same, or why it cannot be told.
    pub(crate) fn source_place(&self) -> Result<u64, Errno> {
        place_of(self.from, self.source_fd())
    }

    /// Where the sink is written next, if it can seek.
    pub(crate) fn sink_offset(&self) -> Option<u64> {
        self.sink_place().ok()
    }

    /// The same, or why it cannot be told.
    pub(crate) fn sink_place(&self) -> Result<u64, Errno> {
        place_of(self.to, self.sink_fd())
    }

    /// Moves the source's place by so many bytes without reading. Where that is then.
    pub(crate) fn move_source(&mut self, bytes: i64) -> Result<u64, Errno> {
        move_cursor(&mut self.from, self.source.fd(), bytes)
    }

    /// Moves the sink's place by so many bytes without writing. Where that is then.
    pub(crate) fn move_sink(&mut self, bytes: i64) -> Result<u64, Errno> {
        move_cursor(&mut self.to, self.sink.fd(), bytes)
    }

    /// May the source be read without a poll first?
    pub(crate) fn may_read(&mut self, covered: bool) -> bool {
        self.source_ready.take(covered)
    }

    /// May the sink be written without a poll first?
    pub(crate) fn may_write(&mut self, covered: bool) -> bool {
        self.sink_ready.take(covered)
    }

    /// A call that writes so many bytes to the sink, or as many as there are.
    /// An error of a connection is noted for the transfer that reads it.
    pub(crate) fn write_by(
        &self,
        bytes: Option<usize>,
        call: impl FnOnce() -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        match &self.writer {
            Some(writer) => {
                let waits = self.may_sleep && !self.sink.facts().nonblocking;
                writer.call(&self.sink, bytes, waits, call)
            }
            None => call(),
        }
    }

    /// What is known of a side's readiness, for the transfer that polls it.
    pub(crate) fn readiness(&mut self, side: Side) -> &mut Ready {
        match side {
            Side::Source => &mut self.source_ready,
            Side::Sink => &mut self.sink_ready,
        }
    }

    /// The sink is a pipe that a write would wait for, and may not.
    pub(crate) fn sink_is_a_pipe_that_waits(&self) -> bool {
        let facts = self.sink.facts();
        facts.kind.is_pipe() && !facts.nonblocking && !self.may_sleep
    }

    /// The thread is wanted back, and splicing to the sink could keep it: a
    /// blocking socket that polls writable makes its caller wait all the same
    /// where memory is short, more is unsent than `TCP_NOTSENT_LOWAT`, or pages
    /// hold little each (`tcp_sendmsg_locked`, net/ipv4/tcp.c), and no flag of
    /// `splice(2)` or `sendfile(2)` is against it. `MSG_DONTWAIT` is.
    pub(crate) fn sink_could_wait(&self) -> bool {
        let facts = self.sink.facts();
        !self.may_sleep && !facts.nonblocking && facts.kind.is_socket()
    }

    /// The same of splicing from the source: what a blocking connection has
    /// polled readable for, somebody else may read first, another transfer of
    /// the same thread too. UNIX sockets go by `SPLICE_F_NONBLOCK`
    /// (`unix_stream_splice_read`, net/unix/af_unix.c).
    pub(crate) fn source_could_wait(&self) -> bool {
        let facts = self.source.facts();
        let waits = matches!(facts.kind, Kind::Tcp | Kind::StreamSocket);
        waits && !self.may_sleep && !facts.nonblocking
    }
}
