//! The load of the machine at one moment.

use std::time::Duration;

use crate::sys::load::{Idle, Traffic, idle, traffic};

/// The idle time of the processors and the traffic of the disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::transfer) struct Load {
    pub(super) idle: Option<Idle>,
    /// The traffic of the disks of the source and of the sink. If both are on one disk,
    /// only the first element is present.
    pub(super) disks: [Option<Traffic>; 2],
    /// The numbers of their devices.
    pub(super) devices: [Option<u64>; 2],
    /// Source and sink are on the same disk.
    pub(super) is_one_disk: bool,
}

impl Load {
    /// Reads `/proc/stat` and the statistics of both disks. `None`: none is available.
    pub(in crate::transfer) fn now([source, sink]: [Option<u64>; 2]) -> Option<Load> {
        let is_one_disk = source.is_some() && source == sink;
        let sink = sink.filter(|_| !is_one_disk);
        let load = Load {
            idle: idle(),
            disks: [source.and_then(traffic), sink.and_then(traffic)],
            devices: [source, sink],
            is_one_disk,
        };
        (load.idle.is_some() || load.disks != [None, None]).then_some(load)
    }
}

/// The difference of two loads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    pub(super) elapsed: Duration,
    before: Load,
    after: Load,
}

impl Change {
    pub(super) fn new(elapsed: Duration, before: Load, after: Load) -> Change {
        Change {
            elapsed,
            before,
            after,
        }
    }

    /// Returns the idle time, and the processor time of other work. `spent`: the processor
    /// time of this transfer.
    pub(super) fn processors(&self, spent: Duration) -> Option<(Duration, Duration)> {
        let (before, after) = (self.before.idle?, self.after.idle?);
        let idle = after.time.saturating_sub(before.time);
        let all = self.elapsed * after.processors;
        Some((idle, all.saturating_sub(idle + spent)))
    }

    /// Returns the bytes read, the bytes written and the busy time of a disk. `side`: 0 is
    /// the disk of the source, 1 the disk of the sink. `None` also if the two loads are of
    /// different disks: transfers of several disks can share a schedule.
    pub(super) fn disk(&self, side: usize) -> Option<(u64, u64, Duration)> {
        if self.before.devices != self.after.devices {
            return None;
        }
        let (before, after) = (self.before.disks[side]?, self.after.disks[side]?);
        Some((
            after.read.saturating_sub(before.read),
            after.written.saturating_sub(before.written),
            after.busy.saturating_sub(before.busy),
        ))
    }

    pub(super) fn is_one_disk(&self) -> bool {
        self.after.is_one_disk
    }
}
