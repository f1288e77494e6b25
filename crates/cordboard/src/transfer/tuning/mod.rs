//! Measures the paths and the sizes of their calls during a long transfer, and uses the
//! fastest: [`Tune`](crate::Tune).

mod arrivals;
mod first_sample;
#[cfg(test)]
mod first_sample_tests;
#[cfg(test)]
mod goal_tests;
#[cfg(test)]
mod result_tests;
#[cfg(test)]
mod tests;
mod ways;
#[cfg(test)]
mod window_tests;

use std::time::Duration;

use crate::endpoint::Kind;
use crate::path;
use crate::plan::slower_calls_cost;
use crate::report::{BestSetting, Chosen, PathUse};
use crate::request::{Aim, DataPath, Schedule, Switches, Tune};
use crate::sys::{monotonic, tcp_progress, thread_time};
use crate::transfer::Transfer;
use crate::transfer::control::Control;
use crate::transfer::wait::Clock;
use crate::tune::{Arms, Controller, Found, Goal, Key, Search};
use arrivals::Arrivals;
pub(super) use first_sample::FirstSample;
pub(super) use ways::Tuning;
use ways::{FEW_WAKE_UPS, OTHER_BUFFERS, PAUSE, PIECES, TCP_BUFFERS, Ways};

/// The number of bytes after which a transfer begins to measure.
pub(super) const LONG: u64 = 8 << 20;

impl Transfer<'_> {
    /// Records that a step has moved bytes.
    pub(super) fn tune(&mut self, clock: &mut dyn Clock) {
        if !self.tunes {
            return;
        }
        if self.tuning.is_none() {
            let each_step = self.request.tune == Some(Tune::EachStep);
            if self.flow.written() < LONG && !each_step {
                self.follow_first(clock);
                return;
            }
            let now = clock.now();
            self.tuning = self.start_tuning(now).map(Box::new);
            self.suspect_first(now);
            self.tunes = self.tuning.is_some();
            return;
        }
        self.measure(clock.now());
    }

    /// Follows the rate and the processor time of the first path, if it wakes the reader of a socket.
    fn follow_first(&mut self, clock: &mut dyn Clock) {
        let is_socket = matches!(self.flow.sink.kind(), Kind::Tcp | Kind::UnixStream);
        if !is_socket || self.recalled.is_some() || self.flow.allowance.is_paced() {
            return;
        }
        let is_valid = match &mut self.first_sample {
            Some(first) => first.stepped(clock.now()),
            None => false,
        };
        if !is_valid {
            let is_alone = !self.flow.mode.shares_thread();
            let of_thread = || is_alone.then(thread_time);
            let first = FirstSample::begin(clock.now(), self.flow.written(), of_thread);
            self.first_sample = first.map(Box::new);
        }
    }

    /// Measures large calls of read/write at once, if the first setting spends its processor time on
    /// wake-ups.
    fn suspect_first(&mut self, now: Duration) {
        let first = self.first_sample.take();
        let (Some(mut first), Some(tuning)) = (first, &mut self.tuning) else {
            return;
        };
        // The search of an earlier transfer knows more.
        let is_known = tuning.controller.has_measured();
        if is_known || !first.stepped(now) || self.flow.allowance.is_paced() {
            return;
        }
        let Some(sample) = first.end(now, self.flow.written(), thread_time) else {
            return;
        };
        let arm = tuning.ways.arm(DataPath::ReadWrite, FEW_WAKE_UPS);
        let current = tuning.controller.current();
        if let Some(arm) = arm.filter(|arm| *arm != current && tuning.ways.is_possible(*arm)) {
            tuning.controller.suspect(&tuning.ways, arm, sample);
        }
    }

    pub(super) fn start_tuning(&self, now: Duration) -> Option<Tuning> {
        let (current, step) = self.current.as_ref()?;
        if self.flow.stages.look() {
            return None;
        }
        let key = self.key();
        // The current path, and the later ones of the route.
        let here = self.route.choices[self.next - 1..].iter();
        let mut paths: Vec<DataPath> = (here.map(|choice| choice.path))
            .filter(|path| key.paths.allows(*path))
            .collect();
        let is_same = |before: &Search| {
            before.paths.len() == paths.len()
                && paths.iter().all(|path| before.paths.contains(path))
        };
        let before = Search::recall(&key, now).filter(|(before, _)| is_same(before));
        if let Some((before, _)) = &before {
            paths.clone_from(&before.paths);
        }
        let paths = paths.into_iter().map(|path| (path, true)).collect();
        let ways = Ways {
            paths,
            // Smaller pieces are slower.
            only_largest: slower_calls_cost(self.flow.source.kind(), &self.request),
            backlog: match key.kinds.contains(&Kind::Tcp) {
                true => TCP_BUFFERS,
                false => OTHER_BUFFERS,
            },
        };
        let here = ways.arm(*current, Ways::piece_of(step.piece()?))?;
        let known = Found::recall(&key, now);
        let known = known.and_then(|found| ways.arm(found.path, found.piece));
        let start = known.unwrap_or(here);
        let (controller, compared) = match before {
            Some((before, then)) => (before.controller.continued(&ways), then),
            None => (Controller::new(&ways, start, key.goal), now),
        };
        let source = &self.flow.source;
        let size = source.facts().size.filter(|_| source.kind().is_file());
        let left = size.map(|size| size.saturating_sub(source.offset().unwrap_or(0)));
        let left = (left.unwrap_or(u64::MAX)).min(self.flow.allowance.remaining());
        let best = controller.best();
        let after = match self.tuning.is_none() && best == here {
            true => 0,
            false => self.flow.written(),
        };
        Some(Tuning {
            controller,
            best: (best, after),
            compared,
            ends_at: self.flow.written().saturating_add(left),
            ways,
            key,
            last: (now, self.flow.written()),
            spent: Duration::ZERO,
            arrivals: (self.flow.sink.kind() == Kind::Tcp)
                .then(|| Arrivals::from(self.flow.written())),
            changes: true,
        })
    }

    /// Begins with the path and the size of calls that an earlier transfer has found.
    pub(super) fn recall(&mut self) {
        let is_random = self.request.tune == Some(Tune::EachStep);
        if !self.tunes || is_random || self.flow.stages.look() || self.recalled.is_some() {
            return;
        }
        let Some(found) = Found::recall(&self.key(), monotonic()) else {
            return;
        };
        let choices = &mut self.route.choices;
        let Some(index) = choices.iter().position(|choice| choice.path == found.path) else {
            return;
        };
        // Each path can carry the whole stream, so their order is free.
        let choice = choices.remove(index);
        choices.insert(0, choice);
        self.recalled = Some(found);
    }

    pub(super) fn key(&self) -> Key {
        let source = &self.flow.source;
        let choices = self.route.choices.iter().map(|choice| choice.path);
        let possible = choices.filter(|path| {
            let row = path::row(*path);
            row.tunes && !(row.could_wait)(&self.flow)
        });
        Key {
            kinds: [source.kind(), self.flow.sink.kind()],
            paths: possible.fold(Switches::only(&[]), Switches::with),
            device: (source.facts().id.filter(|_| source.kind().is_cached())).map(|id| id.device),
            goal: self.goal(),
        }
    }

    pub(super) fn goal(&self) -> Goal {
        // Only a schedule that is metered can be the one for the background.
        let metered = self.control.as_ref().filter(|control| control.is_metered());
        match metered.map(Control::schedule) {
            _ if self.request.tune == Some(Tune::Processor) => Goal::Time,
            Some(Schedule::Auto(Aim::Background)) => Goal::Time,
            _ => Goal::Rate,
        }
    }

    pub(super) fn measure(&mut self, now: Duration) {
        let goal = self.goal();
        let written = self.flow.written();
        let shares_thread = self.flow.mode.shares_thread();
        let is_paced = self.flow.allowance.is_paced();
        let (Some(tuning), Some((current, _))) = (&mut self.tuning, &self.current) else {
            return;
        };
        let (before, written_before) = std::mem::replace(&mut tuning.last, (now, written));
        if tuning.changes {
            return;
        }
        if self.request.tune == Some(Tune::EachStep) {
            tuning.controller.change_at_random(&tuning.ways);
            tuning.changes = true;
            return;
        }
        let arm = tuning.controller.current();
        if tuning.ways.path(arm) != *current {
            // The path of this arm has declined since it was chosen.
            tuning.ways.refuse(tuning.ways.path(arm));
            tuning.controller.refuse_current(&tuning.ways);
            tuning.note_best(written);
            tuning.changes = true;
            return;
        }
        if tuning.key.goal != goal {
            // A command has changed the schedule. Earlier transfers may have measured for the new
            // goal, and later ones continue the search for the former.
            self.remember_search();
            self.tuning = self.start_tuning(now).map(Box::new);
            self.tunes = self.tuning.is_some();
            return;
        }
        // Under a schedule the rate does not depend on the path, but the processor time does.
        let is_limited = is_paced && tuning.key.goal == Goal::Rate;
        if is_limited || now.saturating_sub(before) > PAUSE {
            tuning.changes = tuning.controller.interrupt(&tuning.ways);
            if let Some(arrivals) = &mut tuning.arrivals {
                arrivals.skip_to(written);
            }
            return;
        }
        // The thread of an engine also runs other transfers.
        let of_steps = tuning.spent;
        let mut spent = || match shares_thread {
            true => of_steps,
            false => thread_time(),
        };
        let bytes = match &mut tuning.arrivals {
            None => written.saturating_sub(written_before),
            Some(arrivals) => {
                let query = || tcp_progress(self.flow.sink.fd());
                let Some(bytes) = arrivals.until(written, query) else {
                    return;
                };
                tuning.ways.backlog = arrivals.backlog().unwrap_or(TCP_BUFFERS);
                bytes
            }
        };
        let left = tuning.ends_at.saturating_sub(written);
        let before = tuning.controller.comparisons();
        tuning.changes = (tuning.controller).learn(&tuning.ways, now, &mut spent, bytes, left);
        if tuning.controller.comparisons() > before {
            tuning.compared = now;
        }
        tuning.note_best(written);
    }

    /// Returns the bytes of each path used, and the settings that were found.
    pub(super) fn by_path(&mut self) -> Vec<PathUse> {
        let read = self.flow.read();
        if let Some(found) = self.recalled
            && let Some(piece) = self.recalled_piece(found.path)
        {
            self.used.has_begun_with(found.path, piece, read);
        }
        self.note_setting();
        if let Some(tuning) = &self.tuning
            && self.request.tune != Some(Tune::EachStep)
        {
            if tuning.controller.has_measured() {
                let (arm, after) = tuning.best;
                let best = BestSetting {
                    piece: PIECES[Ways::piece(arm)],
                    depth: None,
                    after,
                };
                self.used.found_best(tuning.ways.path(arm), best, read);
            }
            self.remember_search();
        }
        self.used.take(read)
    }

    /// Records the best setting of a path that measures its own.
    pub(super) fn note_setting(&mut self) {
        if let Some((path, step)) = &self.current
            && let Some(best) = step.best()
        {
            self.used.found_best(*path, best, self.flow.read());
        }
    }

    /// Returns the size of the calls with which this path begins, because an earlier transfer has
    /// found it.
    pub(super) fn recalled_piece(&self, path: DataPath) -> Option<usize> {
        let found = self.recalled.filter(|found| found.path == path)?;
        let piece = PIECES[found.piece];
        // A path has sized its calls for a shorter source.
        let size = self.flow.source.facts().size.filter(|size| *size > 0);
        size.is_none_or(|size| size >= piece as u64)
            .then_some(piece)
    }

    /// Stores what was measured for later transfers.
    fn remember_search(&self) {
        let Some(tuning) = &self.tuning else {
            return;
        };
        let best = tuning.controller.best();
        let (path, piece) = (tuning.ways.path(best), Ways::piece(best));
        let (key, then) = (tuning.key, tuning.compared);
        let possible = tuning.ways.paths.iter().filter(|(_, possible)| *possible);
        let paths: Vec<DataPath> = possible.map(|(path, _)| *path).collect();
        // A path may have declined for a reason of these descriptors.
        if Switches::only(&paths) == key.paths {
            if tuning.controller.has_result(&tuning.ways) {
                Found { path, piece }.remember(key, then);
            }
            let controller = tuning.controller.continued(&tuning.ways);
            Search { paths, controller }.remember(key, then);
        }
    }

    /// Returns whether the current path takes no more bytes, because a change is due.
    pub(super) fn drains(&self) -> bool {
        let changes = self.tuning.as_ref().is_some_and(|tuning| tuning.changes);
        changes && self.current.is_some()
    }

    /// Changes to the path and the piece that the controller has chosen, if a change is due
    /// and the current path holds no bytes.
    pub(super) fn change_way(&mut self) {
        if !self.drains() || self.holds() || self.pending() != (0, 0) {
            return;
        }
        let Some(mut tuning) = self.tuning.take() else {
            return;
        };
        while tuning.changes {
            let arm = tuning.controller.current();
            let path = tuning.ways.path(arm);
            tuning.changes = false;
            if !self.enter(path) {
                tuning.ways.refuse(path);
                tuning.controller.refuse_current(&tuning.ways);
                tuning.note_best(self.flow.written());
                tuning.changes = tuning.controller.current() != arm;
            } else if let Some((_, step)) = &mut self.current {
                step.set_piece(PIECES[Ways::piece(arm)]);
            }
        }
        self.tuning = Some(tuning);
    }

    /// Makes a later path of the route the current one. The former one is then the next path
    /// of the route. Returns `false` if the path cannot start.
    fn enter(&mut self, path: DataPath) -> bool {
        let Some((current, _)) = &self.current else {
            return false;
        };
        if *current == path {
            return true;
        }
        let later = self.route.choices[self.next..].iter();
        let Some(index) = later.clone().position(|choice| choice.path == path) else {
            return false;
        };
        self.flow.set_has_next(true);
        let Ok(step) = (path::row(path).start)(&mut self.flow) else {
            self.flow.set_has_next(self.next < self.route.choices.len());
            return false;
        };
        if let Some((_, mut former)) = self.current.replace((path, step)) {
            former.finish(&mut self.flow);
        }
        self.used.enter(Chosen::Measured);
        self.flow.release_claims();
        let choice = self.route.choices.remove(self.next + index);
        self.route.choices.insert(self.next - 1, choice);
        true
    }
}
