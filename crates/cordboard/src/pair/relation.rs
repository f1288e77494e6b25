//! Whether both sides are one file.

use std::os::fd::AsFd;

use crate::endpoint::{Endpoint, Facts};
use crate::sys;

/// How the two sides of a transfer are related.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Relation {
    /// Nothing in common, as far as can be told.
    #[default]
    Strangers,
    /// One file, or one pipe, reached twice.
    SameFile,
    /// One open description: position and flags are shared.
    SameDescription,
}

/// Compares identities; only for files, block devices and pipes, because
/// terminals, sockets and the like have separate directions.
pub(crate) fn relation(source: &Endpoint<'_>, sink: &Endpoint<'_>) -> Relation {
    let (a, b) = (source.facts(), sink.facts());
    let comparable = |facts: &Facts| facts.kind.is_cached() || facts.kind.is_pipe();
    if !comparable(a) || !comparable(b) || a.id.is_none() || a.id != b.id {
        return Relation::Strangers;
    }
    if sys::same_description(source.as_fd(), sink.as_fd()) {
        Relation::SameDescription
    } else {
        Relation::SameFile
    }
}
