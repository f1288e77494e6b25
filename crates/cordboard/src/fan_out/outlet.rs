//! One sink of a running fan-out.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::SendFlags;
use rustix::pipe::{SpliceFlags, splice, tee};

use super::block::Block;
use super::outcome::{Carry, SinkEnded};
use super::policy::OnSlow;
use super::rest::Rest;
use crate::compose::{Channel, Wake};
use crate::endpoint::{Endpoint, Side};
use crate::engine::{self, Running};
use crate::errno::Errno;
use crate::pipe::{CallerPipe, NoWait};
use crate::plan;
use crate::report::Refusal;
use crate::request::{DataPath, Request, Size, Why};
use crate::sys::{self, again};

/// Where the bytes of a sink are written.
pub(super) enum Target {
    /// The sink itself, a pipe.
    Sink,
    /// A private channel, and a transfer from it to the sink.
    Private(Channel, Running),
    /// The same, after the write end was closed: its read end.
    Ending(OwnedFd, Running),
}

/// One sink.
pub(super) struct Outlet<'a> {
    pub(super) endpoint: Endpoint<'a>,
    pub(super) policy: OnSlow,
    pub(super) target: Target,
    /// Messages of the source stay whole.
    pub(super) messages: bool,
    /// It is to be synced at the end.
    pub(super) sync: bool,
    enlarged: Option<CallerPipe>,
    nowait: NoWait,
    pub(super) rest: Rest,
    /// Bytes read for it.
    pub(super) read: u64,
    /// Bytes that its target has accepted.
    pub(super) delivered: u64,
    pub(super) dropped: u64,
    pub(super) gaps: u64,
    dropping: bool,
    pub(super) carried: Vec<Carry>,
    /// Why no pages are passed to it.
    pub(super) declined: Option<(Carry, Why)>,
    pub(super) ended: Option<SinkEnded>,
    /// The end of the sink was seen: [`end::has_ended`](super::end::has_ended).
    pub(super) settled: bool,
    pub(super) errno: Option<Errno>,
    /// How long other sinks, or the caller, have waited for it.
    pub(super) debt: Duration,
    /// Since when they wait for it.
    pub(super) waited_for: Option<Duration>,
    /// The bytes that it had accepted when the caller last checked, at the end.
    pub(super) seen: Option<u64>,
}

impl<'a> Outlet<'a> {
    /// Prepares a sink; starts the transfer in front of one that is no pipe, or that the others
    /// do not wait for. `messages`: its private channel keeps those of the source. `wake` counts
    /// the bytes of that transfer.
    pub(super) fn open(
        endpoint: Endpoint<'a>,
        policy: OnSlow,
        request: &Request,
        messages: bool,
        wake: Option<&Arc<Wake>>,
    ) -> Result<Outlet<'a>, Refusal> {
        let facts = endpoint.facts();
        // A packet's reader expects the boundaries of writes, and a page has none.
        let takes_pages = facts.kind.is_pipe() && !facts.is_packet_pipe();
        let target = match policy {
            OnSlow::Block if takes_pages => Target::Sink,
            // A process that splices the pipe into a socket holds its lock while that is full.
            // No call on the pipe returns then, and the other sinks would wait.
            _ => match private(&endpoint, request, messages, wake) {
                // Without an engine, the caller's thread may wait.
                Err(_) if takes_pages => Target::Sink,
                target => target?,
            },
        };
        let enlarged = match target {
            Target::Sink => CallerPipe::new(Side::Sink, &endpoint),
            Target::Private(..) | Target::Ending(..) => None,
        };
        let allowed = plan::switches(request)?.allows(DataPath::Splice);
        Ok(Outlet {
            endpoint,
            policy,
            target,
            messages,
            sync: request.sync,
            enlarged,
            nowait: NoWait::default(),
            rest: Rest::None,
            read: 0,
            delivered: 0,
            dropped: 0,
            gaps: 0,
            dropping: false,
            carried: Vec::new(),
            declined: (!allowed).then_some((Carry::Splice, "turned off".into())),
            ended: None,
            settled: false,
            errno: None,
            debt: Duration::ZERO,
            waited_for: None,
            seen: None,
        })
    }

    /// Enlarges a sink that is a pipe, as far as the budget allows.
    pub(super) fn enlarge(&mut self) {
        if let Some(pipe) = &mut self.enlarged {
            pipe.grow(self.endpoint.fd(), self.endpoint.fd());
        }
    }

    /// Returns the descriptor that is written to.
    pub(super) fn writer(&self) -> BorrowedFd<'_> {
        match &self.target {
            Target::Sink => self.endpoint.fd(),
            Target::Private(channel, _) => channel.writer(),
            Target::Ending(reader, _) => reader.as_fd(),
        }
    }

    pub(super) fn is_live(&self) -> bool {
        self.ended.is_none()
    }

    /// Returns whether it has accepted all of the last block.
    pub(super) fn is_ready(&self) -> bool {
        self.rest.is_none()
    }

    /// Returns whether the sink gets bytes, or the end of its transfer was not seen yet.
    pub(super) fn is_running(&self) -> bool {
        match self.ended {
            None => true,
            Some(SinkEnded::Complete) => !self.settled,
            Some(_) => false,
        }
    }

    /// Returns the transfer to the sink, until its end was seen.
    pub(super) fn running(&self) -> Option<&Running> {
        match &self.target {
            Target::Private(_, running) | Target::Ending(_, running) if self.is_running() => {
                Some(running)
            }
            _ => None,
        }
    }

    /// Returns the number of bytes that the sink itself has accepted.
    pub(super) fn accepted(&self) -> u64 {
        match &self.target {
            Target::Sink => self.delivered,
            Target::Private(_, running) | Target::Ending(_, running) => running.status().written,
        }
    }

    /// Returns whether the sink itself has accepted every byte that it was given.
    pub(super) fn has_all(&self) -> bool {
        self.accepted() >= self.delivered && self.is_ready()
    }

    /// Returns whether other sinks may have to wait for it before the next block, or the caller
    /// before the end.
    pub(super) fn lags(&self) -> bool {
        match &self.target {
            Target::Ending(..) => self.is_running() && !self.has_all(),
            Target::Sink | Target::Private(..) => self.is_live() && !self.is_ready(),
        }
    }

    pub(super) fn fail(&mut self, errno: Errno) {
        if self.is_live() {
            (self.ended, self.errno) = (Some(SinkEnded::Failed), Some(errno));
        }
    }

    /// Returns whether the sink gets the bytes, or has got all of them.
    pub(super) fn is_attached(&self) -> bool {
        matches!(self.ended, None | Some(SinkEnded::Complete))
    }

    /// Returns the sum of the bytes that the sink has accepted and those that were dropped for
    /// it, and the path to the sink.
    pub(super) fn position(&self) -> (u64, DataPath) {
        let (written, path) = match &self.target {
            Target::Sink => {
                let path = match self.carried.last() {
                    Some(Carry::Write) => DataPath::ReadWrite,
                    Some(Carry::Tee | Carry::Splice) | None => DataPath::Splice,
                };
                (self.delivered, path)
            }
            Target::Private(_, running) | Target::Ending(_, running) => {
                let status = running.status();
                (status.written, status.path)
            }
        };
        (written.saturating_add(self.dropped), path)
    }

    /// Counts a block of this length that the sink has no room for.
    pub(super) fn drop_block(&mut self, length: usize) {
        self.read += length as u64;
        self.dropped += length as u64;
        self.gaps += u64::from(!self.dropping);
        self.dropping = true;
    }

    /// Uncounts the last block, of which a sink that has failed has accepted no byte.
    pub(super) fn return_block(&mut self, length: usize) {
        self.read -= length as u64;
        self.rest = Rest::None;
    }

    /// Takes the next block, as much as the sink has room for; the rest follows with
    /// [`Outlet::flush`]. `last`: no other sink needs the block's pages any more.
    ///
    /// # Errors
    ///
    /// The source's: a page cannot be read.
    pub(super) fn accept(
        &mut self,
        block: &mut Block,
        first: BorrowedFd<'_>,
        last: bool,
    ) -> Result<(), Errno> {
        let length = block.len();
        self.read += length as u64;
        self.dropping = false;
        if let Block::Pages(length) = *block
            && self.declined.is_none()
        {
            let carry = if last { Carry::Splice } else { Carry::Tee };
            match self.pages(first, length, last) {
                Ok(n) => {
                    self.note(carry, n);
                    if n < length {
                        self.rest = Rest::of(block, first, n, last)?;
                    } else if last {
                        *block = Block::Taken;
                    }
                    self.adapt(n);
                    return Ok(());
                }
                // The sink has no reader (`link_pipe` and `splice_pipe_to_pipe`,
                // fs/splice.c).
                Err(Errno::EPIPE) => {
                    self.rest = Rest::Bytes(block.load(first)?, 0);
                    self.fail(Errno::EPIPE);
                    return Ok(());
                }
                Err(errno) => self.declined = Some((carry, errno.into())),
            }
        }
        self.rest = Rest::Bytes(block.load(first)?, 0);
        self.flush();
        self.adapt(length);
        Ok(())
    }

    /// Passes pages on; 0: there is no room.
    fn pages(&self, first: BorrowedFd<'_>, length: usize, last: bool) -> Result<usize, Errno> {
        let (into, flags) = (self.writer(), SpliceFlags::NONBLOCK);
        let done = match last {
            true => again(|| splice(first, None, into, None, length, flags)),
            false => again(|| tee(first, into, length, flags)),
        };
        match done.map_err(Errno::from) {
            // `opipe_prep`, fs/splice.c.
            Err(Errno::EAGAIN) => Ok(0),
            done => done,
        }
    }

    /// Adapts the capacity of a sink that is a pipe.
    fn adapt(&mut self, bytes: usize) {
        if let Some(pipe) = &mut self.enlarged {
            pipe.moved(bytes, self.endpoint.fd(), self.endpoint.fd());
        }
    }

    fn note(&mut self, carry: Carry, bytes: usize) {
        self.delivered += bytes as u64;
        if bytes > 0 && !self.carried.contains(&carry) {
            self.carried.push(carry);
        }
    }

    /// Writes the rest of the last block, as much as the sink has room for.
    pub(super) fn flush(&mut self) {
        while self.is_live() && !self.rest.is_none() {
            match self.flush_once() {
                Ok(()) => {}
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return,
                Err(errno) => self.fail(errno),
            }
        }
    }

    fn flush_once(&mut self) -> Result<(), Errno> {
        let done = match &mut self.rest {
            Rest::None => return Ok(()),
            Rest::Pages(pipe) => {
                use crate::pipe::Channel as _;
                let into = match &self.target {
                    Target::Private(channel, _) => channel.writer(),
                    Target::Sink | Target::Ending(..) => self.endpoint.fd(),
                };
                let held = pipe.held() as usize;
                match splice(pipe.reader(), None, into, None, held, SpliceFlags::NONBLOCK) {
                    Ok(n @ 1..) => {
                        pipe.drained(n);
                        self.note(Carry::Splice, n);
                    }
                    Err(errno @ (AGAIN | INTR | PIPE)) => return Err(errno.into()),
                    Ok(_) | Err(_) => {
                        self.rest.load()?;
                        return Ok(());
                    }
                }
                self.rest.len() == 0
            }
            Rest::Bytes(bytes, from) => {
                let (bytes, at) = (Arc::clone(bytes), *from);
                let n = self.write(&bytes[at..])?;
                if let Rest::Bytes(_, from) = &mut self.rest {
                    *from += n;
                }
                self.note(Carry::Write, n);
                at + n == bytes.len()
            }
        };
        if done && let Rest::Pages(pipe) = std::mem::replace(&mut self.rest, Rest::None) {
            pipe.release();
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        match &self.target {
            Target::Private(channel, _) if channel.keeps_messages() => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                match sys::send(channel.writer(), bytes, flags).map_err(Errno::from) {
                    // `sock_alloc_send_pskb`, net/core/sock.c.
                    Err(Errno::ENOBUFS) => Err(Errno::EAGAIN),
                    done => done,
                }
            }
            // A second description of its write end would keep its end from its reader.
            Target::Private(channel, _) => Ok(rustix::io::write(channel.writer(), bytes)?),
            Target::Sink | Target::Ending(..) => {
                (self.nowait).write(self.endpoint.fd(), &[IoSlice::new(bytes)], false)
            }
        }
    }

    /// Returns whether the transfer to a sink that may still get bytes has ended.
    pub(super) fn has_lost_transfer(&self) -> bool {
        let is_over = match &self.target {
            Target::Private(_, running) => running.status().ended,
            Target::Sink | Target::Ending(..) => false,
        };
        is_over && self.is_live()
    }

    /// Closes a second description of a sink that is a pipe, and restores its capacity.
    pub(super) fn give_back(&mut self) {
        self.nowait.rest();
        if let Some(pipe) = self.enlarged.take() {
            pipe.give_back(self.endpoint.fd(), self.endpoint.fd());
        }
    }
}

const AGAIN: rustix::io::Errno = rustix::io::Errno::AGAIN;
const INTR: rustix::io::Errno = rustix::io::Errno::INTR;
const PIPE: rustix::io::Errno = rustix::io::Errno::PIPE;

/// Makes a private channel, and starts a transfer from it to the sink.
fn private(
    endpoint: &Endpoint<'_>,
    request: &Request,
    messages: bool,
    wake: Option<&Arc<Wake>>,
) -> Result<Target, Refusal> {
    let no_descriptor = |errno| Refusal::NoDescriptor { errno };
    let channel = Channel::new(messages).map_err(no_descriptor)?;
    let request = Request {
        size: Size::Eof,
        source_offset: None,
        source_unshared: false,
        // Sizes and snapshots concern the source; the fan-out has the idle limit.
        stable: false,
        idle: None,
        ..request.clone()
    };
    let sink = endpoint.fd();
    let started = engine::start_with(channel.reader(), sink, request, |transfer| {
        let transfer = transfer.out_of_a_channel();
        match wake {
            Some(wake) => transfer.observe(wake.observer()),
            None => transfer,
        }
    });
    let running = started.map_err(|failure| {
        let errno = failure.report.errno.unwrap_or(Errno::EINVAL);
        failure.refusal.unwrap_or(Refusal::NoEngine { errno })
    })?;
    Ok(Target::Private(channel, running))
}
