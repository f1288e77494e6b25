//! Files of one directory that are handed over together.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::ledger::BatchTotals;
use crate::copy::outcome::{Message, Outcome};
use crate::copy::place::Place;

/// The number of files of a full batch: enough that handing over costs little
/// compared with copying, and few enough that each thread soon gets one.
pub const FULL: usize = 32;

/// The batches of one directory that are under way.
#[derive(Debug, Clone, Default)]
pub struct Pending(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    under_way: AtomicUsize,
    is_cut: AtomicBool,
}

impl Pending {
    /// Whether there are none.
    pub fn is_none(&self) -> bool {
        self.0.under_way.load(Ordering::Acquire) == 0
    }

    /// Whether a file of those that have ended was left out, or not completed.
    pub fn is_cut(&self) -> bool {
        self.0.is_cut.load(Ordering::Relaxed)
    }
}

/// A directory on both sides, which stays open while files in it are under way.
#[derive(Debug)]
pub struct Directory {
    /// The source directory.
    pub source: Arc<OwnedFd>,
    /// The sink directory.
    pub sink: Arc<OwnedFd>,
    /// The path of the source, for messages.
    pub from: PathBuf,
    /// The path of the sink, for messages.
    pub to: PathBuf,
    /// This command has made the sink directory.
    pub new: bool,
    /// The batches under way in it.
    pub pending: Pending,
}

/// One file.
#[derive(Debug)]
pub struct Item {
    /// Its name in the directory, or the path of an operand.
    pub name: OsString,
    /// The target of an operand. Other files keep their name.
    pub target: Option<PathBuf>,
    /// See [`Place::beneath`], for the target.
    pub beneath: bool,
    /// See [`Place::collides`].
    pub collides: bool,
}

/// Files that are handed over together.
#[derive(Debug)]
pub struct Batch {
    /// Its place in the order of messages.
    pub number: u64,
    /// Their directory; none for operands.
    directory: Option<Directory>,
    items: Vec<Item>,
    /// Files that have not ended.
    left: AtomicUsize,
    totals: Mutex<BatchTotals>,
}

impl Batch {
    /// A batch with no file started.
    pub fn new(number: u64, directory: Option<Directory>, items: Vec<Item>) -> Batch {
        if let Some(directory) = &directory {
            directory
                .pending
                .0
                .under_way
                .fetch_add(1, Ordering::Relaxed);
        }
        Batch {
            number,
            directory,
            left: AtomicUsize::new(items.len()),
            items,
            totals: Mutex::default(),
        }
    }

    /// The number of files.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether these are operands, whose symlinks are followed.
    pub fn is_top(&self) -> bool {
        self.directory.is_none()
    }

    /// The source and the sink of a file.
    pub fn places(&self, index: usize) -> (Place<'_>, Place<'_>) {
        let Item {
            name,
            target,
            beneath,
            collides,
        } = &self.items[index];
        let name = Path::new(name);
        let target = target.as_deref().unwrap_or(name);
        match &self.directory {
            None if *beneath => (Place::top(name), Place::inside(target)),
            None => (Place::top(name), Place::top(target)),
            Some(at) => (
                Place::below(at.source.as_fd(), &at.from, name),
                (Place::below(at.sink.as_fd(), &at.to, target).in_new(at.new))
                    .with_collision(*collides),
            ),
        }
    }

    /// Ends a file. Returns the totals of the batch with its last file.
    #[must_use]
    pub fn ended(&self, index: usize, outcome: Outcome) -> Option<BatchTotals> {
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        if outcome.messages.iter().any(Message::is_left_out)
            && let Some(directory) = &self.directory
        {
            directory.pending.0.is_cut.store(true, Ordering::Relaxed);
        }
        totals.add(index, outcome);
        if self.left.fetch_sub(1, Ordering::Relaxed) > 1 {
            return None;
        }
        if let Some(directory) = &self.directory {
            directory
                .pending
                .0
                .under_way
                .fetch_sub(1, Ordering::Release);
        }
        Some(std::mem::take(&mut totals))
    }
}
