//! The owner of a file.

use rustix::fs::{Gid, Stat, Uid};

/// Owner and group of a file.
pub fn owner(stat: &Stat) -> (Option<Uid>, Option<Gid>) {
    (
        Some(Uid::from_raw(stat.st_uid)),
        Some(Gid::from_raw(stat.st_gid)),
    )
}
