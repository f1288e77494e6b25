//! The limits of commands. No other module decides whether a command is allowed.
//!
//! A schedule is limited by [`Control::limit_schedule`](crate::Control::limit_schedule)
//! instead, which no schedule can exceed.

use std::time::Duration;

use super::protocol::{Command, Limit};
use crate::errno::Errno;
use crate::request::Size;

/// The commands that a limit allows: bit `n` is that of code `n`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mask(u32);

impl Default for Mask {
    fn default() -> Mask {
        Mask(u32::MAX)
    }
}

impl Mask {
    pub(super) fn tighten(&mut self, allowed: u32) {
        self.0 &= allowed;
    }

    fn permits(self, command: Command) -> bool {
        self.0 & command.bit() != 0
    }
}

/// The limits of one control descriptor. Each can only be tightened.
#[derive(Debug, Default)]
pub(super) struct Limits {
    /// Bytes that further transfers may take; `None`: no limit. Negative: a cancelled transfer
    /// has read bytes that are reserved for waiting ones.
    bytes: Option<i128>,
    /// Counts the changes of `bytes`: bytes that a transfer has reserved before a change
    /// are not returned after it.
    changes: u32,
    range: Option<(u64, u64)>,
    /// The mask that the owner has set, which applies to all connections.
    commands: Mask,
    /// No transfer runs after this time.
    until: Option<Duration>,
}

/// Bytes that are reserved for a transfer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reserved {
    bytes: u64,
    /// Bytes that the transfer had read before this reservation. They are not part of
    /// `bytes`, and are not added to the limit if they return to the source.
    before: u64,
    change: u32,
}

impl Limits {
    /// Tightens a limit. Limits of schedules are not stored here.
    pub(super) fn tighten(&mut self, limit: Limit, now: Duration) {
        match limit {
            Limit::Bytes(bytes) => {
                let bytes = i128::from(bytes);
                self.bytes = Some(self.bytes.map_or(bytes, |before| before.min(bytes)));
                self.changes = self.changes.wrapping_add(1);
            }
            Limit::Range { start, end } => {
                let (first, last) = self.range.unwrap_or((0, u64::MAX));
                self.range = Some((start.max(first), end.min(last)));
            }
            Limit::Commands(allowed) => self.commands.tighten(allowed),
            Limit::Time(millis) => {
                let until = now.saturating_add(Duration::from_millis(u64::from(millis)));
                self.until = Some(self.until.map_or(until, |before| before.min(until)));
            }
            Limit::Rate(_) | Limit::Schedule { .. } => {}
        }
    }

    /// Fails with `EPERM` if the command is not allowed on a connection with this mask. A
    /// command that limits is always allowed unless its bit is not set.
    pub(super) fn check(&self, command: Command, mask: Mask, now: Duration) -> Result<(), Errno> {
        let starts = matches!(command, Command::Write(_) | Command::WriteToEnd);
        let is_late = starts && self.is_over(now);
        match self.commands.permits(command) && mask.permits(command) && !is_late {
            true => Ok(()),
            false => Err(Errno::EPERM),
        }
    }

    /// Returns the range of the source that may be read.
    pub(super) fn range(&self) -> Option<(u64, u64)> {
        self.range
    }

    /// Returns the time at which all transfers end.
    pub(super) fn until(&self) -> Option<Duration> {
        self.until
    }

    /// Returns whether the time limit has passed.
    pub(super) fn is_over(&self, now: Duration) -> bool {
        self.until.is_some_and(|until| now >= until)
    }

    /// Reserves the bytes of a transfer that waits. One to the end gets its bytes when its
    /// turn comes: those before it return bytes that they do not read.
    ///
    /// # Errors
    ///
    /// `EPERM`: fewer bytes are left.
    pub(super) fn reserve_early(&mut self, size: Size) -> Result<Reserved, Errno> {
        match size {
            Size::Bytes(_) => Ok(self.reserve(size)?.1),
            Size::Eof => Ok(Reserved::default()),
        }
    }

    /// Reserves the bytes of a transfer, and returns its size. A transfer to the end gets
    /// all bytes that are left.
    ///
    /// # Errors
    ///
    /// `EPERM`: fewer bytes are left, or none for one to the end.
    pub(super) fn reserve(&mut self, size: Size) -> Result<(Size, Reserved), Errno> {
        let Some(left) = &mut self.bytes else {
            return Ok((size, Reserved::default()));
        };
        let most = u64::try_from((*left).max(0)).unwrap_or(u64::MAX);
        let bytes = match size {
            Size::Eof if most == 0 => return Err(Errno::EPERM),
            Size::Eof => most,
            Size::Bytes(bytes) if bytes > most => return Err(Errno::EPERM),
            Size::Bytes(bytes) => bytes,
        };
        *left -= i128::from(bytes);
        let reserved = Reserved {
            bytes,
            before: 0,
            change: self.changes,
        };
        Ok((Size::Bytes(bytes), reserved))
    }

    /// Reserves the bytes that a running transfer of this size has still to read. `None`:
    /// fewer bytes are left. Then the bytes that it reads until it is cancelled count.
    pub(super) fn reserve_rest(&mut self, size: Size, read: u64) -> (Reserved, Option<Size>) {
        let rest = match size {
            Size::Bytes(bytes) => self.reserve(Size::Bytes(bytes.saturating_sub(read))).ok(),
            Size::Eof => None,
        };
        let reserved = Reserved {
            bytes: rest.map_or(0, |(_, rest)| rest.bytes),
            before: read,
            change: self.changes,
        };
        (reserved, rest.map(|(size, _)| size))
    }

    /// Adds back to the limit the bytes that a transfer has reserved and not read, and
    /// subtracts those that it has read and not reserved. `read`: all bytes that it has read,
    /// without those that have returned to the source.
    pub(super) fn release(&mut self, reserved: Reserved, read: u64) {
        if let Some(left) = &mut self.bytes
            && reserved.change == self.changes
        {
            let read = read.saturating_sub(reserved.before);
            *left += i128::from(reserved.bytes) - i128::from(read);
        }
    }

    /// Restricts a transfer that reads from this offset to the range.
    ///
    /// # Errors
    ///
    /// `EPERM`: the transfer would leave the range, or the source has no offsets.
    pub(super) fn within_range(&self, offset: Option<u64>, size: Size) -> Result<Size, Errno> {
        let Some((start, end)) = self.range else {
            return Ok(size);
        };
        let offset = offset.filter(|offset| (start..end).contains(offset));
        let left = end - offset.ok_or(Errno::EPERM)?;
        match size {
            Size::Eof => Ok(Size::Bytes(left)),
            Size::Bytes(bytes) if bytes <= left => Ok(size),
            Size::Bytes(_) => Err(Errno::EPERM),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn limits() -> impl Strategy<Value = Limit> {
        prop_oneof![
            (0..1000u64).prop_map(Limit::Bytes),
            Just(Limit::Bytes(u64::MAX)),
            (0..1000u64, 0..1000u64).prop_map(|(start, end)| Limit::Range { start, end }),
            any::<u32>().prop_map(Limit::Commands),
            (0..1000u32).prop_map(Limit::Time),
        ]
    }

    #[derive(Debug, Clone)]
    enum Act {
        Tighten(Limit),
        /// A transfer is commanded; `None`: to the end.
        Command(Option<u64>),
        /// The first waiting transfer begins.
        Begin,
        /// The last transfer reads.
        Read(u64),
        /// The last transfer ends, and these bytes return to the source.
        End(u64),
    }

    /// A transfer that runs.
    struct Running {
        size: u64,
        reserved: Reserved,
        read: u64,
        /// The bytes that it had read when the last limit was set.
        before: u64,
        is_cancelled: bool,
    }

    impl Running {
        /// Returns the bytes that it may still read.
        fn rest(&self) -> u64 {
            match self.is_cancelled {
                true => 0,
                false => self.size - self.read,
            }
        }
    }

    /// A transfer that waits.
    struct Waiting {
        size: Size,
        reserved: Reserved,
    }

    /// Tightens a limit of bytes as `Stream::tighten` does.
    fn tighten_bytes(
        limits: &mut Limits,
        limit: Limit,
        running: &mut [Running],
        waiting: &mut VecDeque<Waiting>,
    ) {
        for one in &*running {
            limits.release(one.reserved, one.read);
        }
        for one in &*waiting {
            limits.release(one.reserved, 0);
        }
        limits.tighten(limit, Duration::ZERO);
        for one in running {
            let (reserved, rest) = limits.reserve_rest(Size::Bytes(one.size), one.read);
            one.reserved = reserved;
            one.before = one.read;
            one.is_cancelled |= rest.is_none();
        }
        for one in waiting {
            one.reserved = limits.reserve_early(one.size).unwrap_or_default();
        }
    }

    #[test]
    fn a_byte_that_returns_to_the_source_raises_no_later_limit() {
        let mut limits = Limits::default();
        limits.tighten(Limit::Bytes(130), Duration::ZERO);
        let (_, reserved) = limits.reserve(Size::Bytes(1)).unwrap();
        let (size, read, before, is_cancelled) = (1, 1, 0, false);
        let mut running = [Running {
            size,
            reserved,
            read,
            before,
            is_cancelled,
        }];
        let mut waiting = VecDeque::new();
        tighten_bytes(&mut limits, Limit::Bytes(0), &mut running, &mut waiting);
        limits.release(running[0].reserved, 0);
        assert_eq!(limits.bytes, Some(0));
    }

    /// A call of the running transfer is in progress when the limit cancels it.
    #[test]
    fn bytes_of_a_cancelled_transfer_count_before_those_of_waiting_ones() {
        let mut limits = Limits::default();
        let (_, running) = limits.reserve(Size::Eof).unwrap();
        limits.release(running, 0);
        limits.tighten(Limit::Bytes(1000), Duration::ZERO);
        let (running, rest) = limits.reserve_rest(Size::Eof, 0);
        assert_eq!(rest, None);
        let waiting = limits.reserve_early(Size::Bytes(1000)).unwrap();
        limits.release(running, 50);
        limits.release(waiting, 0);
        assert_eq!(limits.reserve(Size::Bytes(951)).unwrap_err(), Errno::EPERM);
        assert_eq!(limits.reserve(Size::Eof).unwrap().0, Size::Bytes(950));
    }

    proptest! {
        /// What is allowed after any sequence of limits and transfers was allowed
        /// before: nothing loosens a limit.
        #[test]
        fn nothing_loosens_a_limit(acts in prop::collection::vec(prop_oneof![
            limits().prop_map(Act::Tighten),
            prop::option::of(0..200u64).prop_map(Act::Command),
            Just(Act::Begin),
            (0..200u64).prop_map(Act::Read),
            (0..200u64).prop_map(Act::End),
        ], 1..60)) {
            let mut limits = Limits::default();
            let mut running = Vec::<Running>::new();
            let mut waiting = VecDeque::<Waiting>::new();
            // The bytes that may be read from now on.
            let mut bytes = u64::MAX;
            let mut range = (0, u64::MAX);
            let (mut commands, mut until) = (u32::MAX, Duration::MAX);
            for act in acts {
                match act {
                    Act::Tighten(limit @ Limit::Bytes(most)) => {
                        bytes = bytes.min(most);
                        tighten_bytes(&mut limits, limit, &mut running, &mut waiting);
                    }
                    Act::Tighten(limit) => {
                        if let Limit::Range { start, end } = limit {
                            range = (range.0.max(start), range.1.min(end));
                        }
                        if let Limit::Commands(mask) = limit {
                            commands &= mask;
                        }
                        if let Limit::Time(millis) = limit {
                            until = until.min(Duration::from_millis(u64::from(millis)));
                        }
                        limits.tighten(limit, Duration::ZERO);
                    }
                    Act::Command(size) => {
                        let size = size.map_or(Size::Eof, Size::Bytes);
                        if let Ok(reserved) = limits.reserve_early(size) {
                            waiting.push_back(Waiting { size, reserved });
                        }
                    }
                    Act::Begin => if let Some(next) = waiting.pop_front() {
                        limits.release(next.reserved, 0);
                        if let Ok((size, reserved)) = limits.reserve(next.size) {
                            // Without a limit, one to the end has no size.
                            let size = match size { Size::Bytes(size) => size, Size::Eof => 200 };
                            let (read, before, is_cancelled) = (0, 0, false);
                            running.push(Running { size, reserved, read, before, is_cancelled });
                        }
                    }
                    Act::Read(most) => if let Some(one) = running.last_mut() {
                        let read = most.min(one.rest());
                        one.read += read;
                        if limits.bytes.is_some() {
                            prop_assert!(read <= bytes);
                            bytes -= read;
                        }
                    },
                    Act::End(back) => if let Some(one) = running.pop() {
                        let back = back.min(one.read);
                        // Bytes that it had read before the limit are not part of it.
                        bytes = bytes.saturating_add(back.min(one.read - one.before));
                        limits.release(one.reserved, one.read - back);
                    },
                }
                let rest: u64 = running.iter().map(Running::rest).sum();
                prop_assert!(rest <= bytes);
                prop_assert!(limits.bytes.is_none_or(|left| left <= i128::from(bytes - rest)));
                prop_assert!(limits.commands.0 & !commands == 0);
                prop_assert!(limits.until.unwrap_or(Duration::MAX) <= until);
                for offset in [0, 10, 500, 999] {
                    if limits.within_range(Some(offset), Size::Bytes(1)).is_ok() {
                        prop_assert!(range.0 <= offset && offset < range.1);
                    }
                }
            }
        }
    }

    #[test]
    fn a_transfer_to_the_end_gets_what_is_left() {
        let mut limits = Limits::default();
        limits.tighten(Limit::Bytes(100), Duration::ZERO);
        assert_eq!(limits.reserve(Size::Bytes(101)).unwrap_err(), Errno::EPERM);
        let (size, reserved) = limits.reserve(Size::Eof).unwrap();
        assert_eq!(size, Size::Bytes(100));
        assert_eq!(limits.reserve(Size::Bytes(1)).unwrap_err(), Errno::EPERM);
        assert_eq!(limits.reserve(Size::Eof).unwrap_err(), Errno::EPERM);
        limits.release(reserved, 40);
        assert_eq!(limits.reserve(Size::Eof).unwrap().0, Size::Bytes(60));
        limits.tighten(Limit::Range { start: 10, end: 20 }, Duration::ZERO);
        assert_eq!(limits.within_range(Some(15), Size::Eof), Ok(Size::Bytes(5)));
        assert!(limits.within_range(Some(20), Size::Bytes(0)).is_err());
        assert!(limits.within_range(None, Size::Eof).is_err());
    }
}
