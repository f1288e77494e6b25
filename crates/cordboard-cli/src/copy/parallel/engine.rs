//! Large files, which the engine copies while everybody goes on.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cordboard::engine::Options;
use cordboard::{DataPath, Engine, Failure, Report, Running, Transfer};

use super::batch::Batch;
use crate::copy::one_file::Opened;
use crate::signals::stop;
use crate::stages::Staging;

/// Bytes that a file must have. Below, handing it over costs more than the
/// engine's fairness gains: it is what a worker copies at one go.
const LARGE: u64 = 4 << 20;
/// The same where they are packed or unpacked, which takes many times as long.
const LABOUR: u64 = 64 << 10;

/// Where a file's bytes are: a batch, and its number there.
pub type FileRef = (Arc<Batch>, usize);

/// A file whose bytes are on their way.
#[derive(Debug)]
pub struct EngineCopy {
    /// Which one it is.
    pub number: u64,
    /// Which file it is.
    pub at: FileRef,
    /// Its descriptors, for what comes afterwards.
    pub opened: Box<Opened>,
}

/// Those that are under way.
#[derive(Debug, Default)]
pub struct EngineCopies {
    /// Made for the first of them; `None`: there is none to be had.
    engine: OnceLock<Option<Engine>>,
    running: Mutex<(u64, BTreeMap<u64, Running>)>,
}

impl EngineCopies {
    /// Whether a file is for the engine.
    pub fn takes(opened: &Opened, staging: &Staging) -> bool {
        let least = match staging.stages.transform() {
            true => LABOUR,
            false => LARGE,
        };
        opened.size.is_some_and(|bytes| bytes > least)
    }

    /// Starts one, on as many threads as there may be files. `landed` is
    /// called at its end, on a thread that it must not keep. A file that
    /// cannot be started comes back.
    pub fn start(
        &self,
        (staging, workers): (&Staging, usize),
        opened: Box<Opened>,
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
        let begun = owning(&opened).and_then(|transfer| {
            // Why not, is told to whom tries again without an engine.
            let transfer = staging.onto(transfer, opened.extras(), &"", &"").ok()?;
            engine.start(transfer).ok()
        });
        let Some(running) = begun else {
            return Err((opened, at));
        };
        let mut table = self.lock();
        table.0 += 1;
        let number = table.0;
        let running = table.1.entry(number).or_insert(running);
        // Who cancels all has looked at the table before this one was in it.
        if stop().is_some() {
            running.cancel();
        }
        let flight = EngineCopy { number, at, opened };
        running.on_end(move |report| finished(flight, report.clone()));
        Ok(())
    }

    /// It has landed.
    pub fn remove(&self, number: u64) {
        if let Some(running) = self.lock().1.remove(&number) {
            // It has ended, and there is nothing to cancel.
            running.detach();
        }
    }

    /// Ends all, soon.
    pub fn cancel(&self) {
        self.lock().1.values().for_each(Running::cancel);
    }

    /// How many are under way, what they have written, and by which path one
    /// of them.
    pub fn look(&self) -> (usize, u64, Option<DataPath>) {
        let table = self.lock();
        let looks = || table.1.values().map(Running::status);
        let written = (looks().map(|status| status.written)).fold(0, u64::saturating_add);
        (table.1.len(), written, looks().next().map(|s| s.path))
    }

    /// There was something for the engine to do.
    #[cfg(test)]
    pub fn has_engine(&self) -> bool {
        self.engine.get().is_some()
    }

    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Running>)> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A transfer of its own descriptors; `None` where none are left.
fn owning(opened: &Opened) -> Option<Result<Transfer<'static>, Failure>> {
    let copy = |fd: &OwnedFd| fd.as_fd().try_clone_to_owned().ok();
    let (source, sink) = (copy(&opened.source)?, copy(&opened.made.fd)?);
    Some(Transfer::owning(source, sink, opened.request.clone()))
}
