//! The places of the sources of simultaneous transfers: a disk of a known rate, the disk of
//! this machine, or the page cache.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::together::Sources;
use crate::harness::loopfs::LoopFs;
use crate::harness::throttle::Throttle;
use crate::harness::{Bench, env};

/// Space for the metadata and the log of the file system.
const OVERHEAD: u64 = 320 << 20;

/// A kind of place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A RAM disk, xfs, that is limited to this many bytes a second.
    Throttled(u64),
    /// The same without a limit.
    Ram,
    /// The directory of the bench; the files are not cached.
    Disk,
    /// The directory of the bench; the files are cached.
    Cached,
}

impl Place {
    /// Returns the name in the settings.
    pub fn name(self) -> &'static str {
        match self {
            Place::Throttled(_) => "throttled",
            Place::Ram => "RAM",
            Place::Disk => "disk",
            Place::Cached => "cached",
        }
    }

    /// Sets the place up, with room for this many bytes.
    ///
    /// # Errors
    ///
    /// The reason why that is not possible here.
    pub fn make(self, bench: &Bench, room: u64) -> Result<Made> {
        if matches!(self, Place::Disk | Place::Cached) {
            return Ok(Made {
                place: self,
                directory: bench.directory.path().to_owned(),
                everything: !bench.options.quick,
                _throttle: None,
                _mount: None,
            });
        }
        let mount = LoopFs::make("xfs", room + OVERHEAD)?;
        Throttle::lift(&mount);
        let throttle = match self {
            Place::Throttled(rate) => Some(Throttle::new(&mount, rate)?),
            _ => None,
        };
        Ok(Made {
            place: self,
            directory: mount.path().to_owned(),
            everything: false,
            _throttle: throttle,
            _mount: Some(mount),
        })
    }

    /// Returns a description of the place, for the notes.
    pub fn about(self, directory: &Path) -> String {
        match self {
            Place::Throttled(rate) => {
                format!(
                    "throttled: xfs on a RAM disk at {} MB/s, not cached",
                    rate / 1_000_000
                )
            }
            Place::Ram => "RAM: xfs on a RAM disk, not cached".to_owned(),
            Place::Disk => format!("disk: {}, not cached", env::filesystem(directory)),
            Place::Cached => "cached: from the page cache".to_owned(),
        }
    }
}

/// A place, removed when this is dropped.
#[derive(Debug)]
pub struct Made {
    /// Its kind.
    pub place: Place,
    /// The directory for the sources.
    pub directory: PathBuf,
    /// Empty all caches, not only those of the sources: the disk's own blocks of
    /// metadata are read again.
    everything: bool,
    // In this order: the limit is removed before its device.
    _throttle: Option<Throttle>,
    _mount: Option<LoopFs>,
}

impl Made {
    /// Makes the sources.
    pub fn sources(&self, count: usize, bytes: u64) -> Result<Sources> {
        Sources::make(&self.directory, count, bytes).with_context(|| self.place.name())
    }

    /// Before each run: caches or evicts the sources.
    pub fn prepare(&self, sources: &Sources) -> Result<()> {
        match self.place {
            Place::Cached => sources.cache(),
            Place::Throttled(_) | Place::Ram | Place::Disk => sources.evict(self.everything),
        }
    }
}
