//! Whether both sides are the same file.

use std::os::fd::AsFd;

use crate::endpoint::{Endpoint, Facts};
use crate::sys;

/// How the two sides of a transfer are related.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Relation {
    /// Different files, as far as is known.
    #[default]
    Strangers,
    /// The same file or pipe, open through two open file descriptions.
    SameFile,
    /// The same open file description: position and flags are shared. Also if the kernel
    /// cannot compare the two, and both can be read and written, at one position.
    SameDescription,
}

/// Compares the identities of files, block devices and pipes. The directions of
/// other objects, such as terminals and sockets, are independent.
pub(crate) fn relation(source: &Endpoint<'_>, sink: &Endpoint<'_>) -> Relation {
    let (a, b) = (source.facts(), sink.facts());
    let comparable = |facts: &Facts| facts.kind.is_cached() || facts.kind.is_pipe();
    if !comparable(a) || !comparable(b) || a.id.is_none() || a.id != b.id {
        return Relation::Strangers;
    }
    // A description has one mode and one position.
    let may_be_one = || {
        let both = |facts: &Facts| facts.readable && facts.writable;
        both(a) && both(b) && a.position == b.position
    };
    match sys::same_description(source.as_fd(), sink.as_fd()).unwrap_or_else(may_be_one) {
        true => Relation::SameDescription,
        false => Relation::SameFile,
    }
}

/// Returns whether two sinks, or two sources, are the same file, device, pipe or stream socket.
/// Two transfers would mix or divide its bytes.
pub(crate) fn is_same(one: &Endpoint<'_>, other: &Endpoint<'_>) -> bool {
    let (a, b) = (one.facts(), other.facts());
    let is_stream = a.kind.is_stream_socket() && a.id.is_some() && a.id == b.id;
    is_stream || relation(one, other) != Relation::Strangers
}
