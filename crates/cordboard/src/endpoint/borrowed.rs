//! A borrowed descriptor with its facts.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::OFlags;

use super::facts::{Alignment, Facts};
use super::kind::{Kind, Side};
use super::probe::Unexamined;
use super::{direct, probe, socket, terminal};
use crate::errno::Errno;

/// A borrowed descriptor and its facts.
#[derive(Debug, Clone, Copy)]
pub struct Endpoint<'fd> {
    fd: BorrowedFd<'fd>,
    /// The number of the caller's descriptor, of which `fd` may be a duplicate.
    number: RawFd,
    facts: Facts,
}

impl<'fd> Endpoint<'fd> {
    /// Queries the facts of a descriptor. Changes nothing.
    ///
    /// # Errors
    ///
    /// `EBADF`: the descriptor is not open. Those of `getsockopt(2)`, if a filter
    /// refuses the query of a socket's type and procfs does not list the socket.
    /// Otherwise those of `fstat(2)`.
    pub fn probe(fd: BorrowedFd<'fd>) -> Result<Endpoint<'fd>, Errno> {
        Ok(Endpoint {
            fd,
            number: fd.as_raw_fd(),
            facts: probe::facts(fd, None, None).map_err(|failed| failed.errno)?,
        })
    }

    /// As [`Endpoint::probe`], for a transfer, which may know the other endpoint or an
    /// offset already.
    pub(crate) fn probe_for(
        fd: BorrowedFd<'fd>,
        other: Option<&Endpoint<'_>>,
        offset: Option<u64>,
    ) -> Result<Endpoint<'fd>, Unexamined> {
        Ok(Endpoint {
            fd,
            number: fd.as_raw_fd(),
            facts: probe::facts(fd, other.map(Endpoint::facts), offset)?,
        })
    }

    /// Replaces the facts, if the caller knows more than queries of the descriptor
    /// return, such as about a device behind an `O_PATH` descriptor.
    #[must_use]
    pub fn with_facts(self, facts: Facts) -> Endpoint<'fd> {
        Endpoint { facts, ..self }
    }

    /// Returns the same endpoint with another descriptor.
    pub(crate) fn on<'other>(&self, fd: BorrowedFd<'other>) -> Endpoint<'other> {
        Endpoint {
            fd,
            number: self.number,
            facts: self.facts,
        }
    }

    /// Opens a terminal again with `O_NONBLOCK`; `None` for other kinds, or if opening
    /// fails. A terminal that has the flag already is opened again too: another
    /// process that shares its description may clear the flag at any time.
    pub(crate) fn without_waiting(&self, side: Side) -> Option<OwnedFd> {
        let flags = match side {
            Side::Source => OFlags::RDONLY,
            Side::Sink => OFlags::WRONLY,
        };
        let is_terminal = self.facts.kind == Kind::Tty;
        is_terminal.then(|| terminal::reopen_terminal(self.fd, flags))?
    }

    /// Returns the number of the caller's descriptor; a transfer may have a duplicate.
    pub(crate) fn number(&self) -> RawFd {
        self.number
    }

    /// Returns the descriptor.
    pub fn fd(&self) -> BorrowedFd<'fd> {
        self.fd
    }

    /// Returns the facts of the descriptor.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns the kind of object.
    pub fn kind(&self) -> Kind {
        self.facts.kind
    }

    /// Returns whether the descriptor is open for this direction but does not support
    /// the operation.
    pub(crate) fn lacks_operation(&self, side: Side) -> bool {
        probe::lacks_operation(self.fd, &self.facts, side)
    }

    /// Queries the facts that direct I/O depends on: the alignment and, for a source
    /// whose range is given, the percentage of its pages in the page cache.
    pub(crate) fn look_closer(&mut self, start_and_length: Option<(u64, u64)>) {
        self.facts.alignment = self.direct_alignment();
        if let Some((start, length)) = start_and_length {
            self.facts.cached = direct::cached_percent(self.fd, start, length);
        }
    }

    /// Queries whether a TCP connection is paced.
    pub(crate) fn look_for_pacing(&mut self) {
        self.facts.paced = socket::is_paced(self.fd);
    }

    /// Returns the share of a file's pages that are in the page cache, 0 to 1. `None`
    /// if the kernel does not report it, as before Linux 6.5 (`cachestat(2)`), or if
    /// the file has no size.
    pub fn cached_share(&self) -> Option<f64> {
        direct::cached_share(self.fd, &self.facts)
    }

    /// Returns the alignment that direct I/O requires (`STATX_DIOALIGN`, since Linux
    /// 6.1); `None` if the file does not support direct I/O. 4096 if the kernel does
    /// not report it.
    pub fn direct_alignment(&self) -> Option<Alignment> {
        direct::direct_alignment(self.fd)
    }
}

impl AsFd for Endpoint<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd
    }
}
