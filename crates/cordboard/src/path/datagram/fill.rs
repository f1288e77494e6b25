//! Receives datagrams from the source, or reads bytes that become datagrams.

use super::one::{how, receive_one};
use super::size::{JOINED, MOST_JOINED};
use super::{Credentials, Datagram, Message, One, is_end};
use crate::endpoint::{Kind, Side};
use crate::errno::Errno;
use crate::path::common::socket::{self, Fits};
use crate::path::common::stream;
use crate::path::flow::Flow;
use crate::path::step::Step;
use crate::path::verdict::Verdict;
use crate::sys::{self, Batch, How, Received};

/// The number of datagrams received one at a time after one that came alone.
const SINGLY: u32 = 8;

/// The result of receiving a batch.
enum Batched {
    /// As many as requested: there may be more.
    Full,
    /// Nothing more is queued for now, or ever.
    Last,
    /// The next datagram is longer than the rest of the size, and stays.
    TooLong,
}

impl Datagram {
    /// Receives datagrams that together cannot exceed the rest of the size, in
    /// as few batches as possible: each slot has room for the longest possible
    /// datagram, and if less is left than that, the length of each is queried
    /// first.
    pub(super) fn receive(&mut self, flow: &mut Flow<'_>) -> Result<(), Verdict> {
        let wait = flow.source.ready.may_sleep && !flow.source.facts().nonblocking;
        let mut buffer = self.buffer()?;
        self.forget();
        let mut filled = 0;
        let done = loop {
            let first = filled == 0;
            let batched = self.batch(flow, &mut buffer, filled, wait && first);
            if batched.is_err() {
                // Another reader may have taken the packets that were counted.
                self.counted = 0;
            }
            match batched {
                // The sender is not ahead of this reader: the next datagrams are
                // received one at a time, without a useless call for another.
                Err(Errno::EAGAIN | Errno::EINTR) if filled == 1 => {
                    self.singly = SINGLY;
                    break Ok(());
                }
                Err(Errno::EAGAIN | Errno::EINTR) if !first => break Ok(()),
                Err(Errno::EINTR) => break Err(flow.was_interrupted(Side::Source)),
                Err(Errno::EAGAIN) => break Err(Verdict::Blocked(Side::Source)),
                // Receiving in batches is refused, and nothing is received yet. If the socket
                // also returns `EINVAL` to a single call, the next path reports it.
                Err(errno) if first && errno.is_refusal_or_invalid() => {
                    break Err(Verdict::Declined(errno.into()));
                }
                Err(errno) if first => break Err(Verdict::Failed(Side::Source, errno)),
                // A socket returns its pending error once.
                Err(errno) => {
                    self.failed = Some(errno);
                    break Ok(());
                }
                Ok(Batched::TooLong) if first => {
                    flow.allowance.close();
                    break Err(Verdict::Moved(0));
                }
                // The next call returns it again.
                Ok(Batched::TooLong | Batched::Last) => break Ok(()),
                Ok(Batched::Full) => filled += self.received.len(),
            }
            if filled == 1 && self.singly > 0 {
                self.singly -= 1;
                break Ok(());
            }
            if filled == self.slots || flow.allowance.now() == 0 {
                break Ok(());
            }
        };
        self.buffer = Some(buffer);
        done
    }

    /// Receives one batch into the free slots.
    fn batch(
        &mut self,
        flow: &mut Flow<'_>,
        buffer: &mut [u8],
        filled: usize,
        wait: bool,
    ) -> Result<Batched, Errno> {
        // A datagram is moved whole or not at all, however long it is.
        let whole =
            usize::try_from(flow.allowance.remaining() / self.slot as u64).unwrap_or(usize::MAX);
        let (mut at_most, mut slot) = (whole.min(self.slots - filled), self.slot);
        let slots = &mut buffer[filled * self.slot..];
        if at_most == 0 {
            let fits = match self.counts_next(flow, filled)? {
                true => Fits::Yes,
                false => socket::next_fits(flow, &mut slots[..slot], wait)?,
            };
            match fits {
                Fits::Yes => {}
                Fits::No => return Ok(Batched::TooLong),
                // The rest is less than a slot.
                Fits::Unknown => slot = flow.allowance.remaining() as usize,
            }
            at_most = 1;
        }
        // A datagram that exceeds the grant of a schedule is received whole.
        let granted = usize::try_from(flow.allowance.now() / self.slot as u64);
        at_most = granted.map_or(at_most, |granted| at_most.min(granted.max(1)));
        let batch = self.batch.get_or_insert_with(|| Batch::new(self.slots));
        let (fd, received) = (flow.source.fd(), &mut self.received);
        let how = how(flow, wait);
        let mut receive = |how| batch.receive(fd, slots, slot, at_most, how, received);
        let count = match receive(how) {
            // A filter refuses the call again. The kernel reports an error of the socket once:
            // it comes after what has arrived meanwhile.
            Err(Errno::EACCES) => {
                let again = receive(How { wait: false, ..how });
                if again == Err(Errno::EACCES) {
                    return Err(Errno::EACCES);
                }
                self.failed = Some(Errno::EACCES);
                again.unwrap_or(0)
            }
            done => done?,
        };
        let last = self.received.iter().rposition(|r| r.length > 0);
        for (index, received) in self.received.iter().enumerate() {
            // The socket no longer shows messages that were received in the same
            // batch.
            let behind = last.is_none_or(|last| index > last);
            if received.length == 0 && behind && is_end(flow, received) {
                self.ended = true;
                return Ok(Batched::Last);
            }
            flow.took(received.length as u64);
            self.counted = self.counted.saturating_sub(received.length as u64);
            flow.cut(u64::from(received.truncated));
            push_apart(&mut self.queue, (filled + index) * self.slot, received);
        }
        Ok(match count < at_most {
            true => Batched::Last,
            false => Batched::Full,
        })
    }

    /// Whether the next packet is known to be no longer than the rest of the
    /// size. For sequenced packets the query returns the sum of all queued,
    /// which is no less than any of them.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: none is queued behind those that were received, or an empty
    /// one.
    fn counts_next(&mut self, flow: &Flow<'_>, filled: usize) -> Result<bool, Errno> {
        if self.counted == 0 && filled > 0 && flow.source.kind() == Kind::UnixSeqpacket {
            self.counted = match sys::unsent(flow.source.fd()) {
                Ok(0) => return Err(Errno::EAGAIN),
                Ok(bytes) => bytes,
                Err(_) => 0,
            };
        }
        Ok((1..=flow.allowance.remaining()).contains(&self.counted))
    }

    /// Receives datagrams into consecutive memory, as long as more are queued,
    /// for a stream that takes them in one call. A batch of slots, each of which
    /// must hold the largest possible datagram, is spread over so many pages
    /// that touching them costs more than the calls it saves.
    pub(super) fn join(&mut self, flow: &mut Flow<'_>) -> Result<(), Verdict> {
        let mut buffer = self.buffer()?;
        self.forget();
        let mut verdict = None;
        let mut end = 0;
        let wait = flow.source.ready.may_sleep && !flow.source.facts().nonblocking;
        // The sink's reader works while the next datagrams are received.
        let enough = match flow.sink.kind() {
            Kind::Tty => 1,
            kind if kind.is_pipe() => JOINED / 4,
            _ => JOINED,
        };
        // Credentials distinguish an empty message from the end, and double the
        // cost of a short message. They are requested only after a first empty
        // result: an empty message leaves no trace in a stream, and the end is
        // returned again.
        let packets = flow.source.kind() == Kind::UnixSeqpacket;
        let mut sure = !packets;
        while end < enough && self.queue.len() < MOST_JOINED && verdict.is_none() {
            let first = self.queue.is_empty();
            // Also at the size: another call would take the next reader's error.
            if !first && flow.allowance.now() == 0 {
                break;
            }
            let slot = &mut buffer[end..end + self.slot];
            // The option is not set while the call waits: the end is returned at once.
            let waits = wait && first && !(packets && sure);
            match receive_one(flow, slot, waits, sure) {
                Ok(One::Here(received)) if received.length == 0 && !sure => {
                    sure = true;
                    self.credentials = Credentials::ask(flow);
                }
                Ok(One::Here(received)) if received.length == 0 && is_end(flow, &received) => {
                    self.ended = true;
                    break;
                }
                Ok(One::Here(received)) => {
                    flow.took(received.length as u64);
                    push_apart(&mut self.queue, end, &received);
                    end += received.length;
                    if received.length > self.usual {
                        buffer.is_not_sparse();
                    }
                }
                // The next call returns it again.
                Ok(One::TooLong) | Err(Errno::EAGAIN | Errno::EINTR) if !first => break,
                Ok(One::TooLong) => {
                    flow.allowance.close();
                    verdict = Some(Verdict::Moved(0));
                }
                Err(Errno::EAGAIN) => verdict = Some(Verdict::Blocked(Side::Source)),
                Err(Errno::EINTR) => verdict = Some(flow.was_interrupted(Side::Source)),
                // A socket returns its pending error once.
                Err(errno) if !first => {
                    self.failed = Some(errno);
                    break;
                }
                Err(errno) => verdict = Some(Verdict::Failed(Side::Source, errno)),
            }
        }
        self.credentials.give_back(flow);
        self.buffer = Some(buffer);
        verdict.map_or(Ok(()), Err)
    }

    /// Reads a stream and cuts it into datagrams. If the caller gave a size,
    /// only the last datagram may be shorter; otherwise all available bytes are
    /// sent.
    pub(super) fn cut(&mut self, flow: &mut Flow<'_>) -> Result<(), Verdict> {
        let kind = flow.source.kind();
        if flow.allowance.is_held_back() {
            return Err(Verdict::Blocked(Side::Source));
        }
        if !flow.allowance.is_over() && !flow.source.may_use(kind.is_socket()) {
            return Err(Verdict::Blocked(Side::Source));
        }
        let mut buffer = self.buffer()?;
        let (start, held) = self.tail;
        buffer.copy_within(start..start + held, 0);
        self.forget();
        self.tail = (0, held);
        // Less than a whole datagram was kept, so there is room.
        let room = buffer.len() / self.slot * self.slot - held;
        let granted = match flow.options.block {
            None => flow.granted(),
            Some(_) => flow.allowance.now(),
        };
        let room = usize::try_from(granted).map_or(room, |left| left.min(room));
        let done = self.take(flow, &mut buffer[held..held + room]);
        self.buffer = Some(buffer);
        let (n, end) = match done {
            Ok(taken) => taken,
            Err(Errno::EINTR) => return Err(flow.was_interrupted(Side::Source)),
            Err(Errno::EAGAIN) => return Err(Verdict::Blocked(Side::Source)),
            // The next packet of a pipe is longer than the rest of the size, and
            // stays (`PacketReader`).
            Err(Errno::EMSGSIZE)
                if room as u64 == flow.allowance.remaining() && flow.read() > 0 =>
            {
                flow.allowance.close();
                (0, false)
            }
            Err(errno) => return Err(Verdict::Failed(Side::Source, errno)),
        };
        self.ended = end;
        let bytes = held + n;
        let exact = flow.options.block.is_some() && !self.ended && !flow.allowance.is_over();
        let goes = if exact {
            bytes / self.slot * self.slot
        } else {
            bytes
        };
        for start in (0..goes).step_by(self.slot) {
            self.queue.push(Message {
                start,
                length: (goes - start).min(self.slot),
                cut: false,
            });
        }
        self.tail = (goes, bytes - goes);
        Ok(())
    }

    /// Reads the bytes that a stream has available; also returns whether the end
    /// was reached.
    fn take(&mut self, flow: &mut Flow<'_>, into: &mut [u8]) -> Result<(usize, bool), Errno> {
        // No more is wanted.
        if into.is_empty() {
            return Ok((0, true));
        }
        let first = stream::read(flow, into, &mut self.packet_reader)?;
        flow.took(first as u64);
        let (more, end) = stream::pages(flow, first, &mut into[first..]);
        Ok((first + more, end))
    }
}

/// Queues the received messages, one by one if the kernel has joined several of
/// one sender (`UDP_GRO`).
fn push_apart(queue: &mut Vec<Message>, start: usize, received: &Received) {
    let length = received.length;
    let segment = received.segment.unwrap_or(length).clamp(1, length.max(1));
    let mut at = 0;
    loop {
        let end = (at + segment).min(length);
        queue.push(Message {
            start: start + at,
            length: end - at,
            cut: received.truncated && end == length,
        });
        at = end;
        if at >= length {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use crate::{Request, Transfer};

    /// The loop that runs the transfer checks the idle limit on this side.
    #[test]
    fn a_signal_while_a_batch_is_received_is_recorded() {
        let ((near, far), (sink, _out)) =
            (UnixDatagram::pair().unwrap(), UnixDatagram::pair().unwrap());
        far.send(b"one").unwrap();
        let request = Request::default();
        let mut transfer = Transfer::new(near.as_fd(), sink.as_fd(), request).unwrap();
        let flow = &mut transfer.flow;
        let mut path = Datagram::start(flow).unwrap();
        let mut verdicts = Vec::new();
        let body = || {
            for _ in 0..2 {
                verdicts.push((path.step(flow), flow.interrupted()));
                flow.clear_interrupted();
            }
        };
        let signal = |count| (count == 0).then_some(libc::EINTR);
        if testkit::midst::refusing(testkit::refuse::RECVMMSG, body, signal).is_none() {
            return testkit::skip::report("fill", "calls of another thread cannot be held");
        }
        let interrupted = (Verdict::Moved(0), Some(Side::Source));
        assert_eq!(verdicts, [interrupted, (Verdict::Moved(3), None)]);
    }

    /// A filter refuses each call; the error of a socket comes once.
    #[test]
    fn an_error_of_the_source_that_looks_like_a_refusal_is_reported() {
        let failed = Verdict::Failed(Side::Source, Errno::EACCES);
        let declined = Verdict::Declined(Errno::EACCES.into());
        for (times, queued, expected) in [
            (1, true, [Verdict::Moved(3), failed.clone()]),
            (1, false, [Verdict::Moved(0), failed]),
            (4, true, [declined.clone(), declined]),
        ] {
            let ((near, far), (sink, _out)) =
                (UnixDatagram::pair().unwrap(), UnixDatagram::pair().unwrap());
            if queued {
                far.send(b"one").unwrap();
            }
            let request = Request::default();
            let mut transfer = Transfer::new(near.as_fd(), sink.as_fd(), request).unwrap();
            let flow = &mut transfer.flow;
            let mut path = Datagram::start(flow).unwrap();
            let mut verdicts = Vec::new();
            let body = || verdicts.extend([path.step(flow), path.step(flow)]);
            let denied = |count| (count < times).then_some(libc::EACCES);
            if testkit::midst::refusing(testkit::refuse::RECVMMSG, body, denied).is_none() {
                return testkit::skip::report("fill", "calls of another thread cannot be held");
            }
            assert_eq!(verdicts, expected, "{times} {queued}");
        }
    }
}
