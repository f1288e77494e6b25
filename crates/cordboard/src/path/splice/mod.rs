//! `splice(2)`: pages move through a pipe. Since Linux 2.6.17; with offsets on
//! both sides and all kinds of descriptors that it supports today since 2.6.31.
//!
//! One end must be a pipe. If neither is, a private pipe is used in between,
//! and shows which side failed. If the source is a file and the sink is the
//! caller's pipe, a private pipe is the faster way too: filling it holds no
//! lock that the reader needs, and moving whole pages holds the lock briefly.
//! If a call on the other end may block, it is the only way (`pipe_lock`). The same
//! holds for a file behind a channel of the library.
//!
//! `SPLICE_F_NONBLOCK` is always set: without it the call hangs before Linux
//! 5.1 if data and end come together (go#63795), and splice ignores a pipe's
//! own `O_NONBLOCK`. It covers the pipe only: a socket without `O_NONBLOCK`
//! still blocks, so it is polled before it is read. If the thread must not
//! block, the socket is not spliced to: another path sends, or this one copies
//! out of the private pipe.
//!
//! From pipe to pipe a buffer keeps its flags, including that of a packet
//! (`pipe_to_pipe`). A sink in packet mode is left to read/write.

mod answers;
mod ask;
mod copy_out;
mod one_call;
mod pair;
mod pipe_lock;
mod pipe_to_pipe;
mod takes;

pub(crate) use self::ask::could_wait;
use self::ask::{probe, refuses_pages};
use self::copy_out::CopyOut;
use self::pipe_lock::{waits_with_channel_locked, waits_with_pipe_locked};
use self::pipe_to_pipe::PipeToPipe;
pub(crate) use self::takes::takes;
use crate::endpoint::{Kind, Side};
use crate::errno::Errno;
use crate::path::common::checks::{COULD_WAIT, DEFERRED, defers_connection, needs_room};
use crate::path::flow::Flow;
use crate::path::step::Step;
use crate::path::verdict::Verdict;
use crate::pipe::{self, Channel, OwnedPipe};
use crate::report::Stranded;
use crate::request::Why;
use crate::sys::{self, makes_tls_records, page_size};
use rustix::pipe::SpliceFlags;

/// The smallest step from a file.
const FILE_STEP: usize = 512 << 10;
/// Consecutive empty splices from a source that has bytes, after which urgent
/// data is assumed to come next.
const EMPTY_READS: u32 = 8;
const SMALL_PIECES: &str = "pieces smaller than a page would fill the sink pipe's slots";
/// Below this many bytes, a private pipe costs more than it saves.
const WORTH_A_PIPE: u64 = 128 << 10;

/// | errno | verdict | evidence |
/// |---|---|---|
/// | `EINVAL`, `ENOSYS`, `EOPNOTSUPP` on the source's side | declined: nothing was taken | /dev/zero from Linux 5.10 to 6.6 |
/// | `EINVAL` on the sink's side | declined; what the private pipe holds is copied out first | `O_APPEND` set after open; drivers without splice_write |
/// | `EIO`, `ENOMEM`, `ENOBUFS`, 0 on the sink's side | the same: a read of the private pipe, or a write, shows the side | `page_cache_pipe_buf_confirm`, fs/splice.c |
/// | `EMSGSIZE` on the sink's side | the same: a socket that takes only shorter sends | `Sender` in `path/common/socket.rs` |
/// | any but `EPIPE`, `EAGAIN`, `EINTR`, from pipe to pipe | declined, or copied out of the socket pair: no other errno is of either side | `splice_pipe_to_pipe`, fs/splice.c |
/// | `EINVAL` from a kTLS socket | declined: a control record is next (haproxy#3450); receiving it takes a control buffer, which only the owner of the session has, so read/write then fails with `EIO` as `read(2)` does | needs `CONFIG_TLS` |
/// | `EPERM`, `EACCES`, `EIO`, `ENOENT` on the source's side | declined if nothing has moved | seccomp; FUSE |
/// | `EACCES` that is not returned again | failed: the error of a connection | `sys/attempt.rs` |
/// | `ENOSPC`, `EDQUOT`, `EFBIG`, `ENOMEM`, `ENOBUFS` on the source's side | declined: a read into a buffer needs no space in it | `needs_room` in `path/common/checks.rs` |
/// | `EAGAIN` | blocked, on the side that is not ready | |
/// | anything else | failed, on the side of the call | coreutils#278 |
/// | a connection that is deferred to the first send | declined at the start | `defers_connection` in `path/common/checks.rs` |
/// | packets in the source, for a pipe, without a socket pair | declined | `splice_pipe_to_pipe`, fs/splice.c |
/// | 0 | ended, once a peek at the source confirms it | urgent data stops it within a TCP stream |
pub(crate) struct Splice {
    private: Option<OwnedPipe>,
    /// Bytes go through a private pipe, which may be released while empty.
    via_private_pipe: bool,
    step: usize,
    moved: bool,
    /// Consecutive times that the source gave nothing though it had bytes.
    empty_reads: u32,
    /// The peek before the first wait for the source is done.
    peeked: bool,
    /// The last splice from the source was a full step: more is likely.
    busy: bool,
    /// The sink refused pages: the rest of the private pipe is copied.
    refused: Option<Errno>,
    copy_out: CopyOut,
    /// The last splice to the sink had `SPLICE_F_MORE`.
    announced: bool,
    /// The sink may be sent pages with `SPLICE_F_MORE`. `None`: not yet known.
    may_announce: Option<bool>,
    /// The sink's slots were filled by very few bytes: a write fills its pages.
    slots_underfilled: bool,
    /// Both ends are pipes.
    pipe_to_pipe: PipeToPipe,
    /// The private pipe is filled from the caller's.
    may_be_packets: bool,
}

impl Splice {
    /// Acquires a private pipe if one is needed or worth it.
    pub(crate) fn start(flow: &mut Flow<'_>) -> Result<Splice, Why> {
        if could_wait(flow) && flow.has_next() {
            return Err(COULD_WAIT.into());
        }
        if defers_connection(flow) {
            return Err(DEFERRED.into());
        }
        let (source, sink) = (flow.source.facts(), flow.sink.facts());
        let known = match source.size {
            Some(size) => size.min(flow.allowance.remaining()),
            None => flow.allowance.remaining(),
        };
        if known < page_size() as u64 && sink.kind.is_pipe() && flow.has_next() {
            return Err(SMALL_PIECES.into());
        }
        let mut splice = Splice {
            private: None,
            via_private_pipe: false,
            step: pipe::LARGEST,
            moved: false,
            empty_reads: 0,
            peeked: false,
            busy: false,
            refused: None,
            copy_out: CopyOut::default(),
            announced: false,
            may_announce: None,
            slots_underfilled: false,
            pipe_to_pipe: PipeToPipe::default(),
            may_be_packets: source.kind.is_pipe(),
        };
        let separate = waits_with_pipe_locked(source, sink);
        let (source, sink) = (*source, *sink);
        if known > WORTH_A_PIPE {
            // The process at the other end of a pipe gains from a larger one.
            flow.enlarge_pipes(source.size.is_some());
        }
        if source.kind.is_pipe() && !separate {
            if waits_with_channel_locked(flow) {
                splice.keep_apart(flow)?;
            }
            return Ok(splice);
        }
        let from_file = source.kind.is_cached();
        if sink.kind.is_pipe() {
            if from_file && known > WORTH_A_PIPE {
                // As much as the reader's pipe holds, so that filling one and
                // draining the other alternate evenly.
                splice.step = pipe::capacity(flow.sink.fd()).max(FILE_STEP);
                // EMFILE: done without one.
                splice.private = pipe::acquire(splice.step).ok();
                splice.via_private_pipe = splice.private.is_some();
            }
            if separate && !splice.via_private_pipe {
                splice.private = Some(pipe::acquire(splice.step)?);
                splice.via_private_pipe = true;
            }
            return Ok(splice);
        }
        if source.kind.is_pipe() && known <= pipe::default_capacity() as u64 {
            splice.step = pipe::default_capacity();
        }
        if from_file {
            splice.step = FILE_STEP;
        }
        let pipe = pipe::acquire(splice.step)?;
        // Every socket accepts a pipe's pages.
        let takes_pages = source.kind.is_pipe() && sink.kind.is_stream_socket();
        if !from_file && !takes_pages {
            probe(flow, &pipe)?;
        }
        splice.private = Some(pipe);
        splice.via_private_pipe = true;
        Ok(splice)
    }

    /// Splices from the source to the private pipe. Only into an empty one, so
    /// that `EAGAIN` can only mean the source.
    fn fill(&mut self, flow: &mut Flow<'_>) -> Result<(), Verdict> {
        let polled = flow.source.ready.marked;
        if !flow.source.may_use(self.needs_no_poll(flow)) {
            self.waits_for_poll(flow)?;
        }
        if self.private.is_none() && waits_with_channel_locked(flow) {
            self.keep_apart(flow).map_err(Verdict::Declined)?;
            if !self.via_private_pipe {
                return Err(self.one_call(flow));
            }
        }
        if self.private.is_none() {
            // EMFILE: another path may do without one.
            let pipe = pipe::acquire(self.step);
            self.private = Some(pipe.map_err(|errno| Verdict::Declined(errno.into()))?);
        }
        let Some(pipe) = &mut self.private else {
            return Err(Verdict::Moved(0));
        };
        pipe.fit();
        // The pipe may be smaller than requested. A claimed range that does not fit into it is
        // lost if the sink fails and another process has moved the position.
        let step = self.step.min(pipe.capacity());
        let length = flow.want(match flow.sink_could_wait() {
            true => step.min(CopyOut::ENOUGH),
            false => step,
        });
        let length = flow.claim_source(length);
        let (source, offset) = (flow.source.fd(), flow.offset_to_read());
        let mut from = offset;
        let done = sys::attempt(|| {
            let (from, to, flags) = (from.as_mut(), pipe.writer(), SpliceFlags::NONBLOCK);
            Ok(rustix::pipe::splice(source, from, to, None, length, flags)?)
        });
        if let Err(error) = done
            && error.was_pending()
        {
            return Err(Verdict::Failed(Side::Source, error.errno));
        }
        match done.map_err(Errno::from) {
            Ok(0) => Err(Verdict::Ended),
            Ok(n) => {
                pipe.filled(n);
                self.busy = n >= step;
                flow.was_read(offset, n as u64);
                flow.took(n as u64);
                flow.pipe_moved(Side::Source, n);
                Ok(())
            }
            Err(Errno::EAGAIN) if polled => Err(match flow.is_at_a_mark() {
                Ok(true) => Verdict::Declined("urgent data is next in the stream".into()),
                Ok(false) => Verdict::Blocked(Side::Source),
                Err(errno) => Verdict::Failed(Side::Source, errno),
            }),
            Err(errno) => Err(self.source_failed(flow, errno)),
        }
    }

    fn source_failed(&self, flow: &mut Flow<'_>, errno: Errno) -> Verdict {
        match errno {
            Errno::EINTR => flow.was_interrupted(Side::Source),
            Errno::EAGAIN => Verdict::Blocked(Side::Source),
            errno if needs_room(errno) => Verdict::Declined(errno.into()),
            errno => self.refused_or_failed(Side::Source, errno),
        }
    }

    /// Declines if the errno refuses the call as a whole; otherwise this side
    /// has failed.
    fn refused_or_failed(&self, side: Side, errno: Errno) -> Verdict {
        match errno {
            Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP => Verdict::Declined(errno.into()),
            Errno::EPERM | Errno::EACCES | Errno::EIO | Errno::ENOENT if !self.moved => {
                Verdict::Declined(errno.into())
            }
            Errno::EMSGSIZE if side == Side::Sink => Verdict::Declined(errno.into()),
            _ => Verdict::Failed(side, errno),
        }
    }

    /// Splices from the private pipe to the sink.
    fn flush(&mut self, flow: &mut Flow<'_>) -> Verdict {
        let Some(pipe) = &mut self.private else {
            return Verdict::Moved(0);
        };
        let copies = flow.sink_could_wait();
        // A copying write has no flag against blocking, except to a socket.
        let covered = copies || flow.sink.kind().is_pipe() && self.refused.is_none();
        if !flow.sink.may_use(covered) {
            return Verdict::Blocked(Side::Sink);
        }
        if self.refused.is_some() || copies || !self.copy_out.pending().is_empty() {
            return match self.copy_out.take(pipe) {
                // The bytes before the invalid page are written first.
                Err(_) if !self.copy_out.pending().is_empty() => self.copy_out.write(flow),
                Err(Errno::ENOMEM) => Verdict::Failed(Side::Sink, Errno::ENOMEM),
                Err(errno) => Verdict::Failed(Side::Source, errno),
                Ok(()) => self.copy_out.write(flow),
            };
        }
        let length = usize::try_from(pipe.held()).unwrap_or(usize::MAX);
        let mut flags = SpliceFlags::NONBLOCK;
        // SCTP holds back what has MSG_MORE, also while its send buffer is full; others ignore it.
        if flow.sink.kind() == Kind::Tcp
            && flow.more_in_hand()
            && may_announce(&mut self.may_announce, flow)
        {
            flags |= SpliceFlags::MORE;
        }
        let length = flow.claim_sink(length);
        let sink = flow.sink.fd();
        let (reader, mut to) = (pipe.reader(), flow.sink.cursor.place());
        let done = flow.write_by(Some(length), || {
            let to = to.as_mut();
            Ok(rustix::pipe::splice(reader, None, sink, to, length, flags)?)
        });
        match done {
            Ok(n @ 1..) => {
                pipe.drained(n);
                self.announced = flags.contains(SpliceFlags::MORE);
            }
            Ok(0) => return self.copy_rest(Errno::EIO),
            Err(errno) if refuses_pages(errno) => return self.copy_rest(errno),
            _ => {}
        }
        self.sink_result(flow, done)
    }

    /// Interprets the result of a call that gives the sink bytes that were
    /// taken before.
    fn sink_result(&mut self, flow: &mut Flow<'_>, done: Result<usize, Errno>) -> Verdict {
        match done {
            // A sink that accepts nothing now will not accept it later.
            Ok(0) => Verdict::Failed(Side::Sink, Errno::EIO),
            Ok(n) => {
                self.moved = true;
                flow.sink.cursor.advance(n as u64);
                flow.gave(n as u64);
                flow.pipe_moved(Side::Sink, n);
                Verdict::Moved(n as u64)
            }
            Err(Errno::EINTR) => flow.was_interrupted(Side::Sink),
            Err(Errno::EAGAIN) => Verdict::Blocked(Side::Sink),
            Err(errno) => Verdict::Failed(Side::Sink, errno),
        }
    }

    fn advance(&mut self, flow: &mut Flow<'_>) -> Verdict {
        self.via_private_pipe |= flow.sink_could_wait();
        if !self.via_private_pipe {
            return self.one_call(flow);
        }
        if self.held() == 0 {
            if let Some(errno) = self.refused {
                // The sink's call has lacked memory.
                return match needs_room(errno) && !flow.has_next() {
                    true => Verdict::Failed(Side::Sink, errno),
                    false => Verdict::Declined(errno.into()),
                };
            }
            // An exhausted source is not the end while bytes are held; here
            // none are.
            if let Err(verdict) = self.fill(flow) {
                return verdict;
            }
        }
        self.flush(flow)
    }
}

/// Returns whether `SPLICE_F_MORE` may be set. It leaves a TLS record open
/// (`tls_sw_sendmsg_locked`, net/tls/tls_sw.c), which only another send completes. The end of a
/// cork, by which [`Flow::nothing_follows`] flushes a connection, does not.
fn may_announce(known: &mut Option<bool>, flow: &Flow<'_>) -> bool {
    *known.get_or_insert_with(|| !makes_tls_records(flow.sink.fd()))
}

impl Step for Splice {
    fn step(&mut self, flow: &mut Flow<'_>) -> Verdict {
        let holds = self.held() > 0;
        if could_wait(flow) && flow.has_next() && !holds {
            return Verdict::Declined(COULD_WAIT.into());
        }
        if self.slots_underfilled && flow.has_next() && !holds {
            return Verdict::Declined(SMALL_PIECES.into());
        }
        match self.advance(flow) {
            Verdict::Blocked(Side::Sink) => self.widen(flow),
            verdict => verdict,
        }
    }

    fn held(&self) -> u64 {
        let private = self.private.as_ref().map_or(0, Channel::held);
        private + self.pipe_to_pipe.held() + self.copy_out.pending().len() as u64
    }

    fn piece(&self) -> Option<usize> {
        Some(self.step)
    }

    fn set_piece(&mut self, bytes: usize) {
        self.step = bytes;
        // The next one has the new size.
        if let Some(pipe) = self.private.take() {
            pipe.release();
        }
    }

    fn rest(&mut self) {
        if let Some(pipe) = self.private.take() {
            pipe.release();
        }
        self.pipe_to_pipe.rest();
        self.copy_out = CopyOut::default();
    }

    fn strand(&mut self) -> Option<Stranded> {
        if !self.copy_out.pending().is_empty() {
            let rest = Stranded::copied(self.copy_out.pending());
            self.copy_out = CopyOut::default();
            // The pipe was emptied into `copy_out`, except for bytes that could
            // not be read.
            return Some(match self.private.take() {
                Some(pipe) if pipe.held() > 0 => Stranded::before(Some(rest), pipe),
                private => {
                    self.private = private;
                    rest
                }
            });
        }
        if let Some(mut pair) = self.pipe_to_pipe.take_held() {
            if self.copy_out.take(&mut pair).is_err() {
                return Some(Stranded::Pipe(pair.into_reader()));
            }
            pipe::release_pair(pair);
            return self.strand();
        }
        let mut pipe = self.private.take()?;
        if pipe.held() == 0 {
            pipe.release();
            return None;
        }
        // The caller expects a stream.
        if self.may_be_packets {
            let done = self.copy_out.take(&mut pipe);
            if done.is_ok() || !self.copy_out.pending().is_empty() {
                self.private = Some(pipe);
                return self.strand();
            }
        }
        Some(Stranded::Pipe(pipe.into_reader()))
    }

    fn finish(&mut self, flow: &mut Flow<'_>) {
        if std::mem::take(&mut self.announced) {
            flow.nothing_follows();
        }
    }

    fn drop_without_close(mut self: Box<Self>) {
        if let Some(pipe) = self.private.take() {
            pipe.forget();
        }
        self.pipe_to_pipe.forget_pair();
    }

    fn forget(&mut self) {
        // Dropped, not released: it is not empty.
        self.private = None;
        self.copy_out = CopyOut::default();
    }
}

impl Drop for Splice {
    fn drop(&mut self) {
        self.rest();
    }
}
