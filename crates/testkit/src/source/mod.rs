//! Sources of every kind.

mod devices;
mod files;
mod kind;
mod records;
mod signals;
mod streams;

use crate::expect::Expect;
use crate::spec::Spec;
use crate::wire;
pub use kind::SourceKind;
use std::any::Any;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;

/// How to ask a source for what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// It has an end.
    Eof,
    /// It has none, or not where it should: this many bytes.
    Bytes(u64),
}

impl Ask {
    /// As the model has it.
    pub fn size(self) -> Option<u64> {
        match self {
            Ask::Eof => None,
            Ask::Bytes(n) => Some(n),
        }
    }
}

/// A source, fed.
#[derive(Debug)]
pub struct Source {
    /// What to read from.
    pub fd: OwnedFd,
    /// Which kind.
    pub kind: SourceKind,
    /// How to ask for all of it.
    pub ask: Ask,
    /// What comes out.
    pub expect: Expect,
    /// The sizes of the messages it comes in, for kinds that keep boundaries.
    pub messages: Option<Vec<usize>>,
    _rest: Rest,
}

/// What keeps a source alive: dropped, and joined, after the descriptor.
#[derive(Debug, Default)]
struct Rest {
    feeder: Option<JoinHandle<()>>,
    keep: Option<Box<dyn Keep>>,
}

trait Keep: Any + std::fmt::Debug {}
impl<T: Any + std::fmt::Debug> Keep for T {}

impl Drop for Rest {
    fn drop(&mut self) {
        if let Some(feeder) = self.feeder.take() {
            let _ = feeder.join();
        }
        self.keep = None;
    }
}

impl Source {
    /// A source of this kind that holds, or gets, `spec.size` bytes. To be
    /// used and dropped on the calling thread: signals belong to a thread.
    ///
    /// # Errors
    ///
    /// Those of the calls that make it.
    pub fn make(kind: SourceKind, spec: &Spec) -> io::Result<Source> {
        let size = spec.size.min(kind.most().unwrap_or(u64::MAX));
        let spec = &Spec {
            size: size - size % kind.record(),
            ..*spec
        };
        use SourceKind as K;
        let source = match kind {
            K::File | K::Tmpfs | K::Memfd | K::Sparse | K::Direct => files::make(kind, spec)?,
            K::Block | K::Zero | K::Urandom | K::Procfs | K::Sysfs => devices::make(kind, spec)?,
            K::Eventfd | K::Timerfd | K::Signalfd | K::Inotify => records::make(kind, spec)?,
            _ => streams::make(kind, spec)?,
        };
        wire::set_nonblocking(&source.fd, spec.nonblocking)?;
        Ok(source)
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
