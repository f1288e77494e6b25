//! Whether the source has ended, and how many bytes are left.

use super::flow::Flow;
use crate::endpoint::Kind;
use crate::errno::Errno;
use crate::pipe;
use crate::pipe::packets::{self, Front};
use crate::sys::{self, again};

impl Flow<'_> {
    /// Returns the size of the source at this moment, in bytes: of a file or a block device. A
    /// disk that is unplugged or disconnected has none left (`blk_mark_disk_dead`,
    /// block/genhd.c), and a smaller medium may take its place.
    ///
    /// # Errors
    ///
    /// Of `fstat(2)` or `ioctl(2)`.
    pub(crate) fn source_size(&self) -> Result<u64, Errno> {
        let source = self.source.fd();
        match self.source.kind() {
            Kind::BlockDevice => sys::block_device_size(source),
            _ => Ok(sys::fstat(source)?.st_size as u64),
        }
    }

    /// Whether the source reports a larger size than the bytes read so far; the size
    /// may be wrong.
    pub(crate) fn is_before_its_size(&self) -> bool {
        self.before_its_size().is_some_and(|bytes| bytes > 0)
    }

    /// The number of bytes left up to the source's size; `None` without a size.
    pub(crate) fn before_its_size(&self) -> Option<u64> {
        let here = self.counted_place()?;
        let size = self.source.facts().size;
        size.map(|size| size.saturating_sub(here))
    }

    /// Whether the source is longer than it was when the transfer began.
    pub(crate) fn source_has_grown(&self) -> bool {
        let size = self.source.facts().size;
        size.is_some_and(|size| self.source_size().is_ok_and(|now| now > size))
    }

    /// Whether as many bytes were read as the file had when the transfer began, on a
    /// file system with reliable sizes. Only if the sink is a file too, which takes
    /// the bytes at once: a slow sink gives the source time to grow, and then the
    /// new bytes are moved too.
    pub(crate) fn is_at_size(&self) -> bool {
        let facts = self.source.facts();
        let at_size = || {
            self.counted_place()
                .is_some_and(|here| facts.size == Some(here))
        };
        self.sink.kind().is_file() && facts.has_true_size() && at_size()
    }

    /// Whether the source has another byte at its current offset, tested without
    /// consuming it. `Ok(None)` for a source that cannot be read twice.
    pub(crate) fn source_goes_on(&mut self) -> Result<Option<bool>, Errno> {
        let kind = self.source.kind();
        if kind.is_stream_socket() {
            return self.socket_goes_on();
        }
        if !kind.is_cached() {
            return Ok(None);
        }
        let offset = match self.source.place() {
            Ok(offset) if offset < i64::MAX as u64 => offset,
            Ok(_) => return Ok(Some(false)),
            Err(Errno::EIO) => return Err(Errno::EIO), // An xfs that has shut down.
            Err(_) => return Ok(None),
        };
        let mut byte = [0u8; 1];
        let source = self.source.fd();
        match again(|| sys::pread(source, &mut byte, offset)) {
            Ok(n) => Ok(Some(n > 0)),
            // Direct I/O does not read single bytes; its reads detect the end.
            Err(rustix::io::Errno::INVAL) if self.source.facts().o_direct => Ok(None),
            Err(rustix::io::Errno::SPIPE) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether an end that a path has found is still unconfirmed after
    /// [`Flow::source_goes_on`] has returned `None`: that of a file that is not
    /// seekable, as a FUSE server may provide (`FOPEN_NONSEEKABLE`), or of a socket
    /// that a seccomp filter forbids to peek at. The next path then reads. Without a
    /// next path, the file's size decides, if it is known: a file of unknown size
    /// reports 0.
    pub(crate) fn ends_unseen(&self) -> bool {
        let facts = self.source.facts();
        let size_is_known = |size| size > 0 || facts.has_true_size();
        let short = || (facts.size).is_some_and(|size| self.read() < size || !size_is_known(size));
        if facts.kind.is_stream_socket() {
            return self.has_next();
        }
        facts.kind.is_file() && facts.position.is_none() && (self.has_next() || short())
    }

    /// Whether the source has ended, as far as can be tested without consuming
    /// anything. `None`: only a consuming call can tell.
    ///
    /// # Errors
    ///
    /// A socket's pending error, which is returned once: it is the source's failure.
    pub(crate) fn source_has_ended(&mut self) -> Result<Option<bool>, Errno> {
        let source = self.source.fd();
        if self.source.kind().is_pipe() {
            return Ok(
                pipe::has_ended(source).or_else(|| match packets::front(source, 1) {
                    Ok(front) => Some(front == Front::End),
                    Err(_) => None,
                }),
            );
        }
        match self.source_goes_on() {
            Err(errno) if self.source.kind().is_socket() => Err(errno),
            goes_on => Ok(Some(goes_on == Ok(Some(false)))),
        }
    }
}
