//! Limits the rate of a device to that of a disk of 1992.
//!
//! The limits are those of the root group of the `blkio` controller of cgroup
//! version 1. They apply to all I/O of the device, including the kernel's
//! writeback, which belongs to no process in a group. Loop devices only: a
//! limit on the machine's disk would affect all processes.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::loopfs::LoopFs;

const GROUP: &str = "/sys/fs/cgroup/blkio";
const LIMITS: [&str; 2] = [
    "blkio.throttle.read_bps_device",
    "blkio.throttle.write_bps_device",
];

/// The limits of a device, removed when this is dropped.
#[derive(Debug)]
pub struct Throttle {
    number: String,
}

impl Throttle {
    /// Limits reading and writing, each to this many bytes per second.
    ///
    /// # Errors
    ///
    /// The reason why that is not possible here.
    pub fn new(device: &LoopFs, rate: u64) -> Result<Throttle> {
        let group = Path::new(GROUP);
        ensure!(
            LIMITS.iter().all(|limit| group.join(limit).exists()),
            "no blkio controller of cgroup version 1 at {GROUP}"
        );
        // Made first: if the second limit cannot be set, dropping this removes
        // the first.
        let throttle = Throttle {
            number: device.device_number()?,
        };
        throttle.set(rate)?;
        Ok(throttle)
    }

    /// Removes limits that a killed run may have left on this device.
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
