//! `--append --verify`: the ranges of the sink that this transfer has written,
//! among those of other processes.
//!
//! With `O_APPEND` a write goes to the end of the file at that time, and moves
//! the descriptor's position behind the written bytes (`generic_write_checks`,
//! fs/read_write.c). No other process uses that position.

use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cordboard::stage::Inspect;
use cordboard::{Report, Stage};

/// The name of the stage, until it is removed from the report.
const NAME: &str = "appended";

/// The ranges that one transfer has written.
#[derive(Debug, Clone)]
pub struct AppendedRanges {
    /// The ranges in the order of the writes; `None`: the position was unknown after a write.
    ranges: Arc<Mutex<Option<Vec<Range<u64>>>>>,
    /// A duplicate of the sink. `None`: no descriptor was available.
    sink: Option<Arc<OwnedFd>>,
}

impl AppendedRanges {
    /// Creates the ranges of a transfer to this sink that has written nothing yet.
    pub fn new(sink: BorrowedFd<'_>) -> AppendedRanges {
        AppendedRanges {
            ranges: Arc::new(Mutex::new(Some(Vec::new()))),
            sink: cordboard::duplicate(sink).ok().map(Arc::new),
        }
    }

    /// The stage that records the ranges. `None`: no descriptor is available.
    pub fn stage(&self) -> Option<Stage> {
        let sink = Arc::clone(self.sink.as_ref()?);
        let appended = self.clone();
        Some(Stage::inspecting(PositionInspector { sink, appended }))
    }

    /// Returns the duplicate of the sink, once the stage is gone. Its close flushes the file,
    /// and may be the only one that gets an error of the file system.
    pub fn into_duplicate(self) -> Option<OwnedFd> {
        Arc::into_inner(self.sink?)
    }

    /// Removes the stage from the report: the user has not requested it.
    pub fn hide(report: &mut Report) {
        report.stages.retain(|stage| stage.stage != NAME);
    }

    /// Returns the ranges of the `written` bytes. If they are unknown, returns
    /// the range behind the bytes that the sink had `before`, which is right if
    /// no other process has written to it.
    pub fn ranges(&self, written: u64, before: u64) -> Vec<Range<u64>> {
        let known = self.lock().clone().unwrap_or_default();
        let all = known.iter().map(|range| range.end - range.start);
        match all.sum::<u64>() == written && written > 0 {
            true => known,
            false => vec![behind(before, written)],
        }
    }

    /// Records a write, and the position after it.
    fn add(&self, written: u64, position: Option<u64>) {
        let mut known = self.lock();
        let place = position.and_then(|end| Some(end.checked_sub(written)?..end));
        let (Some(ranges), Some(place)) = (&mut *known, place) else {
            *known = None;
            return;
        };
        match ranges.last_mut() {
            Some(last) if last.end == place.start => last.end = place.end,
            _ => ranges.push(place),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Range<u64>>>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The range behind the bytes that were there before.
pub fn behind(before: u64, written: u64) -> Range<u64> {
    Range {
        start: before,
        end: before.saturating_add(written),
    }
}

/// Reads the position after each write.
struct PositionInspector {
    sink: Arc<OwnedFd>,
    appended: AppendedRanges,
}

impl Inspect for PositionInspector {
    fn name(&self) -> &'static str {
        NAME
    }

    fn inspect(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            let position = rustix::fs::tell(&*self.sink).ok();
            self.appended.add(bytes.len() as u64, position);
        }
    }

    fn inspect_zeros(&mut self, count: u64) {
        self.appended.add(count, None);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn range(start: u64, end: u64) -> Range<u64> {
        Range { start, end }
    }

    #[test]
    fn ranges_that_meet_are_one_and_an_unknown_place_is_behind_what_was_there() {
        let file = tempfile::tempfile().unwrap();
        let appended = AppendedRanges::new(file.as_fd());
        assert_eq!(appended.ranges(0, 7), [range(7, 7)]);
        for (written, position) in [(10, 17), (5, 22), (5, 30)] {
            appended.add(written, Some(position));
        }
        assert_eq!(appended.ranges(20, 7), [range(7, 22), range(25, 30)]);
        // Not all writes were seen.
        assert_eq!(appended.ranges(21, 7), [range(7, 28)]);
        appended.add(1, None);
        appended.add(1, Some(40));
        assert_eq!(appended.ranges(22, 7), [range(7, 29)]);
    }
}
