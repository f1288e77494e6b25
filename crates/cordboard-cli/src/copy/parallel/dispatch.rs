//! The walk's side of the [`Workers`]: handing files over, and reporting their
//! outcomes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use cordboard::{DataPath, Observer, Progress};

use super::batch::{Batch, Directory, FULL, Item};
use super::engine::FileRef;
use super::ledger::Ledger;
use super::limits::SPARE;
use super::workers::{State, Workers, catch_panic};
use crate::copy::abort::affects_all_files;
use crate::copy::job::Job;
use crate::copy::one_file::{CopyObserver, OpenError, OpenMode};
use crate::copy::outcome::{Message, Outcome};
use crate::copy::place::Place;
use crate::problem::Problem;
use crate::session::Session;
use crate::signals::stop;

/// Files that this thread copies before it starts other threads: starting one
/// takes as long as copying a few files.
const FEW: usize = 64;

/// How often the progress of a file is shown that this thread copies. Most
/// files end before the first time.
const EVERY: Duration = Duration::from_millis(20);

/// Hands files over to the workers, and reports their outcomes.
pub struct Dispatch<'s> {
    session: &'s mut Session,
    pool: Arc<Workers>,
    threads: Vec<JoinHandle<()>>,
    /// Threads, with this one, at most.
    slots: usize,
    ledger: Ledger,
    /// The batch that is being filled.
    directory: Option<Directory>,
    items: Vec<Item>,
    /// Batches that are under way.
    under_way: usize,
    files: usize,
    /// Symlinks that were made, and failures of the walk itself.
    others: u64,
    /// There is only one file, whose size is the total.
    only: bool,
    cancelled: bool,
}

impl<'s> Dispatch<'s> {
    /// For so many files at once. `only`: there is only one.
    pub fn new(session: &'s mut Session, job: Job, slots: usize, only: bool) -> Dispatch<'s> {
        Dispatch {
            session,
            pool: Workers::new(job, slots),
            threads: Vec::new(),
            slots,
            ledger: Ledger::default(),
            directory: None,
            items: Vec::new(),
            under_way: 0,
            files: 0,
            others: 0,
            only,
            cancelled: false,
        }
    }

    /// What all files have in common.
    pub fn job(&self) -> &Job {
        &self.pool.job
    }

    /// Adds a file of the current directory of the walk, or an operand.
    pub fn file(&mut self, item: Item, directory: impl FnOnce() -> Option<Directory>) {
        if self.items.is_empty() {
            self.directory = directory();
        }
        self.items.push(item);
        if self.items.len() == FULL || self.pool.slots == 1 {
            self.flush();
        }
    }

    /// Hands over the files added so far, before the walk changes its
    /// directory.
    pub fn flush(&mut self) {
        if self.items.is_empty() {
            return;
        }
        let items = std::mem::take(&mut self.items);
        self.files += items.len();
        let batch = Batch::new(self.ledger.begin(), self.directory.take(), items);
        self.under_way += 1;
        if self.pool.slots == 1 {
            let batch = Arc::new(batch);
            (0..batch.len()).for_each(|index| self.copy_exclusively(&(Arc::clone(&batch), index)));
            self.report();
            return;
        }
        if self.under_way == 1 {
            self.session.begin_several();
        }
        self.pool.push(batch);
        // This thread is one of them. Another starts with each batch, until one
        // cannot be started.
        if self.files > FEW && self.threads.len() + 1 < self.slots {
            match self.pool.thread() {
                Some(thread) => self.threads.push(thread),
                None => self.slots = self.threads.len() + 1,
            }
        }
        let most = SPARE + 2 * self.pool.slots;
        let ahead = self.threads.len();
        self.pump(|under_way, state| {
            under_way <= most && state.waiting() <= ahead && state.postponed.is_empty()
        });
    }

    /// Waits until everything that was handed over has ended.
    pub fn drain(&mut self) {
        self.flush();
        self.pump(|under_way, _| under_way == 0);
    }

    /// Whether anything is under way.
    pub fn is_busy(&self) -> bool {
        self.under_way > 0
    }

    /// Opens something for the walk. If no descriptor is left, closes those
    /// that can be opened again, and then waits until nothing is under way.
    pub fn retry_when_idle<T>(
        &mut self,
        open: impl Fn() -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        use rustix::io::Errno;
        match self.job().spares.retry_without_spares(&open) {
            Err(Errno::MFILE | Errno::NFILE) if self.is_busy() => {
                self.drain();
                open()
            }
            done => done,
        }
    }

    /// Waits until this holds, or nothing is under way.
    pub fn until(&mut self, so: impl Fn() -> bool) {
        self.pump(|under_way, _| under_way == 0 || so());
    }

    /// Reports a problem of the walk itself.
    pub fn problem(&mut self, problem: Problem) {
        let message = self.pool.job.failed(problem);
        self.report_messages(vec![message]);
    }

    /// Makes a symlink, and reports the outcome. `then` follows if it was made.
    pub fn symlink(
        &mut self,
        (from, to): (&Place<'_>, &Place<'_>),
        then: impl FnOnce() -> Result<(), Problem>,
    ) {
        let pool = Arc::clone(&self.pool);
        let mut outcome = Outcome::default();
        let mut release = || {
            let busy = self.is_busy();
            if busy {
                self.drain();
            }
            busy
        };
        let done = pool.job.link(from, to, &mut release, &mut outcome);
        let done = done.and_then(|()| then());
        let made = done.is_ok();
        let failed = done.err().map(|problem| pool.job.failed_at(problem, to));
        outcome.messages.extend(failed);
        // It is one file, whatever the number of its messages.
        let well = self.report_messages(outcome.messages) && made;
        self.session.count(u64::from(well), 0);
        self.others += u64::from(well);
    }

    /// Whether the rest is left out, since nothing more can be written.
    pub fn skips_rest(&mut self) -> bool {
        let over = self.pool.job.is_aborted();
        if over {
            self.session.left_out();
        }
        over
    }

    /// Records that the contents of a directory are left out, if the problem
    /// that prevented its creation affects all files.
    pub fn not_made(&mut self, problem: &Problem) {
        if affects_all_files(problem) {
            self.session.left_out();
        }
    }

    /// Reports messages of the walk. Returns whether none is a failure.
    pub fn report_messages(&mut self, messages: Vec<Message>) -> bool {
        let failed = messages.iter().any(Message::is_failure);
        if !messages.is_empty() {
            self.flush();
            self.session.count(0, u64::from(failed));
            self.others += u64::from(failed);
            self.ledger.add(self.session, messages);
        }
        !failed
    }

    /// Whether a signal to stop has arrived. The caller does no more then.
    /// `more` says whether anything is left out.
    pub fn stopped(&mut self, more: impl FnOnce(&Job) -> bool) -> bool {
        let stopped = self.session.stopped();
        // A tree may have more directories and symlinks than files.
        if !stopped && self.session.is_progress_due() {
            self.report();
            if self.pool.slots == 1 {
                self.session.show_again();
            }
        }
        if stopped && more(&self.pool.job) {
            self.session.left_out();
        }
        stopped
    }

    /// Copies files, reports and waits until enough is done.
    fn pump(&mut self, enough: impl Fn(usize, &State) -> bool) {
        loop {
            self.report();
            let pool = Arc::clone(&self.pool);
            let mut state = pool.lock();
            if !state.done.is_empty() {
                continue;
            }
            if enough(self.under_way, &state) {
                return;
            }
            if let Some(work) = state.next() {
                drop(state);
                pool.work(work, &mut ProgressDisplay::new(self));
            } else if let Some(at) = self.take_postponed(&mut state) {
                drop(state);
                self.copy_exclusively(&at);
                pool.end_exclusive();
            } else {
                pool.sleep(state, self.session.status_interval());
            }
        }
    }

    fn take_postponed(&self, state: &mut State) -> Option<FileRef> {
        if !self.pool.is_idle(state) {
            return None;
        }
        let at = state.first_postponed()?;
        state.begin_exclusive();
        Some(at)
    }

    /// Collects what has ended, and shows the progress of all.
    fn report(&mut self) {
        self.report_with(None);
    }

    /// The same, with what this thread has written of a file, and by which
    /// path.
    fn report_with(&mut self, own: Option<(u64, DataPath)>) {
        let (done, written, files) = {
            let mut state = self.pool.lock();
            (std::mem::take(&mut state.done), state.written, state.files)
        };
        self.session.files_ended(files.saturating_add(self.others));
        for (number, sum) in done {
            self.under_way -= 1;
            self.ledger.end(self.session, number, sum);
        }
        if stop().is_some() && !std::mem::replace(&mut self.cancelled, true) {
            self.pool.engine_copies.cancel();
        }
        if self.pool.job.staging.verify {
            let read_back = self.pool.job.read_back.load(Ordering::Relaxed);
            self.session.set_read_back(read_back);
        }
        if self.pool.slots > 1 {
            let (on_engine, theirs, path) = self.pool.engine_copies.status();
            let (ours, path) = own.map_or((0, path), |(bytes, path)| (bytes, Some(path)));
            let under_way = on_engine + usize::from(own.is_some());
            let all = written.saturating_add(theirs).saturating_add(ours);
            self.session.show(all, path, under_way);
        }
    }

    /// Copies a file here, with nothing else under way.
    fn copy_exclusively(&mut self, at: &FileRef) {
        let mut outcome = Outcome::default();
        let (job, session) = (&self.pool.job, &mut *self.session);
        let only = self.only;
        catch_panic(at, &mut outcome, |outcome| {
            let (from, to) = at.0.places(at.1);
            let top = at.0.is_top();
            if let Some(left) = job.reason_to_skip() {
                outcome.messages.push(left);
                return;
            }
            match job.open((&from, &to), top, OpenMode::Exclusive, outcome) {
                Ok(mut opened) => {
                    let extras = opened.extras();
                    let (source, sink) = opened.ends();
                    let request = opened.request.clone();
                    let total = opened.size.filter(|_| only);
                    let how = (total, extras);
                    let moved = match job.refuse_sync(&opened, (&from, &to)) {
                        Ok(()) => session.run_transfer((source, &from), (sink, &to), request, how),
                        Err(refused) => refused.into_moved(),
                    };
                    let ended = (outcome, &mut ReadBack(session) as &mut dyn CopyObserver);
                    job.settle(opened, (&from, &to), top, moved, ended);
                }
                Err(OpenError::Problem(problem)) => {
                    outcome.messages.push(job.failed_at(problem, &to));
                }
                Err(OpenError::Postponed) => unreachable!("an exclusive open is not postponed"),
            }
        });
        self.pool.end(at, outcome);
    }
}

impl Drop for Dispatch<'_> {
    fn drop(&mut self) {
        self.pool.close();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Shows the progress of all while this thread copies a file.
struct ProgressDisplay<'a, 's> {
    dispatch: &'a mut Dispatch<'s>,
    /// Since the start of the file.
    shown_at: Duration,
}

impl<'a, 's> ProgressDisplay<'a, 's> {
    fn new(dispatch: &'a mut Dispatch<'s>) -> ProgressDisplay<'a, 's> {
        ProgressDisplay {
            dispatch,
            shown_at: Duration::ZERO,
        }
    }
}

impl Observer for ProgressDisplay<'_, '_> {
    fn progress(&mut self, progress: &Progress) {
        let now = progress.elapsed;
        // The next file starts at zero again.
        if now.checked_sub(self.shown_at).unwrap_or(now) >= EVERY {
            self.shown_at = now;
            (self.dispatch).report_with(Some((progress.written, progress.path)));
        }
    }
}

impl CopyObserver for ProgressDisplay<'_, '_> {
    fn read_back(&mut self, _: u64) {
        if self.dispatch.session.is_progress_due() {
            self.dispatch.report();
        }
    }
}

/// Shows how much was read back of the only file under way.
struct ReadBack<'s>(&'s mut Session);

impl Observer for ReadBack<'_> {
    fn progress(&mut self, _: &Progress) {}
}

impl CopyObserver for ReadBack<'_> {
    fn read_back(&mut self, bytes: u64) {
        self.0.set_read_back(bytes);
        if self.0.is_progress_due() {
            self.0.show_again();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::flags::{Common, Stages};

    /// Returns the number of threads started, and whether an engine was made,
    /// for files of these numbers and sizes.
    fn threads_and_engine(files: &[(usize, u64)], only: bool) -> (usize, bool) {
        with(Stages::default(), files, only)
    }

    fn with(stages: Stages, files: &[(usize, u64)], only: bool) -> (usize, bool) {
        let packs = stages.transform();
        let dir = tempfile::tempdir().unwrap();
        let common = Common::silent(stages);
        let mut session = Session::begin(&common, "copied");
        let job = Job {
            staging: session.staging().clone(),
            ..Job::plain(session.control())
        };
        let slots = if only { 1 } else { 3 };
        let mut dispatch = Dispatch::new(&mut session, job, slots, only);
        let mut sum = 0;
        for (number, (count, length)) in files.iter().enumerate() {
            for i in 0..*count {
                let source = dir.path().join(format!("{number}-{i}"));
                let made = std::fs::File::create(&source).unwrap();
                made.set_len(*length).unwrap();
                sum += length;
                let item = Item {
                    target: Some(Path::new(&source).with_extension("to")),
                    name: source.into(),
                    beneath: false,
                    collides: false,
                };
                dispatch.file(item, || None);
            }
        }
        dispatch.drain();
        assert!(packs || dispatch.pool.lock().written == sum);
        (
            dispatch.threads.len(),
            dispatch.pool.engine_copies.has_engine(),
        )
    }

    #[test]
    fn packed_files_go_to_the_engine_sooner() {
        let packs = || Stages {
            zstd: Some(1),
            ..Stages::default()
        };
        assert_eq!(with(packs(), &[(2, 4096)], false), (0, false));
        assert_eq!(with(packs(), &[(2, 1 << 20)], false), (0, true));
        assert_eq!(with(packs(), &[(1, 1 << 20)], true), (0, false));
        assert_eq!(threads_and_engine(&[(2, 1 << 20)], false), (0, false));
    }

    #[test]
    fn an_engine_for_large_files_and_threads_for_many() {
        assert_eq!(threads_and_engine(&[(1, 1)], true), (0, false));
        // A single file is copied by this thread, by any path.
        assert_eq!(threads_and_engine(&[(1, 8 << 20)], true), (0, false));
        assert_eq!(threads_and_engine(&[(FEW, 4096)], false), (0, false));
        assert_eq!(threads_and_engine(&[(2, 8 << 20)], false), (0, true));
        assert_eq!(threads_and_engine(&[(2 * FEW, 4096)], false), (2, false));
        assert_eq!(
            threads_and_engine(&[(2 * FEW, 4096), (2, 8 << 20)], false),
            (2, true)
        );
    }
}
