//! What this command has made so far. A second source for the same sink would
//! replace the first, whose contents would be lost: the first stays, and
//! nothing is written through a symlink that was copied from a source.
//!
//! Two sinks are one file if the file has several names, if a symlink leads to
//! it, or if mounts show it twice. In a tree no symlink is followed, so only
//! files with several names are remembered; they are few. If mounts show a part
//! of the target twice, all files are remembered.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cordboard::Side;
use rustix::fs::{FileType, Stat};

use crate::copy::place::Place;
use crate::copy::refusals::just_copied;
use crate::files::if_exists;
use crate::files::kind;
use crate::files::{Id, id};
use crate::problem::Action;
use crate::problem::Problem;

/// The hint for two names that are one file there.
pub const ONE_NAME: &str =
    "the destination treats two names of the source as one: rename one of them";

/// The files and symlinks that this command has made.
#[derive(Debug, Default)]
pub struct Written {
    /// Several sources may have the same target: all files are remembered.
    several: AtomicBool,
    made: Mutex<BTreeSet<Id>>,
}

impl Written {
    /// An empty set, of a command with several sources, or with one.
    pub fn new(several: bool) -> Written {
        Written {
            several: several.into(),
            made: Mutex::default(),
        }
    }

    /// Remembers all files from here on: mounts may show some of them twice.
    pub fn remember_all(&self) {
        self.several.store(true, Ordering::Relaxed);
    }

    fn several(&self) -> bool {
        self.several.load(Ordering::Relaxed)
    }

    /// Whether a new file of this name is to be [added](Written::add).
    pub fn has_new(&self, to: &Place<'_>) -> bool {
        self.several() || to.collides
    }

    /// Adds a new file.
    pub fn add(&self, stat: &Stat) {
        self.lock().insert(id(stat));
    }

    /// Whether this command has made it.
    pub fn has(&self, stat: &Stat) -> bool {
        self.lock().contains(&id(stat))
    }

    /// Adds an existing file. Refuses it if this command has made it.
    pub fn replace(&self, from: &Place<'_>, to: &Place<'_>, stat: &Stat) -> Result<(), Problem> {
        let names = stat.st_nlink > 1;
        if (self.has_new(to) || names) && !self.lock().insert(id(stat)) {
            let help = "another sink is the same file (a hard link): remove this name first";
            return Err(match (names, to.collides) {
                (true, _) => just_copied(from, to).help(help),
                (false, true) => just_copied(from, to).help(ONE_NAME),
                (false, false) => just_copied(from, to),
            });
        }
        Ok(())
    }

    /// Refuses a name that this command has made, whatever it points to.
    /// Returns whether it is a symlink, if there are several sources.
    pub fn check(&self, from: &Place<'_>, to: &Place<'_>) -> Result<bool, Problem> {
        if !self.several() {
            return Ok(false);
        }
        let found = if_exists(to.stat())
            .map_err(|errno| Problem::call(to.shown(), Side::Sink, errno, Action::Open))?;
        match found {
            Some(stat) if self.has(&stat) => Err(just_copied(from, to)),
            found => Ok(found.is_some_and(|stat| kind(&stat) == FileType::Symlink)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Id>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
