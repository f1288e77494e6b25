//! Sources of every kind.

mod devices;
mod fed;
mod files;
mod kind;
mod records;
mod signals;
mod streams;

use crate::spec::Spec;
use crate::wire;
pub use fed::{Ask, Source};
pub use kind::SourceKind;
use std::io;

impl Source {
    /// Makes a source of this kind that holds, or gets, `spec.size` bytes. The
    /// caller must use and drop it on the same thread: signals belong to a thread.
    ///
    /// # Errors
    ///
    /// Those of the system calls.
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
