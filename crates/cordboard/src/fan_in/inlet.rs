//! One source of a running fan-in.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::policy::OnFailure;
use super::records::Records;
use crate::compose::{Channel, Halt, Intake, read_exactly};
use crate::errno::Errno;
use crate::report::Ended;

/// The result of a turn, or of a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gave {
    /// The channel in front of the sink is full: the turn continues when it has room.
    Full,
    /// The turn is over, and the source may have more bytes.
    All,
    /// The source is silent, or has ended.
    Less,
}

/// A private pipe in front of the sink's channel, and the records from it.
pub(super) struct Sorter<'a> {
    own: &'a Channel,
    pub(super) records: Records,
    /// Bytes at the front of `records` that are being written.
    due: usize,
    /// Bytes that remain in the turn.
    left: u64,
    /// Bytes in the private pipe that could not be read.
    unread: u64,
}

impl<'a> Sorter<'a> {
    /// Returns the records and the bytes that are left in the private pipe, in their order, and
    /// whether these are all. `arrived`: bytes that have arrived there since the last read.
    pub(super) fn into_parts(self, arrived: u64) -> (Vec<Vec<u8>>, bool) {
        let unread = self.unread + arrived;
        let rest = match unread {
            0 => Ok(Vec::new()),
            _ => read_exactly(self.own.reader(), unread as usize),
        };
        let is_whole = rest.is_ok();
        let parts = [self.records.into_bytes(), rest.unwrap_or_default()];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        (parts.collect(), is_whole)
    }

    pub(super) fn new(own: &'a Channel, records: Records) -> Sorter<'a> {
        Sorter {
            own,
            records,
            due: 0,
            left: 0,
            unread: 0,
        }
    }
}

/// One source.
pub(super) struct Inlet<'a> {
    pub(super) intake: Intake<'a>,
    pub(super) policy: OnFailure,
    /// `None`: the transfer writes into the sink's channel.
    pub(super) sorter: Option<Sorter<'a>>,
    in_turn: bool,
    has_given: bool,
    pub(super) turns: u64,
    /// The source was stopped early.
    is_stopped: bool,
    /// Bytes after its last delimiter are a record.
    rest_is_record: bool,
    /// The error of a private channel.
    pub(super) broken: Option<Errno>,
    /// The time at which the wait for the source times out.
    pub(super) until: Option<Duration>,
}

impl<'a> Inlet<'a> {
    pub(super) fn new(
        intake: Intake<'a>,
        policy: OnFailure,
        sorter: Option<Sorter<'a>>,
    ) -> Inlet<'a> {
        Inlet {
            intake,
            policy,
            sorter,
            in_turn: false,
            has_given: false,
            turns: 0,
            is_stopped: false,
            rest_is_record: true,
            broken: None,
            until: None,
        }
    }

    /// Begins a turn of `turn` bytes, or continues it. `entered` is called with the
    /// number of bytes that have entered the channel.
    pub(super) fn give(
        &mut self,
        channel: &Channel,
        turn: u64,
        entered: &mut dyn FnMut(u64),
    ) -> Gave {
        let begins = !std::mem::replace(&mut self.in_turn, true);
        let gave = match self.sorter {
            None => self.bytes(begins.then_some(turn), entered),
            Some(_) => self.whole_records(channel.writer(), begins.then_some(turn), entered),
        };
        if gave != Gave::Full {
            self.in_turn = false;
            self.turns += u64::from(std::mem::take(&mut self.has_given));
        }
        gave
    }

    /// Lets the transfer write into the sink's channel.
    fn bytes(&mut self, turn: Option<u64>, entered: &mut dyn FnMut(u64)) -> Gave {
        if let Some(turn) = turn {
            self.intake.grant(turn);
        }
        loop {
            self.intake.advance();
            let arrived = self.intake.arrived();
            entered(arrived);
            self.has_given |= arrived > 0;
            match self.intake.halt() {
                Halt::No => {}
                Halt::Turn | Halt::Yield => return Gave::All,
                Halt::Channel => return Gave::Full,
                Halt::Source | Halt::End => return Gave::Less,
            }
        }
    }

    /// Writes whole records.
    fn whole_records(
        &mut self,
        into: BorrowedFd<'_>,
        turn: Option<u64>,
        entered: &mut dyn FnMut(u64),
    ) -> Gave {
        let Some(sorter) = &mut self.sorter else {
            return Gave::Less;
        };
        sorter.left = turn.unwrap_or(sorter.left);
        loop {
            while sorter.due > 0 {
                match rustix::io::write(into, &sorter.records.bytes()[..sorter.due]) {
                    Ok(n) => {
                        entered(n as u64);
                        sorter.records.written(n);
                        sorter.due -= n;
                        sorter.left = sorter.left.saturating_sub(n as u64);
                        self.has_given = true;
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(rustix::io::Errno::AGAIN) => return Gave::Full,
                    Err(errno) => {
                        self.broken = Some(errno.into());
                        sorter.due = 0;
                    }
                }
            }
            if self.broken.is_some() {
                return Gave::Less;
            }
            if sorter.left == 0 {
                return Gave::All;
            }
            let most = usize::try_from(sorter.left).unwrap_or(usize::MAX);
            let ended = self.intake.has_ended();
            sorter.due = (sorter.records).ready(most, ended && self.rest_is_record);
            if sorter.due > 0 {
                continue;
            }
            if ended {
                return Gave::Less;
            }
            match fetch(&mut self.intake, sorter, &mut self.broken) {
                Fetched::Something => {}
                Fetched::Nothing => return Gave::Less,
                Fetched::Yields => return Gave::All,
            }
        }
    }

    /// Ends the source early. `entered` is as in [`Inlet::give`].
    pub(super) fn stop(&mut self, entered: &mut dyn FnMut(u64)) {
        // The sink may have failed before a call has found the end of the source.
        self.intake.look_for_the_end();
        if !self.intake.has_ended() {
            (self.is_stopped, self.rest_is_record) = (true, false);
            self.intake.stop(Ended::Cancelled);
        }
        self.take_arrived(entered);
    }

    /// Takes nothing more from the source. Bytes that were read still go into the channel.
    /// `rest_is_record`: an incomplete record too. `entered` is as in [`Inlet::give`].
    pub(super) fn close(&mut self, rest_is_record: bool, entered: &mut dyn FnMut(u64)) {
        if self.broken.is_some() {
            return self.stop(entered);
        }
        if !self.intake.has_ended() {
            (self.is_stopped, self.rest_is_record) = (true, rest_is_record);
            self.intake.close();
            self.take_arrived(entered);
        }
    }

    fn take_arrived(&mut self, entered: &mut dyn FnMut(u64)) {
        match &mut self.sorter {
            None => entered(self.intake.arrived()),
            Some(sorter) => {
                collect(&mut self.intake, sorter, &mut self.broken);
            }
        }
    }

    /// Returns whether no more bytes come from the source.
    pub(super) fn is_over(&mut self) -> bool {
        if self.broken.is_some() {
            // A record that has begun is finished.
            return self.sorter.as_ref().is_none_or(|sorter| sorter.due == 0);
        }
        if !self.intake.has_ended() {
            return false;
        }
        let whole = self.rest_is_record;
        let left = self.sorter.as_mut();
        left.is_none_or(|sorter| sorter.due == 0 && sorter.records.ready(1, whole) == 0)
    }

    /// Returns whether the source was stopped before its end.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Returns the errno of a source that has failed.
    pub(super) fn failure(&self) -> Option<Errno> {
        let failed = |ended: &Ended| *ended == Ended::Error;
        let report = self.intake.ending().map(|outcome| &outcome.report);
        let failed = report.filter(|report| failed(&report.ended));
        (self.broken).or(failed.map(|report| report.errno.unwrap_or(Errno::EIO)))
    }
}

/// The result of [`fetch`].
enum Fetched {
    /// Bytes, or the end of the source.
    Something,
    /// The source is silent.
    Nothing,
    /// Others are next.
    Yields,
}

/// Takes steps until the source has given bytes or has ended.
fn fetch(intake: &mut Intake<'_>, sorter: &mut Sorter<'_>, broken: &mut Option<Errno>) -> Fetched {
    loop {
        intake.advance();
        if collect(intake, sorter, broken) || intake.has_ended() {
            return Fetched::Something;
        }
        match intake.halt() {
            Halt::No => {}
            Halt::Yield => return Fetched::Yields,
            _ => return Fetched::Nothing,
        }
    }
}

/// Reads the bytes that have arrived in the private pipe. Returns whether there were any.
fn collect(intake: &mut Intake<'_>, sorter: &mut Sorter<'_>, broken: &mut Option<Errno>) -> bool {
    match intake.arrived() {
        0 => return false,
        arrived => {
            let length = arrived as usize;
            let reserved = sorter.records.reserve(length);
            match reserved.and_then(|()| read_exactly(sorter.own.reader(), length)) {
                Ok(bytes) => sorter.records.push(&bytes),
                // A page that cannot be read (`EIO`), or no memory.
                Err(errno) => {
                    *broken = Some(errno);
                    sorter.unread += arrived;
                }
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::request::{DataPath, Request, Switches};

    /// The source fails while a record of it has entered the channel in part.
    #[test]
    fn a_record_that_has_begun_is_finished_after_a_failure() {
        let (source, mut feed) = std::io::pipe().unwrap();
        // No wait reports that it is ready.
        rustix::io::ioctl_fionbio(&source, true).unwrap();
        let (own, channel) = (Channel::small().unwrap(), Channel::small().unwrap());
        let room = rustix::pipe::fcntl_getpipe_size(channel.writer()).unwrap();
        // A pipe has a buffer for each page.
        let page = crate::sys::page_size();
        let record = [vec![b'r'; 2 * page + 1000], b"\n".to_vec()].concat();
        std::io::Write::write_all(&mut feed, &record).unwrap();
        std::io::Write::write_all(&mut feed, b"next\n").unwrap();
        let full = vec![b'f'; room - page];
        assert_eq!(rustix::io::write(channel.writer(), &full), Ok(full.len()));
        let intake = Intake::new(source.as_fd(), &own, &Request::default(), None).unwrap();
        let sorter = Sorter::new(&own, Records::new(b'\n', 1 << 20));
        let mut inlet = Inlet::new(intake, OnFailure::Detach, Some(sorter));
        let mut count = 0;
        let mut entered = |bytes| count += bytes;
        assert_eq!(inlet.give(&channel, 1, &mut entered), Gave::Full);
        inlet.broken = Some(Errno::ENOMEM);
        assert!(!inlet.is_over());
        let mut drained = vec![0; room];
        let read = |bytes: &mut [u8]| rustix::io::read(channel.reader(), bytes).unwrap();
        assert_eq!(read(&mut drained), full.len() + page);
        assert_eq!(inlet.give(&channel, 1, &mut entered), Gave::Less);
        assert!(inlet.is_over());
        assert_eq!(count, record.len() as u64);
        let n = read(&mut drained);
        assert_eq!(drained[..n], record[page..]);
    }

    /// Another source fails while the transfer holds bytes for which the private pipe had no
    /// room.
    #[test]
    fn whole_records_that_were_read_are_written_after_a_close() {
        const READ: usize = 512 << 10;
        let source = tempfile::tempfile().unwrap();
        let record = [vec![b'r'; 1023], b"\n".to_vec()].concat();
        let all = record.repeat(4 * READ / record.len());
        std::os::unix::fs::FileExt::write_all_at(&source, &all, 0).unwrap();
        let (own, channel) = (Channel::small().unwrap(), Channel::small().unwrap());
        let request = Request {
            block: std::num::NonZeroUsize::new(READ),
            switches: Some(Switches::only(&[DataPath::ReadWrite])),
            ..Request::default()
        };
        let intake = Intake::new(source.as_fd(), &own, &request, None).unwrap();
        let sorter = Sorter::new(&own, Records::new(b'\n', 1 << 20));
        let mut inlet = Inlet::new(intake, OnFailure::End, Some(sorter));
        let mut got = Vec::new();
        let mut drain = || {
            let mut bytes = vec![0; 1 << 20];
            let n = rustix::io::read(channel.reader(), &mut bytes).unwrap_or(0);
            got.extend_from_slice(&bytes[..n]);
        };
        while inlet.intake.read() == 0 {
            inlet.give(&channel, 1, &mut |_| {});
        }
        drain();
        inlet.close(false, &mut |_| {});
        while !inlet.is_over() {
            inlet.give(&channel, 1 << 20, &mut |_| {});
            drain();
        }
        drain();
        assert_eq!((inlet.intake.read(), got.len()), (READ as u64, READ));
        assert!(inlet.is_stopped() && got == all[..READ]);
        let ended = inlet.intake.ending().map(|outcome| outcome.report.ended);
        assert_eq!(ended, Some(Ended::Cancelled));
    }
}
