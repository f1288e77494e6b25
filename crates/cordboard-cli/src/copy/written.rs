//! What one command has made so far, where two of its sources can meet: the
//! first is the one that stays, and nothing is written through a symlink that
//! was a source's.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, Stat};

use super::chain::{Id, id};
use super::just_copied;
use super::place::Place;
use crate::problem::Problem;

/// The files and symlinks that are there because of this command.
#[derive(Debug, Default)]
pub struct Written(Mutex<BTreeSet<Id>>);

impl Written {
    /// Adds one; `false` if it was made before.
    pub fn add(&self, stat: &Stat) -> bool {
        self.lock().insert(id(stat))
    }

    /// Whether it was made before.
    pub fn has(&self, stat: &Stat) -> bool {
        self.lock().contains(&id(stat))
    }

    /// Refuses what has this very name, whatever it points to, if it was made
    /// before.
    pub fn admit(&self, from: &Place<'_>, to: &Place<'_>) -> Result<(), Problem> {
        let there = rustix::fs::statat(to.directory, to.name, AtFlags::SYMLINK_NOFOLLOW);
        match there {
            Ok(stat) if self.has(&stat) => Err(just_copied(from, to)),
            // What else is wrong with it, is told by whoever opens it.
            _ => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Id>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
