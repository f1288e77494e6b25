//! The state of one transfer. No function here reads a clock: the times are those of the
//! status records.

use std::collections::VecDeque;
use std::time::Duration;

use cordboard::cue::{Command, Done, State, Status};
use cordboard::{Ended, Errno, Schedule};

use crate::steering::Commanded;
use crate::units;

/// The maximum number of samples: the columns of the widest graph.
pub const SAMPLES: usize = 64;
/// The time over which the rate is averaged.
const WINDOW: Duration = Duration::from_secs(2);
/// The number of unanswered requests after which a transfer is `silent`.
const PATIENCE: u32 = 4;

/// Identifies a transfer on the screen.
pub type Id = u64;

/// One transfer.
#[derive(Debug)]
pub struct Row {
    pub id: Id,
    /// The names of the source and the sink.
    pub label: String,
    pub pid: Option<u32>,
    pub status: Option<Status>,
    pub end: Option<End>,
    /// Bytes a second between two status records. The last one is the newest.
    pub samples: VecDeque<f64>,
    /// The times and byte counts of the status records of about the last [`WINDOW`].
    recent: VecDeque<(Duration, u64)>,
    unanswered: u32,
    /// Commands whose effect no status record has yet, and the number of records until then.
    commanded: (Commanded, u32),
}

/// The end of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Done,
    Cancelled,
    Failed(Option<Errno>),
    /// The connection was closed without a record of the end.
    Unknown,
}

impl Row {
    pub fn new(id: Id, label: String, pid: Option<u32>) -> Row {
        Row {
            id,
            label,
            pid,
            status: None,
            end: None,
            samples: VecDeque::new(),
            recent: VecDeque::new(),
            unanswered: 0,
            commanded: (Commanded::default(), 0),
        }
    }

    /// Counts a request of the status.
    pub fn asked(&mut self) {
        self.unanswered = self.unanswered.saturating_add(1);
    }

    /// Adds the effect of a command. The status record of this number is the first one after it.
    pub fn sent(&mut self, command: Command, records: u32) {
        let (commanded, left) = &mut self.commanded;
        commanded.add(command);
        *left = records;
        self.status = self.status.map(|status| commanded.applied_to(status));
    }

    /// Stores a status record.
    pub fn update(&mut self, status: Status) {
        self.unanswered = 0;
        self.commanded = match self.commanded {
            (commanded, left @ 2..) => (commanded, left - 1),
            _ => (Commanded::default(), 0),
        };
        let status = self.commanded.0.applied_to(status);
        let before = self.status.replace(status);
        let follows = |before: &Status| {
            before.transfer == status.transfer
                && before.written <= status.written
                && before.elapsed <= status.elapsed
        };
        let Some(before) = before.filter(follows) else {
            // The first record, or the next transfer of the same control descriptor: the rate
            // is the average since the start of the transfer.
            self.samples.clear();
            self.recent = [(Duration::ZERO, 0), (status.elapsed, status.written)].into();
            return;
        };
        let span = status.elapsed.saturating_sub(before.elapsed);
        if span.is_zero() {
            return;
        }
        let moved = status.written - before.written;
        self.recent.push_back((status.elapsed, status.written));
        let from = status.elapsed.saturating_sub(WINDOW);
        while self.recent.len() > 2 && self.recent[0].0 < from {
            self.recent.pop_front();
        }
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(moved as f64 / span.as_secs_f64());
    }

    /// Stores the record of the end.
    pub fn done(&mut self, done: &Done) {
        self.end = Some(match (done.ended, done.errno) {
            (Ended::Error, errno) => End::Failed(errno),
            (Ended::Cancelled, _) => End::Cancelled,
            _ => End::Done,
        });
        if let Some(status) = &mut self.status {
            (status.read, status.written) = (done.read, done.written);
            status.elapsed = done.elapsed;
        }
    }

    /// Records that the connection was closed.
    pub fn closed(&mut self) {
        self.end.get_or_insert(End::Unknown);
    }

    /// Returns the state, as a word.
    pub fn state(&self) -> &'static str {
        match (self.end, &self.status) {
            (Some(End::Done), _) => "done",
            (Some(End::Cancelled), _) => "cancelled",
            (Some(End::Failed(_)), _) => "failed",
            // A control socket closes a connection beyond its maximum number at once.
            (Some(End::Unknown), None) if self.unanswered <= 1 => "refused",
            (Some(End::Unknown), _) => "ended",
            (None, _) if self.is_silent() => "silent",
            (None, None) => "waiting",
            (None, Some(status)) => match status.state {
                State::Paused => "paused",
                State::Running => "running",
                _ => "waiting",
            },
        }
    }

    /// Returns whether the process no longer answers: its rate is unknown.
    pub fn is_silent(&self) -> bool {
        self.end.is_none() && self.unanswered >= PATIENCE
    }

    pub fn is_paused(&self) -> bool {
        self.status
            .is_some_and(|status| self.commanded.0.is_paused(&status))
    }

    /// Returns the rate of the last two seconds in bytes a second; 0 as soon as a pause has taken
    /// effect, and while the process is silent. A weighted average would take several seconds
    /// longer to show a change of the rate.
    pub fn rate(&self) -> f64 {
        let still = self.is_paused() && self.samples.back() == Some(&0.0);
        if still || self.is_silent() || self.end.is_some() {
            return 0.0;
        }
        let (Some(first), Some(last)) = (self.recent.front(), self.recent.back()) else {
            return 0.0;
        };
        let span = last.0.saturating_sub(first.0);
        match span.is_zero() {
            true => 0.0,
            false => (last.1 - first.1) as f64 / span.as_secs_f64(),
        }
    }

    pub fn written(&self) -> u64 {
        self.status.map_or(0, |status| status.written)
    }

    /// Returns the total number of bytes to move, if it is known.
    pub fn total(&self) -> Option<u64> {
        self.status
            .and_then(|status| status.total)
            .filter(|total| *total > 0)
    }

    /// Returns the share of the bytes that are written: `45 %`. Empty if the total is unknown.
    pub fn share(&self) -> String {
        self.total().map_or_else(String::new, |total| {
            format!("{} %", units::share(self.written(), total))
        })
    }

    /// Returns the time left at the present rate, or the time since the start.
    pub fn time(&self) -> String {
        let Some(status) = &self.status else {
            return String::new();
        };
        let left = self.total().map(|total| {
            let left = total.saturating_sub(status.written) as f64 / self.rate();
            Duration::try_from_secs_f64(left.ceil())
        });
        match left {
            Some(Ok(left)) if self.end.is_none() => format!("{} left", units::clock(left)),
            _ => units::clock(status.elapsed),
        }
    }

    /// Returns the bytes moved: `450 MiB of 1.0 GiB`.
    pub fn bytes(&self) -> String {
        let written = units::bytes(self.written());
        match self.total() {
            Some(total) => format!("{written} of {}", units::bytes(total)),
            None => written,
        }
    }

    /// Returns the name of the path. Empty if it is unknown.
    pub fn path(&self) -> String {
        let path = self.status.and_then(|status| status.path);
        path.map_or_else(String::new, |path| path.to_string())
    }

    /// Returns the schedule and its limits in short form: `max 1.0 MiB/s`, `auto background, max
    /// 10 MiB/s`. Empty if there is none.
    pub fn schedule(&self) -> String {
        self.schedules().join(", ")
    }

    /// Returns the schedule and its limits, of which all apply. Of two of one kind, the tighter
    /// one is returned; a limit in the place of the schedule says that it is one.
    pub fn schedules(&self) -> Vec<String> {
        let Some(status) = &self.status else {
            return Vec::new();
        };
        let own = status.schedule;
        let limits = [status.rate_limit, status.blocks_limit];
        let mut shown = Vec::new();
        if !limits.iter().any(|limit| is_as_tight(*limit, own)) {
            shown.extend(words(own));
        }
        let applies = |limit: &Schedule| own == *limit || !is_as_tight(own, *limit);
        for limit in limits.into_iter().filter(applies) {
            let mark = if shown.is_empty() { " limit" } else { "" };
            shown.extend(words(limit).map(|words| words + mark));
        }
        shown
    }

    /// Returns the errno of the failure. Empty if there is none.
    pub fn failure(&self) -> String {
        match self.end {
            Some(End::Failed(Some(errno))) => format!("{errno:?}"),
            _ => String::new(),
        }
    }
}

/// Returns the short form of a schedule, if there is one.
fn words(schedule: Schedule) -> Option<String> {
    match schedule {
        Schedule::Rate(rate) => Some(format!("max {}", units::rate(rate.get() as f64))),
        Schedule::Blocks { count, rest } => Some(format!("{count},{} ms", rest.as_millis())),
        Schedule::Auto(aim) => Some(format!("auto {}", units::aim_name(aim))),
        _ => None,
    }
}

/// Returns whether a schedule permits no more than another one of its kind.
fn is_as_tight(one: Schedule, other: Schedule) -> bool {
    match (one, other) {
        (Schedule::Rate(one), Schedule::Rate(other)) => one <= other,
        (
            Schedule::Blocks { count, rest },
            Schedule::Blocks {
                count: more,
                rest: less,
            },
        ) => count <= more && rest >= less,
        _ => false,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use cordboard::DataPath;

    pub const S: Duration = Duration::from_secs(1);

    /// Returns a status at this second, with this number of bytes.
    pub fn status(second: u32, written: u64) -> Status {
        let mut status = Status::idle();
        status.state = State::Running;
        status.transfer = 1;
        status.path = Some(DataPath::Splice);
        (status.read, status.written) = (written, written);
        status.elapsed = S * second;
        status
    }

    #[test]
    fn samples_are_differences() {
        let mut row = Row::new(1, "a -> b".to_owned(), None);
        assert_eq!((row.state(), row.rate()), ("waiting", 0.0));
        row.update(status(1, 100));
        row.update(status(2, 300));
        row.update(status(2, 300));
        row.update(status(4, 300));
        assert_eq!(row.samples, [200.0, 0.0]);
        assert_eq!(row.state(), "running");
        let mut paused = status(5, 300);
        paused.state = State::Paused;
        row.update(paused);
        assert_eq!((row.state(), row.rate()), ("paused", 0.0));
        let mut next = status(1, 50);
        next.transfer = 2;
        row.update(next);
        assert_eq!(row.samples, [] as [f64; 0]);
        assert_eq!(row.rate(), 50.0);
    }

    /// Two records arrive each second.
    #[test]
    fn the_rate_follows_a_change_within_two_seconds() {
        let mut row = Row::new(1, String::new(), None);
        let mut written = 0;
        let mut pass = |row: &mut Row, halves: std::ops::Range<u32>, rate: u64| {
            for half in halves {
                written += rate / 2;
                let mut status = status(0, written);
                status.elapsed = S * half / 2;
                row.update(status);
            }
        };
        pass(&mut row, 1..40, 1000);
        assert_eq!(row.rate(), 1000.0);
        pass(&mut row, 40..42, 100_000);
        assert_eq!(row.rate(), 50_500.0, "after a second");
        pass(&mut row, 42..44, 100_000);
        assert_eq!(row.rate(), 100_000.0);
        pass(&mut row, 44..48, 0);
        assert_eq!(row.rate(), 0.0);
        // The first record of a transfer that has run for an hour.
        let mut late = Row::new(2, String::new(), None);
        late.update(status(3600, 3_600_000));
        assert_eq!(late.rate(), 1000.0);
        late.update(status(3601, 3_601_000 + 7000));
        assert_eq!(late.rate(), 8000.0);
    }

    #[test]
    fn a_silent_process_and_a_closed_one() {
        let mut row = Row::new(1, String::new(), None);
        row.update(status(1, 1));
        (0..PATIENCE).for_each(|_| row.asked());
        assert_eq!((row.state(), row.rate()), ("silent", 0.0));
        row.update(status(2, 2));
        assert_eq!((row.state(), row.rate()), ("running", 1.0));
        row.closed();
        assert_eq!((row.state(), row.rate()), ("ended", 0.0));
        for (requests, state) in [(1, "refused"), (2, "ended")] {
            let mut row = Row::new(2, String::new(), None);
            (0..requests).for_each(|_| row.asked());
            row.closed();
            assert_eq!(
                row.state(),
                state,
                "after {requests} requests without an answer"
            );
        }
    }

    #[test]
    fn shares_and_times() {
        let mut row = Row::new(1, String::new(), None);
        let with_total = |second, written| {
            let mut status = status(second, written);
            status.total = Some(1000);
            status
        };
        row.update(with_total(1, 100));
        row.update(with_total(2, 200));
        assert_eq!(
            (row.share(), row.time()),
            ("20 %".to_owned(), "0:08 left".to_owned())
        );
        assert_eq!(row.bytes(), "200 bytes of 1000 bytes");
        let mut nearly = status(2, u64::MAX - 1);
        nearly.total = Some(u64::MAX);
        row.update(nearly);
        assert_eq!(row.share(), "99 %");
        row.update(status(3, 300));
        assert_eq!(
            (row.share(), row.time()),
            (String::new(), "0:03".to_owned())
        );
    }

    #[test]
    fn schedules_are_short() {
        let mut row = Row::new(1, String::new(), None);
        for (schedule, text) in [
            (Schedule::Unlimited, ""),
            (Schedule::rate(1 << 20), "max 1.0 MiB/s"),
            (Schedule::blocks(4, Duration::from_millis(70)), "4,70 ms"),
            (
                Schedule::Auto(cordboard::Aim::Background),
                "auto background",
            ),
        ] {
            let mut status = status(1, 1);
            status.schedule = schedule;
            row.update(status);
            assert_eq!(row.schedule(), text);
        }
    }

    /// A schedule without its limits would show more than they permit.
    #[test]
    fn limits_are_shown_if_they_apply() {
        let blocks = |count, ms| Schedule::blocks(count, Duration::from_millis(ms));
        let (none, auto) = (
            Schedule::Unlimited,
            Schedule::Auto(cordboard::Aim::Background),
        );
        let rate = Schedule::rate;
        let mut row = Row::new(1, String::new(), None);
        for (schedule, rate_limit, blocks_limit, text) in [
            (rate(1 << 20), rate(5 << 10), none, "max 5.0 KiB/s limit"),
            (rate(5 << 10), rate(5 << 10), none, "max 5.0 KiB/s limit"),
            (rate(1 << 10), rate(5 << 10), none, "max 1.0 KiB/s"),
            (none, rate(5 << 10), none, "max 5.0 KiB/s limit"),
            (auto, rate(10 << 20), none, "auto background, max 10 MiB/s"),
            (blocks(4, 70), rate(1 << 20), none, "4,70 ms, max 1.0 MiB/s"),
            (none, none, blocks(2, 9), "2,9 ms limit"),
            (blocks(4, 5), none, blocks(2, 9), "2,9 ms limit"),
            (blocks(1, 10), none, blocks(2, 9), "1,10 ms"),
            (blocks(1, 5), none, blocks(2, 9), "1,5 ms, 2,9 ms"),
            (rate(1 << 20), none, blocks(2, 9), "max 1.0 MiB/s, 2,9 ms"),
            (
                auto,
                rate(1 << 20),
                blocks(2, 9),
                "auto background, max 1.0 MiB/s, 2,9 ms",
            ),
        ] {
            let mut status = status(1, 1);
            (status.schedule, status.rate_limit) = (schedule, rate_limit);
            status.blocks_limit = blocks_limit;
            row.update(status);
            assert_eq!(row.schedule(), text);
        }
    }
}
