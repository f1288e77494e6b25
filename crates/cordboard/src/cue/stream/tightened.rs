//! The effect of a new limit on transfers that were commanded before it.

use std::time::Duration;

use super::Stream;
use crate::cue::protocol::Limit;
use crate::request::Size;

impl Stream {
    /// Tightens a limit, and applies it to the transfers that run and wait. One that waits
    /// and is forbidden by then is refused when its turn comes. The one that runs is cancelled
    /// if it could exceed the limit.
    pub(super) fn tighten(&mut self, limit: Limit, now: Duration) {
        let read = self.read_of_job();
        match limit {
            Limit::Bytes(_) => {
                self.release_all(read);
                self.limits.tighten(limit, now);
                self.reserve_again(read);
            }
            Limit::Range { .. } => {
                self.limits.tighten(limit, now);
                self.stay_in_range(read);
            }
            _ => self.limits.tighten(limit, now),
        }
    }

    fn release_all(&mut self, read: u64) {
        if let Some(active) = &self.active {
            self.limits.release(active.job.reserved, read);
        }
        for job in &self.queue {
            self.limits.release(job.reserved, 0);
        }
    }

    fn reserve_again(&mut self, read: u64) {
        if let Some(active) = &mut self.active {
            let (reserved, rest) = self.limits.reserve_rest(active.job.size, read);
            active.job.reserved = reserved;
            if rest.is_none() {
                active.cancel();
            }
        }
        for job in &mut self.queue {
            // One that does not fit now may do so when its turn comes.
            job.reserved = self.limits.reserve_early(job.commanded).unwrap_or_default();
        }
    }

    fn stay_in_range(&mut self, read: u64) {
        if let Some(active) = &mut self.active {
            let offset = active
                .job
                .source_offset
                .map(|offset| offset.saturating_add(read));
            let rest = match active.job.size {
                Size::Bytes(bytes) => Some(Size::Bytes(bytes.saturating_sub(read))),
                Size::Eof => None,
            };
            let stays = match rest {
                // It has read everything, and only writes.
                Some(Size::Bytes(0)) => true,
                Some(rest) => self.limits.within_range(offset, rest) == Ok(rest),
                None => false,
            };
            if !stays {
                active.cancel();
            }
        }
    }

    /// Returns the number of bytes that the running transfer has read so far, without those
    /// that an earlier one has left.
    fn read_of_job(&self) -> u64 {
        let active = self.active.as_ref().filter(|active| !active.is_rest);
        let running = active.and_then(|active| active.running.as_ref());
        running.map_or(0, |running| running.status().read)
    }
}
