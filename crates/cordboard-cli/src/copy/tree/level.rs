//! The directories of a walk.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{FileType, Stat};

use super::name_collisions::NameCollisions;
use crate::copy::parallel::Pending;

/// A directory that is being copied.
pub struct Level {
    /// The entries that remain.
    pub entries: std::vec::IntoIter<(CString, FileType)>,
    /// Its names that may be one, if the sink's directory existed
    /// before.
    pub collisions: NameCollisions,
    /// Its status before.
    pub stat: Stat,
    /// The final permissions of the owner, if this command has made it.
    pub owner: Option<u32>,
    /// It could not be opened again, which was reported.
    pub lost: bool,
    pub pending: Pending,
}

/// A directory that the walk has left.
pub struct Left {
    pub source: Arc<OwnedFd>,
    pub sink: Arc<OwnedFd>,
    pub names: [PathBuf; 2],
    pub level: Level,
}
