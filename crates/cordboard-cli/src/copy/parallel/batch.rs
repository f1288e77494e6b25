//! Some files of one directory, which are handed over together.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::ledger::Sum;
use crate::copy::outcome::Outcome;
use crate::copy::place::Place;

/// Files of a batch at most: enough that handing over costs nothing beside
/// copying them, and few enough that each thread soon has one.
pub const FULL: usize = 32;

/// How many batches of one directory are under way.
#[derive(Debug, Clone, Default)]
pub struct Pending(Arc<AtomicUsize>);

impl Pending {
    /// None.
    pub fn is_none(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

/// A directory on both sides, open for as long as there is something to do in
/// it.
#[derive(Debug)]
pub struct Directory {
    /// Where files come from.
    pub source: Arc<OwnedFd>,
    /// Where they go.
    pub sink: Arc<OwnedFd>,
    /// Its path, for people.
    pub from: PathBuf,
    /// The sink's.
    pub to: PathBuf,
    /// The sink's was made by this command.
    pub new: bool,
    /// What is under way in it.
    pub pending: Pending,
}

/// One file.
#[derive(Debug)]
pub struct Item {
    /// Its name in the directory; an operand's path.
    pub name: OsString,
    /// Where an operand goes. Others keep their name.
    pub target: Option<PathBuf>,
    /// As of [`Place::beneath`], for the target.
    pub beneath: bool,
    /// As of [`Place::twin`].
    pub collides: bool,
}

/// Some files.
#[derive(Debug)]
pub struct Batch {
    /// Its place in the order of what is told.
    pub number: u64,
    /// Where they are. Operands are anywhere.
    directory: Option<Directory>,
    items: Vec<Item>,
    /// Files that have not ended.
    left: AtomicUsize,
    sum: Mutex<Sum>,
}

impl Batch {
    /// One of which all is to be done yet.
    pub fn new(number: u64, directory: Option<Directory>, items: Vec<Item>) -> Batch {
        if let Some(directory) = &directory {
            directory.pending.0.fetch_add(1, Ordering::Relaxed);
        }
        Batch {
            number,
            directory,
            left: AtomicUsize::new(items.len()),
            items,
            sum: Mutex::default(),
        }
    }

    /// How many files.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// These were named, and symlinks among them mean what they point to.
    pub fn is_top(&self) -> bool {
        self.directory.is_none()
    }

    /// Where a file is, and where it goes.
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

    /// One has ended. With the last, comes what there is to tell of all.
    #[must_use]
    pub fn ended(&self, index: usize, outcome: Outcome) -> Option<Sum> {
        let mut sum = self.sum.lock().unwrap_or_else(PoisonError::into_inner);
        sum.add(index, outcome);
        if self.left.fetch_sub(1, Ordering::Relaxed) > 1 {
            return None;
        }
        if let Some(directory) = &self.directory {
            directory.pending.0.fetch_sub(1, Ordering::Release);
        }
        Some(std::mem::take(&mut sum))
    }
}
