//! The directories of a walk.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{FileType, Stat};

use super::case_collisions::CaseCollisions;
use crate::copy::parallel::Pending;

/// A directory that is being copied.
pub struct Level {
    /// What is left of it.
    pub entries: std::vec::IntoIter<(CString, FileType)>,
    /// Of them, if the sink's directory was there before.
    pub collisions: CaseCollisions,
    /// As it was before.
    pub stat: Stat,
    /// What its owner may do in it once it is full, if it was made by us.
    pub owner: Option<u32>,
    /// It was not to be found again, and this was told.
    pub lost: bool,
    pub pending: Pending,
}

/// A directory that was left.
pub struct Left {
    pub source: Arc<OwnedFd>,
    pub sink: Arc<OwnedFd>,
    pub names: [PathBuf; 2],
    pub level: Level,
}
