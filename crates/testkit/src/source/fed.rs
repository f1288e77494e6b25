//! A source and what feeds it.

use super::kind::SourceKind;
use crate::expect::Expect;
use std::any::Any;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;

/// How much to read from a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Read to its end.
    Eof,
    /// Read this many bytes: it has no end, or one further on.
    Bytes(u64),
}

impl Ask {
    /// The number of bytes to ask [`crate::model::run`] for.
    pub fn size(self) -> Option<u64> {
        match self {
            Ask::Eof => None,
            Ask::Bytes(n) => Some(n),
        }
    }
}

/// A source, with what feeds it.
#[derive(Debug)]
pub struct Source {
    /// The descriptor to read from.
    pub fd: OwnedFd,
    /// Its kind.
    pub kind: SourceKind,
    /// How much to read.
    pub ask: Ask,
    /// The bytes that come out.
    pub expect: Expect,
    /// The sizes of its messages, for kinds that keep boundaries.
    pub messages: Option<Vec<usize>>,
    pub(super) _rest: Rest,
}

/// What a source depends on. The descriptor is closed before this is dropped and the
/// feeder is joined.
#[derive(Debug, Default)]
pub(super) struct Rest {
    pub(super) feeder: Option<JoinHandle<()>>,
    pub(super) keep: Option<Box<dyn Keep>>,
}

pub(super) trait Keep: Any + std::fmt::Debug {}
impl<T: Any + std::fmt::Debug> Keep for T {}

impl Drop for Rest {
    fn drop(&mut self) {
        if let Some(feeder) = self.feeder.take() {
            let _ = feeder.join();
        }
        self.keep = None;
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
