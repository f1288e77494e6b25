//! The working state of a transfer.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::OFlags;

use super::account::Account;
use super::{Allowance, End, Mode};
use crate::endpoint::resets::Writer;
use crate::endpoint::{Endpoint, Facts, Kind, Side, is_pty_master};
use crate::errno::Errno;
use crate::path::direct::Room;
use crate::path::flow::cursor::Cursor;
use crate::path::flow::enlarged_pipes::EnlargedPipes;
use crate::path::verdict::Verdict;
use crate::pipe::{Channel, Unreadable};
use crate::report::Dropped;
use crate::request::{Backend, Request, Size, Sparse, Watermarks};
use crate::stage::Stages;
use crate::sys;
use crate::tune::Goal;

/// Whether reads of a stream are joined to whole blocks of the request before they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joins {
    /// No: each read is a message.
    Nothing,
    /// For a datagram sink.
    Datagrams,
    /// Also for a device or a pseudo-file: the source is a private pipe, of which a read returns
    /// what it holds.
    Records,
}

/// The caller's options that matter to a path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// Bytes per step.
    pub(crate) block: Option<usize>,
    /// Watermarks for blocks in flight; `None`: there are none.
    pub(crate) watermarks: Option<Watermarks>,
    /// Blocks in flight are measured and adapted; otherwise their first number and size stay.
    pub(crate) tunes: bool,
    /// Blocks of zeros become holes.
    pub(crate) seek_zeros: bool,
    /// The backend for asynchronous I/O.
    pub(crate) backend: Backend,
    /// Datagrams that are too long for the sink are dropped, and the others continue.
    pub(crate) drops_too_long: bool,
    /// Reads that are joined to blocks.
    pub(crate) joins: Joins,
}

/// The working state that a transfer passes to its current path.
pub(crate) struct Flow<'fd> {
    pub(crate) source: End<'fd>,
    pub(crate) sink: End<'fd>,
    /// The bytes that may still be taken from the source.
    pub(crate) allowance: Allowance,
    /// The counts of bytes taken and given.
    account: Account,
    /// How the transfer is run.
    pub(crate) mode: Mode,
    /// The caller's options.
    pub(crate) options: Options,
    /// The goal of a path that measures its own settings.
    pub(crate) goal: Goal,
    /// The side whose call was interrupted in the last step.
    interrupted: Option<Side>,
    /// Bytes that were taken from the source pipe and cannot be read: they are the
    /// next bytes. In a box, as `room` is, because few transfers have them.
    pub(crate) unreadable: Option<Box<Unreadable>>,
    /// The error of a close of another open file description of the sink.
    pub(crate) sink_closed: Option<Errno>,
    /// The last read of the source was `EIO`, which may be the end of a pseudoterminal.
    pub(in crate::path) eio_before: bool,
    /// `poll(2)` reports when the sink's reader is gone.
    sink_is_watched: bool,
    /// Another path follows if this one declines.
    has_next: bool,
    /// The sink is a file that may be shorter than its next offset: no write may
    /// append instead, if another process sets `O_APPEND`.
    pub(in crate::path) in_place: bool,
    /// The amount by which the sink was lengthened, until the sink is known to be as
    /// long as what is counted.
    pub(in crate::path) room: Option<Box<Room>>,
    /// The caller's pipes, which may be enlarged.
    pub(crate) enlarged_pipes: EnlargedPipes,
    /// The stages between reading and writing.
    pub(crate) stages: Stages,
    /// Set if the sink is a socket with a connection, which another transfer may read.
    writer: Option<Arc<Writer>>,
}

impl<'fd> Flow<'fd> {
    /// The state before the first step: both ends at their offsets, and nothing
    /// moved.
    pub(crate) fn new(
        source: Endpoint<'fd>,
        sink: Endpoint<'fd>,
        request: &Request,
        backend: Backend,
    ) -> Flow<'fd> {
        let (from, to) = (source.facts(), sink.facts());
        let seek_zeros =
            request.sparse == Sparse::Always && to.kind.is_file() && to.is_seekable() && !to.append;
        Flow {
            sink_is_watched: poll_shows_end(&sink),
            writer: Writer::of(&sink),
            source: End::new(
                source,
                request.source_offset,
                from.reading_waits(),
                request.source_unshared,
            ),
            sink: End::new(
                sink,
                request.sink_offset,
                to.writing_waits(),
                request.sink_unshared,
            ),
            allowance: Allowance::new(match request.size {
                Size::Eof => None,
                Size::Bytes(n) => Some(n),
            }),
            account: Account::default(),
            mode: Mode::new(),
            options: Options {
                block: request.block.map(usize::from),
                watermarks: request.watermarks,
                tunes: true,
                seek_zeros,
                backend,
                drops_too_long: true,
                joins: Joins::Datagrams,
            },
            goal: Goal::Rate,
            interrupted: None,
            unreadable: None,
            sink_closed: None,
            eio_before: false,
            has_next: false,
            in_place: false,
            room: None,
            enlarged_pipes: EnlargedPipes::default(),
            stages: Stages::default(),
        }
    }

    /// Closes another open file description of the sink. It may be the only one that gets an
    /// error of the file system ([`sys::close_and_report`]). A number that the host has reused
    /// stays open, as far as that can be determined (`Facts::is_still`).
    pub(in crate::path) fn close_sink(&mut self, own: OwnedFd) {
        if !self.sink.facts().is_still(&own) {
            return std::mem::forget(own);
        }
        if let Err(errno) = sys::close_and_report(own) {
            self.sink_closed.get_or_insert(errno);
        }
    }

    /// Bytes taken from the source.
    pub(crate) fn read(&self) -> u64 {
        self.account.read
    }

    /// Bytes that the sink has accepted.
    pub(crate) fn written(&self) -> u64 {
        self.account.written
    }

    /// Datagrams that the kernel truncated.
    pub(crate) fn truncated(&self) -> u64 {
        self.account.truncated
    }

    /// Records that the kernel has truncated this many datagrams.
    pub(crate) fn cut(&mut self, datagrams: u64) {
        self.account.truncated += datagrams;
    }

    /// Datagrams that were too long for the sink.
    pub(crate) fn dropped(&self) -> Dropped {
        self.account.dropped
    }

    /// Calls `send`, which sends a datagram of this length, and may send more after it.
    /// `None`: the datagram is too long for the sink (`EMSGSIZE`), and was dropped and counted.
    ///
    /// The error may be that of an earlier datagram, which a router has reported
    /// (`IP_MTU_DISCOVER`, ip(7)). The kernel reports such an error once, so `send` is called
    /// again.
    ///
    /// # Errors
    ///
    /// Those of `send`. `EMSGSIZE` if the datagram does not come from a datagram socket: the
    /// transfer has cut it from a stream, and another block size may help.
    pub(in crate::path) fn send_or_drop<T>(
        &mut self,
        length: usize,
        mut send: impl FnMut(&mut Flow<'fd>) -> Result<T, Verdict>,
    ) -> Result<Option<T>, Verdict> {
        const TOO_LONG: Verdict = Verdict::Failed(Side::Sink, Errno::EMSGSIZE);
        let is_too_long = |sent: &Result<T, Verdict>| matches!(sent, Err(TOO_LONG));
        let mut sent = send(self);
        if is_too_long(&sent) {
            sent = send(self);
        }
        if !is_too_long(&sent) || !self.drops_too_long() {
            return sent.map(Some);
        }
        self.account.dropped.datagrams += 1;
        self.account.dropped.bytes += length as u64;
        Ok(None)
    }

    /// Returns whether datagrams that are too long for the sink are dropped: those of a
    /// datagram socket.
    fn drops_too_long(&self) -> bool {
        let both = self.source.kind().is_datagram() && self.sink.kind().is_datagram();
        both && self.options.drops_too_long
    }

    /// Returns the number of bytes taken from the source and neither written nor dropped,
    /// if no stage changes the bytes.
    pub(crate) fn unwritten(&self) -> u64 {
        self.account.read - self.account.written - self.account.dropped.bytes
    }

    /// Returns whether all bytes taken from the source were written or dropped.
    pub(crate) fn has_written_all(&self) -> bool {
        self.account.read == self.account.written + self.account.dropped.bytes
    }

    /// Uncounts bytes that were rewound over.
    pub(crate) fn put_back(&mut self, bytes: u64) {
        self.account.read -= bytes;
    }

    /// Uncounts bytes of a hole that the sink does not have.
    pub(crate) fn uncount_hole(&mut self, bytes: u64) {
        self.account.read -= bytes;
        self.account.written -= bytes;
    }

    /// The side whose call was interrupted in the last step.
    pub(crate) fn interrupted(&self) -> Option<Side> {
        self.interrupted
    }

    /// Called when a step begins.
    pub(crate) fn clear_interrupted(&mut self) {
        self.interrupted = None;
    }

    /// `poll(2)` reports when the sink's reader is gone.
    pub(crate) fn sink_is_watched(&self) -> bool {
        self.sink_is_watched
    }

    /// Another path follows if this one declines.
    pub(crate) fn has_next(&self) -> bool {
        self.has_next
    }

    pub(crate) fn set_has_next(&mut self, has_next: bool) {
        self.has_next = has_next;
    }

    pub(crate) fn end(&self, side: Side) -> &End<'fd> {
        match side {
            Side::Source => &self.source,
            Side::Sink => &self.sink,
        }
    }

    pub(crate) fn end_mut(&mut self, side: Side) -> &mut End<'fd> {
        match side {
            Side::Source => &mut self.source,
            Side::Sink => &mut self.sink,
        }
    }

    /// Sets whether system calls may block. While a call blocks on the source, the
    /// transfer does not notice a failure of the sink. So if `poll(2)` reports such
    /// a failure, a source that can be polled is polled, together with the sink.
    pub(crate) fn set_may_sleep(&mut self, may_sleep: bool) {
        let kind = self.source.kind();
        let polled = kind.is_socket() || kind == Kind::Tty || kind.is_record();
        self.mode.set_may_sleep(may_sleep);
        self.source.ready.may_sleep = may_sleep && !(polled && self.sink_is_watched);
        self.sink.ready.may_sleep = may_sleep;
    }

    /// Checks `O_NONBLOCK` again before a step on a thread that must not block.
    /// Another process that shares the open file description may have cleared it, as
    /// shells do, and calls that rely on the flag would block.
    pub(crate) fn recheck_nonblocking(&mut self) {
        if self.mode.may_sleep() {
            return;
        }
        for end in [&mut self.source, &mut self.sink] {
            if end.facts().nonblocking
                && end.facts().can_block()
                && rustix::fs::fcntl_getfl(end.fd()).is_ok_and(|f| !f.contains(OFlags::NONBLOCK))
            {
                end.set_endpoint(end.endpoint().with_facts(Facts {
                    nonblocking: false,
                    ..*end.facts()
                }));
                end.ready.never_waits = false;
            }
        }
    }

    /// Whether both ends may be message-oriented although the kind of the sink does
    /// not show it: message boundaries are kept.
    pub(crate) fn keeps_messages(&self) -> bool {
        let source = self.source.facts();
        self.sink.facts().has_pieces() && (source.kind.is_datagram() || source.may_be_messages())
    }

    /// Whether each write to the sink is a separate message.
    pub(crate) fn writes_messages(&self) -> bool {
        let sink = self.sink.facts();
        sink.kind.is_datagram() || sink.is_packet_pipe() || self.keeps_messages()
    }

    /// Records that `bytes` came from the source.
    pub(crate) fn took(&mut self, bytes: u64) {
        self.account.read += bytes;
        self.allowance.took(bytes);
    }

    /// Records bytes that were taken from a pipe and cannot be read. They count as
    /// read, and not towards the size.
    pub(in crate::path) fn took_unreadable(&mut self, unreadable: Unreadable) {
        self.account.read += unreadable.pipe.held();
        self.unreadable = Some(Box::new(unreadable));
    }

    /// Cuts off the unfilled part by which a path has lengthened the sink.
    ///
    /// # Errors
    ///
    /// Of `fstat(2)` or `ftruncate(2)`: the sink may be longer than what is counted.
    /// It may be retried.
    pub(crate) fn trim(&mut self) -> Result<(), Errno> {
        let Some(mut room) = self.room.take() else {
            return Ok(());
        };
        let sink = self.sink.fd();
        let done = (self.sink.place()).and_then(|to| room.trim(sink, to, &mut self.sink_closed));
        self.room = done.is_err().then_some(room);
        done
    }

    /// Records that `bytes` went into the sink.
    pub(crate) fn gave(&mut self, bytes: u64) {
        self.account.written += bytes;
        if let Some(room) = &mut self.room {
            room.fill(bytes);
        }
    }

    /// Records a hole of the source that the sink has as well.
    pub(crate) fn skipped(&mut self, hole: u64) {
        self.account.read += hole;
        self.allowance.passed(hole);
        self.stages.inspect_zeros(hole);
        self.gave(hole);
    }

    /// Records that one call moved `bytes` from the source to the sink.
    pub(crate) fn carried(&mut self, bytes: u64) -> Verdict {
        self.took(bytes);
        self.gave(bytes);
        Verdict::Moved(bytes)
    }

    /// Records that a call returned `EINTR`: after a signal, or from a FUSE file
    /// system, which may return it each time. The loop that runs the transfer
    /// decides whether to retry.
    pub(crate) fn was_interrupted(&mut self, side: Side) -> Verdict {
        self.interrupted = Some(side);
        Verdict::Moved(0)
    }

    /// Whether more bytes are certain to follow this step: those of a file that the
    /// request covers. Only then may `MSG_MORE` be set on a socket; otherwise a
    /// short message is delayed by 200 ms.
    pub(crate) fn more_in_hand(&self) -> bool {
        // The next bytes of a schedule may follow much later.
        let follows = !self.allowance.is_over()
            && !self.allowance.is_held_back()
            && !self.allowance.is_paced();
        self.source.kind().is_cached() && follows && self.is_before_its_size()
    }

    /// Flushes a connection on which `MSG_MORE` was set, if nothing follows. No
    /// socket option changes: clearing a cork that is not set has no other effect
    /// (`__tcp_sock_set_cork`, net/ipv4/tcp.c), and one that the caller has set
    /// stays.
    pub(crate) fn nothing_follows(&self) {
        use rustix::net::sockopt;
        let sink = self.sink.fd();
        if self.sink.kind() == Kind::Tcp && sockopt::tcp_cork(sink) == Ok(false) {
            // Another call reports a failed connection.
            let _ = sockopt::set_tcp_cork(sink, false);
        }
    }

    /// The source's next offset, computed from the bytes read; `None` for a source
    /// that is not seekable.
    pub(in crate::path) fn counted_place(&self) -> Option<u64> {
        match self.source.cursor {
            Cursor::Position => Some(self.source.facts().position.unwrap_or(0) + self.read()),
            cursor => cursor.place(),
        }
    }

    /// Makes a call that writes `bytes` to the sink, or as many messages, or as much as is
    /// available. An error of a connection is recorded for the transfer that reads it.
    ///
    /// `EINPROGRESS` of a stream socket becomes `EAGAIN`: the call has begun a connection that
    /// `TCP_FASTOPEN_CONNECT` had deferred, and has sent nothing (`tcp_sendmsg_locked`,
    /// net/ipv4/tcp.c). A call that may wait waits for the connection.
    pub(crate) fn write_by<E: Copy + Into<Errno> + From<Errno>>(
        &self,
        bytes: Option<usize>,
        call: impl FnOnce() -> Result<usize, E>,
    ) -> Result<usize, E> {
        let done = match &self.writer {
            Some(writer) => writer.call(self.sink.endpoint(), bytes, call),
            None => call(),
        };
        let is_stream = self.sink.kind().is_stream_socket();
        done.map_err(|error| match error.into() {
            Errno::EINPROGRESS if is_stream => Errno::EAGAIN.into(),
            _ => error,
        })
    }

    /// Whether the sink is a pipe on which a write would block, and must not.
    pub(crate) fn sink_is_a_pipe_that_waits(&self) -> bool {
        let facts = self.sink.facts();
        facts.kind.is_pipe() && !facts.nonblocking && !self.mode.may_sleep()
    }

    /// Whether splicing to the sink could block a thread that must not block: a
    /// blocking socket that polls writable still blocks if memory is short, more is
    /// unsent than `TCP_NOTSENT_LOWAT`, or the pages hold few bytes each
    /// (`tcp_sendmsg_locked`, net/ipv4/tcp.c), and no flag of `splice(2)` or
    /// `sendfile(2)` prevents it. `MSG_DONTWAIT` does.
    pub(crate) fn sink_could_wait(&self) -> bool {
        let facts = self.sink.facts();
        !self.mode.may_sleep() && !facts.nonblocking && facts.kind.is_socket()
    }

    /// Whether splicing from the source could block a thread that must not block:
    /// another process, or another transfer, even on the same thread, may first read
    /// the bytes for which a blocking connection polled readable. UNIX sockets
    /// respect `SPLICE_F_NONBLOCK` (`unix_stream_splice_read`, net/unix/af_unix.c).
    pub(crate) fn source_could_wait(&self) -> bool {
        let facts = self.source.facts();
        let waits = matches!(facts.kind, Kind::Tcp | Kind::StreamSocket);
        waits && !self.mode.may_sleep() && !facts.nonblocking
    }
}

/// Whether `poll(2)` reports that a sink will never be read again. Of datagram
/// sockets, it does so only for those with a connection. A pseudoterminal master
/// shows a hang-up while no slave is open, and the next one reads bytes written
/// meanwhile.
fn poll_shows_end(sink: &Endpoint<'_>) -> bool {
    match sink.kind() {
        Kind::UnixSeqpacket => true,
        Kind::Tty => !is_pty_master(sink.fd()),
        kind => kind.is_pipe() || kind.is_stream_socket(),
    }
}
