//! A transfer that was commanded, and the one that runs.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::cue::limits::Reserved;
use crate::engine::Running;
use crate::request::Size;
use crate::sys::Lock;

/// A transfer that was commanded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    /// Counts the commanded transfers of the control descriptor, from 1.
    pub(super) number: u32,
    /// The connection that has commanded it.
    pub(super) port: u32,
    /// The size that was commanded.
    pub(super) commanded: Size,
    /// The size that the limits permit, after it was admitted.
    pub(super) size: Size,
    pub(super) source_offset: Option<u64>,
    /// `None`: where the transfer before it has ended.
    pub(super) sink_offset: Option<u64>,
    pub(super) block: Option<NonZeroUsize>,
    pub(super) reserved: Reserved,
}

/// A transfer that another thread starts.
#[derive(Default)]
pub(super) struct Starting {
    pub(super) is_cancelled: bool,
    /// It was started, and the thread of the control descriptors has not been told yet.
    pub(super) running: Option<Running>,
}

/// The transfer that runs.
pub(super) struct Active {
    /// `None` while it is being made.
    pub(super) running: Option<Running>,
    pub(super) job: Job,
    /// It writes what an earlier transfer has left over, and the job follows.
    pub(super) is_rest: bool,
    /// What was moved of what was left over, before the part that runs.
    pub(super) before: Moved,
    /// Shared with what starts it.
    pub(super) start: Arc<Lock<Starting>>,
    pub(super) is_cancelled: bool,
}

impl Active {
    pub(super) fn cancel(&mut self) {
        self.is_cancelled = true;
        if let Some(mut start) = self.start.lock() {
            start.is_cancelled = true;
            if let Some(running) = &start.running {
                running.cancel();
            }
        }
        if let Some(running) = &self.running {
            running.cancel();
        }
    }
}

/// What a transfer has moved.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moved {
    /// The number of the transfer; 0 before the first one.
    pub(super) transfer: u32,
    pub(super) read: u64,
    pub(super) written: u64,
    pub(super) elapsed: Duration,
}

impl Moved {
    /// Nothing yet, by the transfer with this number.
    pub(super) fn of(transfer: u32) -> Moved {
        Moved {
            transfer,
            ..Moved::default()
        }
    }
}
