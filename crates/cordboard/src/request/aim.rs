//! What an automatic schedule aims at.

use std::num::NonZeroU32;

/// The aim of an automatic schedule, [`Schedule::Auto`](super::Schedule::Auto).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum Aim {
    /// As many bytes a second as both sides permit. The block and the number of blocks
    /// in flight follow from measurements where a path has a choice.
    #[default]
    Throughput,
    /// Use the processors and the disks that other work leaves idle. The transfer takes
    /// fewer bytes as soon as other work waits for a processor or a disk, and more when
    /// there is idle time again.
    Background,
    /// Divide the rate between the transfers of this process that have this aim, in
    /// proportion to their weights.
    Share(NonZeroU32),
}

impl Aim {
    /// Returns the aim to share with this weight; `None` if it is 0.
    pub fn share(weight: u32) -> Option<Aim> {
        NonZeroU32::new(weight).map(Aim::Share)
    }
}
