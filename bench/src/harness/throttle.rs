//! A device slowed down to a disk of its time.
//!
//! The limits are those of the root group of cgroup version 1's `blkio`: they
//! hold for whoever uses the device, so also for the kernel's writeback, which
//! belongs to no process that could be put in a group. Loop devices only: such
//! a limit on the machine's disk would meet everybody.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::loopfs::LoopFs;

const GROUP: &str = "/sys/fs/cgroup/blkio";
const LIMITS: [&str; 2] = [
    "blkio.throttle.read_bps_device",
    "blkio.throttle.write_bps_device",
];

/// Limits that end when this is dropped.
#[derive(Debug)]
pub struct Throttle {
    number: String,
}

impl Throttle {
    /// Limits reading and writing, each to this many bytes a second.
    ///
    /// # Errors
    ///
    /// Why that is not possible here.
    pub fn new(device: &LoopFs, rate: u64) -> Result<Throttle> {
        let group = Path::new(GROUP);
        ensure!(
            LIMITS.iter().all(|limit| group.join(limit).exists()),
            "no cgroup version 1 with blkio throttling at {GROUP}"
        );
        // Kept from here on, so that a limit that was set is lifted if the
        // other one cannot be.
        let throttle = Throttle {
            number: device.device_number()?,
        };
        throttle.set(rate)?;
        Ok(throttle)
    }

    /// Lifts what a run that was killed has left on this device, if it can
    /// have left anything.
    pub fn lift(device: &LoopFs) {
        if let Ok(number) = device.device_number() {
            drop(Throttle { number });
        }
    }

    /// 0: no limit.
    fn set(&self, rate: u64) -> Result<()> {
        for limit in LIMITS {
            let line = format!("{} {rate}", self.number);
            fs::write(Path::new(GROUP).join(limit), line).context(limit)?;
        }
        Ok(())
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        let _ = self.set(0);
    }
}
