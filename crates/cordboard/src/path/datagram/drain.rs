//! Writes queued datagrams to the sink.

use std::io::IoSlice;

use super::Datagram;
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::path::common::socket;
use crate::path::flow::Flow;
use crate::path::verdict::Verdict;
use crate::sys::{self, Batch};

impl Datagram {
    pub(super) fn flush(&mut self, flow: &mut Flow<'_>) -> Verdict {
        let sink = *flow.sink.facts();
        let covered =
            sink.kind.is_socket() || flow.sink_is_a_pipe_that_waits() && self.nowait.covers();
        if !self.terminal.is_open(flow, covered) {
            return Verdict::Blocked(Side::Sink);
        }
        let Some(buffer) = self.buffer.take() else {
            return Verdict::Ended;
        };
        let whole = self.queue[self.next..]
            .iter()
            .take_while(|message| !message.cut)
            .count();
        let done = if whole == 0 {
            Err(Verdict::Failed(Side::Source, Errno::EMSGSIZE))
        } else if sink.kind.is_datagram() {
            self.send(flow, &buffer, whole)
        } else {
            self.write(flow, &buffer, whole)
        };
        self.buffer = Some(buffer);
        match done {
            Ok(n) => {
                flow.gave(n);
                Verdict::Moved(n)
            }
            Err(verdict) => verdict,
        }
    }

    fn send(&mut self, flow: &mut Flow<'_>, buffer: &[u8], whole: usize) -> Result<u64, Verdict> {
        let length = self.queue[self.next].length - self.sent;
        let sent = flow.send_or_drop(length, |flow| {
            let sent = self.send_batch(flow, buffer, whole);
            sent.map_err(|errno| match errno {
                Errno::EINTR => flow.was_interrupted(Side::Sink),
                Errno::EAGAIN | Errno::ENOBUFS => Verdict::Blocked(Side::Sink),
                errno => Verdict::Failed(Side::Sink, errno),
            })
        })?;
        let Some((messages, last)) = sent else {
            (self.next, self.sent) = (self.next + 1, 0);
            return Ok(0);
        };
        self.advance_by_messages(messages, last)
            .ok_or(Verdict::Failed(Side::Sink, Errno::EIO))
    }

    /// Records that this many messages were sent, and this many bytes of the last one. Returns
    /// the bytes sent; `None` if the sink has accepted nothing of the first message.
    fn advance_by_messages(&mut self, messages: usize, last: usize) -> Option<u64> {
        let at = self.next + messages.checked_sub(1)?;
        let whole: usize = self.queue[self.next..at].iter().map(|m| m.length).sum();
        let (before, rest) = match messages {
            1 => (0, self.queue[at].length - self.sent),
            _ => (whole - self.sent, self.queue[at].length),
        };
        if messages == 1 && last == 0 && rest > 0 {
            return None;
        }
        (self.next, self.sent) = match last < rest {
            true => (at, self.queue[at].length - rest + last),
            false => (at + 1, 0),
        };
        Some((before + last.min(rest)) as u64)
    }

    /// Sends queued datagrams. Returns their number, and how many bytes of the last one were
    /// sent: a socket that counts bytes may accept a part without blocking (`kcm_sendmsg`,
    /// net/kcm/kcmsock.c; `af_alg_sendmsg`, crypto/af_alg.c).
    fn send_batch(
        &mut self,
        flow: &Flow<'_>,
        buffer: &[u8],
        whole: usize,
    ) -> Result<(usize, usize), Errno> {
        let wait = flow.mode.may_sleep() && !flow.sink.facts().nonblocking;
        let first = &self.message(buffer, self.next)[self.sent..];
        let singly = || {
            let sent = flow.write_by(Some(first.len()), || socket::send(flow, first, wait));
            Ok((1, sent?))
        };
        if whole == 1 {
            return singly();
        }
        let queued = self.queue[self.next + 1..self.next + whole].iter();
        let parts = queued.map(|m| &buffer[m.start..m.start + m.length]);
        let parts = std::iter::once(first).chain(parts);
        let batch = self.batch.get_or_insert_with(|| Batch::new(self.slots));
        let flags = socket::sending(flow.sink.facts(), wait);
        let mut last = 0;
        let mut call = || {
            let sent = batch.send(flow.sink.fd(), parts.clone(), flags)?;
            last = sent.1;
            Ok(sent.0)
        };
        match flow.write_by(Some(whole.min(self.slots)), || sys::attempt(&mut call)) {
            // If only batches, or their flag, are refused, single sends work.
            Err(error) if error.refused || error.errno == Errno::EINVAL => singly(),
            sent => Ok((sent?, last)),
        }
    }

    fn write(&mut self, flow: &mut Flow<'_>, buffer: &[u8], whole: usize) -> Result<u64, Verdict> {
        let range = self.next..self.next + whole;
        let mut parts: Vec<IoSlice<'_>> = Vec::with_capacity(whole);
        for index in range {
            let message = self.message(buffer, index);
            let skip = if index == self.next { self.sent } else { 0 };
            if message.len() > skip {
                parts.push(IoSlice::new(&message[skip..]));
            }
        }
        if parts.is_empty() {
            // Empty messages leave no trace in a stream.
            self.next += whole;
            return Ok(0);
        }
        match self.write_stream(flow, &parts) {
            Ok(0) => Err(Verdict::Failed(Side::Sink, Errno::EIO)),
            Ok(n) => {
                self.advance(n);
                flow.sink.cursor.advance(n as u64);
                Ok(n as u64)
            }
            Err(Errno::EINTR) => Err(flow.was_interrupted(Side::Sink)),
            Err(Errno::EAGAIN) => Err(Verdict::Blocked(Side::Sink)),
            Err(errno) => Err(Verdict::Failed(Side::Sink, errno)),
        }
    }

    /// Records that `bytes` of the queue have been written.
    fn advance(&mut self, mut bytes: usize) {
        while let Some(message) = self.queue.get(self.next) {
            let rest = message.length - self.sent;
            if bytes < rest {
                self.sent += bytes;
                return;
            }
            bytes -= rest;
            self.sent = 0;
            self.next += 1;
            if bytes == 0 {
                return;
            }
        }
    }

    /// Writes the parts to a sink that is not a datagram socket.
    fn write_stream(&mut self, flow: &mut Flow<'_>, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let (fd, facts) = (flow.sink.fd(), *flow.sink.facts());
        if facts.kind.is_socket() {
            return (self.sender).send_parts(flow, parts, flow.mode.may_sleep());
        }
        if flow.sink_is_a_pipe_that_waits() {
            return self.nowait.write(fd, parts, facts.is_packet_pipe());
        }
        if facts.writing_waits() && !facts.nonblocking && !flow.mode.may_sleep() {
            let piece = self.terminal.piece(flow, &parts[0]);
            return Ok(rustix::io::write(fd, piece)?);
        }
        Ok(match flow.sink.cursor.place() {
            Some(offset) => sys::pwritev(fd, parts, offset)?,
            None => rustix::io::writev(fd, parts)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    use super::super::Message;
    use super::*;
    use crate::{Request, Transfer};

    #[test]
    fn a_message_that_was_sent_in_part_stays() {
        let (near, _far) = UnixDatagram::pair().unwrap();
        let mut transfer = Transfer::new(near.as_fd(), near.as_fd(), Request::default()).unwrap();
        let mut path = Datagram::start(&mut transfer.flow).unwrap();
        let mut start = 0;
        for length in [5, 0, 7, 0] {
            let cut = false;
            path.queue.push(Message { start, length, cut });
            start += length;
        }
        // Messages sent, bytes of the last one, the bytes that count, and what follows.
        for (messages, last, bytes, next) in [
            (1, 0, None, (0, 0)),
            (1, 2, Some(2), (0, 2)),
            (1, 1, Some(1), (0, 3)),
            (3, 4, Some(6), (2, 4)),
            (2, 0, Some(3), (4, 0)),
        ] {
            assert_eq!(path.advance_by_messages(messages, last), bytes);
            assert_eq!((path.next, path.sent), next);
        }
    }
}
