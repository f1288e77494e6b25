//! The papers' devices, a RAM disk and the disks of 1992, and the disk of this
//! machine.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::harness::loopfs::LoopFs;
use crate::harness::throttle::Throttle;
use crate::harness::{Bench, env};
use crate::paper;

/// Space for the metadata and the log of the file system.
const OVERHEAD: u64 = 320 << 20;

/// A kind of device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// xfs on a loop device with direct I/O over tmpfs, one for each side.
    Ram,
    /// The directory of the bench.
    Disk,
    /// A RAM disk at the rate of the papers' faster disk.
    Rz58,
    /// A RAM disk at the rate of the papers' slower disk.
    Rz56,
}

impl Device {
    /// All devices in the order of the papers' tables, with the machine's disk
    /// second.
    pub const ALL: [Device; 4] = [Device::Ram, Device::Disk, Device::Rz58, Device::Rz56];

    /// The name of the setting, as in the papers.
    pub fn name(self) -> &'static str {
        match self {
            Device::Ram => "RAM",
            Device::Disk => "disk",
            Device::Rz58 => "RZ58",
            Device::Rz56 => "RZ56",
        }
    }

    /// The size of the file: the papers' 8 MB on disks of their speed; larger
    /// on the others, so that a copy takes long enough.
    pub fn size(self, bench: &Bench) -> u64 {
        match self {
            Device::Ram => bench.size(1 << 30, 16 << 20),
            Device::Disk => bench.size(2 << 30, 16 << 20),
            Device::Rz58 | Device::Rz56 => bench.size(paper::FILE, 128 << 10),
        }
    }

    fn rate(self) -> Option<u64> {
        match self {
            Device::Ram | Device::Disk => None,
            Device::Rz58 => Some(paper::RZ58_RATE),
            Device::Rz56 => Some(paper::RZ56_RATE),
        }
    }

    /// Sets the device up.
    ///
    /// # Errors
    ///
    /// The reason why that is not possible here.
    pub fn make(self, bench: &Bench) -> Result<Setup> {
        if self == Device::Disk {
            let directory = bench.directory.path();
            return Ok(Setup {
                source: directory.join("source"),
                sink: directory.join("sink"),
                filesystem: env::filesystem(directory),
                _throttles: Vec::new(),
                _mounts: Vec::new(),
            });
        }
        let room = self.size(bench) + OVERHEAD;
        // As in the papers, from one device to another.
        let mounts = vec![LoopFs::make("xfs", room)?, LoopFs::make("xfs", room)?];
        let mut throttles = Vec::new();
        for mount in &mounts {
            Throttle::lift(mount);
            if let Some(rate) = self.rate() {
                throttles.push(Throttle::new(mount, rate)?);
            }
        }
        Ok(Setup {
            source: mounts[0].path().join("source"),
            sink: mounts[1].path().join("sink"),
            filesystem: "xfs".to_owned(),
            _throttles: throttles,
            _mounts: mounts,
        })
    }
}

/// A device, removed when this is dropped.
#[derive(Debug)]
pub struct Setup {
    /// The file to copy.
    pub source: PathBuf,
    /// Its copy.
    pub sink: PathBuf,
    /// The file system.
    pub filesystem: String,
    // In this order: a limit is removed before its device.
    _throttles: Vec<Throttle>,
    _mounts: Vec<LoopFs>,
}

impl Setup {
    /// The directory of the copy.
    pub fn sink_directory(&self) -> &Path {
        self.sink.parent().unwrap_or(Path::new("/"))
    }
}
