//! Large files, which the engine copies while the threads go on.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cordboard::engine::Options;
use cordboard::{DataPath, Engine, Failure, Report, Running, Transfer};

use super::batch::Batch;
use crate::copy::job::Job;
use crate::copy::one_file::Opened;
use crate::signals::stop;
use crate::stages::Staging;

/// The size from which a file goes to the engine. Below, handing it over costs
/// more than the engine's fairness gains: a worker copies it in one piece.
const LARGE: u64 = 4 << 20;
/// The size for files that are compressed or decompressed, which takes many
/// times as long.
const LARGE_IF_STAGED: u64 = 64 << 10;

/// A file: its batch, and its index there.
pub type FileRef = (Arc<Batch>, usize);

/// A file that the engine copies.
#[derive(Debug)]
pub struct EngineCopy {
    /// The number of this copy.
    pub number: u64,
    /// The file.
    pub at: FileRef,
    /// Its descriptors.
    pub opened: Box<Opened>,
}

/// The copies that are under way on the engine.
#[derive(Debug, Default)]
pub struct EngineCopies {
    /// Made for the first copy; `None`: no engine is available.
    engine: OnceLock<Option<Engine>>,
    running: Mutex<(u64, BTreeMap<u64, Running>)>,
}

impl EngineCopies {
    /// Whether a file goes to the engine.
    pub fn accepts(opened: &Opened, staging: &Staging) -> bool {
        let least = match staging.stages.transform() {
            true => LARGE_IF_STAGED,
            false => LARGE,
        };
        opened.size.is_some_and(|bytes| bytes > least)
    }

    /// Starts a copy, with as many workers as there may be files. Like each
    /// copy of a worker, it follows the schedule and the pauses of the job.
    /// `finished` is called at its end, on a thread that it must not block. A
    /// file that cannot be started is returned.
    pub fn start(
        &self,
        (job, workers): (&Job, usize),
        mut opened: Box<Opened>,
        at: FileRef,
        finished: impl FnOnce(EngineCopy, Report) + Send + 'static,
    ) -> Result<(), (Box<Opened>, FileRef)> {
        let engine = self.engine.get_or_init(|| {
            let options = Options {
                workers,
                ..Options::default()
            };
            Engine::new(options).ok()
        });
        let Some(engine) = engine else {
            return Err((opened, at));
        };
        let started = owning(&opened).and_then(|transfer| {
            // The caller retries without the engine and reports any error.
            let transfer = (job.staging.onto(transfer, opened.extras(), &"", &"")).ok()?;
            engine.start(transfer.control(job.control)).ok()
        });
        let Some(running) = started else {
            return Err((opened, at));
        };
        let mut table = self.lock();
        table.0 += 1;
        let number = table.0;
        let running = table.1.entry(number).or_insert(running);
        // `cancel` may have scanned the table before this insertion.
        if stop().is_some() {
            running.cancel();
        }
        let copy = EngineCopy { number, at, opened };
        running.on_end(move |report| finished(copy, report.clone()));
        Ok(())
    }

    /// Removes a copy that has ended.
    pub fn remove(&self, number: u64) {
        if let Some(running) = self.lock().1.remove(&number) {
            // There is nothing to cancel.
            running.detach();
        }
    }

    /// Cancels all copies.
    pub fn cancel(&self) {
        self.lock().1.values().for_each(Running::cancel);
    }

    /// Returns the number of copies, the bytes that they have written, and the
    /// path of one of them.
    pub fn status(&self) -> (usize, u64, Option<DataPath>) {
        let table = self.lock();
        let looks = || table.1.values().map(Running::status);
        let written = (looks().map(|status| status.written)).fold(0, u64::saturating_add);
        (table.1.len(), written, looks().next().map(|s| s.path))
    }

    /// Whether an engine was made.
    #[cfg(test)]
    pub fn has_engine(&self) -> bool {
        self.engine.get().is_some()
    }

    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Running>)> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A transfer that owns its descriptors; `None` if none are available.
fn owning(opened: &Opened) -> Option<Result<Transfer<'static>, Failure>> {
    let copy = |fd: &OwnedFd| fd.as_fd().try_clone_to_owned().ok();
    let (source, sink) = (copy(&opened.source)?, copy(&opened.sink.fd)?);
    Some(Transfer::owning(source, sink, opened.request.clone()))
}
