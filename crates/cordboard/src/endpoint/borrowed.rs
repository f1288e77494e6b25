//! A borrowed descriptor with its facts.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::OFlags;

use super::facts::{Alignment, Facts};
use super::kind::{Kind, Side};
use super::{probe, reopen};
use crate::errno::Errno;

/// A descriptor and its facts.
#[derive(Debug, Clone, Copy)]
pub struct Endpoint<'fd> {
    fd: BorrowedFd<'fd>,
    /// Of the descriptor that the caller knows it by.
    number: RawFd,
    facts: Facts,
}

impl<'fd> Endpoint<'fd> {
    /// Looks at a descriptor; nothing of it is changed.
    ///
    /// # Errors
    ///
    /// `EBADF`: not open. As `getsockopt(2)` of a socket, where a filter refuses to
    /// tell its type and procfs does not list it. Otherwise as `fstat(2)`.
    pub fn probe(fd: BorrowedFd<'fd>) -> Result<Endpoint<'fd>, Errno> {
        Ok(Endpoint {
            fd,
            number: fd.as_raw_fd(),
            facts: probe::facts(fd, None, None)?,
        })
    }

    /// The same for a transfer, which knows one endpoint already, or an offset.
    pub(crate) fn probe_for(
        fd: BorrowedFd<'fd>,
        other: Option<&Endpoint<'_>>,
        offset: Option<u64>,
    ) -> Result<Endpoint<'fd>, Errno> {
        Ok(Endpoint {
            fd,
            number: fd.as_raw_fd(),
            facts: probe::facts(fd, other.map(Endpoint::facts), offset)?,
        })
    }

    /// The same with other facts, where the caller knows better than the
    /// descriptor tells: of a device, say, that an `O_PATH` one stands for.
    #[must_use]
    pub fn with_facts(self, facts: Facts) -> Endpoint<'fd> {
        Endpoint { facts, ..self }
    }

    /// The same by another descriptor of it.
    pub(crate) fn on<'other>(&self, fd: BorrowedFd<'other>) -> Endpoint<'other> {
        Endpoint {
            fd,
            number: self.number,
            facts: self.facts,
        }
    }

    /// Opens a terminal again with `O_NONBLOCK`; `None` for anything else, and
    /// where that fails. A terminal that has the flag is opened again too: another
    /// process that shares its description may clear the flag right before a
    /// call.
    pub(crate) fn without_waiting(&self, side: Side) -> Option<OwnedFd> {
        let flags = match side {
            Side::Source => OFlags::RDONLY,
            Side::Sink => OFlags::WRONLY,
        };
        let is_terminal = self.facts.kind == Kind::Tty;
        is_terminal.then(|| reopen::reopen_terminal(self.fd, flags))?
    }

    /// The same, which the caller knows by this number.
    pub(crate) fn known_as(self, number: RawFd) -> Endpoint<'fd> {
        Endpoint { number, ..self }
    }

    /// The number that the caller knows it by; a transfer may have a duplicate.
    pub(crate) fn number(&self) -> RawFd {
        self.number
    }

    /// The descriptor, for as long as it was lent.
    pub fn fd(&self) -> BorrowedFd<'fd> {
        self.fd
    }

    /// What is known of it.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// What is behind it.
    pub fn kind(&self) -> Kind {
        self.facts.kind
    }

    /// It is open for this direction, and has no such operation.
    pub(crate) fn lacks_operation(&self, side: Side) -> bool {
        probe::lacks_operation(self.fd, &self.facts, side)
    }

    /// Asks for what direct I/O depends on: the alignment, and of a source of
    /// which these bytes are to be read, how many of them are in the page cache.
    pub(crate) fn look_closer(&mut self, start_and_length: Option<(u64, u64)>) {
        self.facts.alignment = self.direct_alignment();
        if let Some((start, length)) = start_and_length {
            self.facts.cached = probe::cached_percent(self.fd, start, length);
        }
    }

    /// The share of a file's pages that are in the page cache, 0 to 1.
    /// `None` where the kernel does not tell. Since Linux 6.5
    /// (`cachestat(2)`).
    pub fn cached_share(&self) -> Option<f64> {
        probe::cached_share(self.fd, &self.facts)
    }

    /// What direct I/O on it asks for; `None` where it has none. Since
    /// Linux 6.1 (`STATX_DIOALIGN`).
    pub fn direct_alignment(&self) -> Option<Alignment> {
        probe::direct_alignment(self.fd)
    }
}

impl AsFd for Endpoint<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd
    }
}
