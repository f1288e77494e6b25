//! Stages that change the bytes.

use std::borrow::Cow;

use crate::errno::Errno;

/// A stage that changes the bytes.
pub trait Transform: Send {
    /// Returns its name in the report.
    fn name(&self) -> &'static str;

    /// Takes some of `input` and fills some of `output`, which is never empty, but may be a
    /// single byte. While there is input, each call must take input, make output, or both.
    ///
    /// If the last call filled its output, the next call may have no input, since
    /// earlier input may yield more output.
    ///
    /// # Errors
    ///
    /// A [`Fault`] of the bytes, or of memory. This call has then taken and made
    /// nothing, and no other call follows.
    fn transform(&mut self, input: &[u8], output: &mut [u8]) -> Result<Passed, Fault>;

    /// Writes the rest to `output`, which is never empty, after the source has ended.
    /// Called again until it returns `done`.
    ///
    /// # Errors
    ///
    /// A [`Fault`]: the input is incomplete. The transfer ignores it if the transfer
    /// itself ended early (cancelled, or the sink failed).
    fn finish(&mut self, output: &mut [u8]) -> Result<Finished, Fault>;

    /// Returns whether a few input bytes can become very many output bytes. The
    /// transfer then reads little ahead from a source that is not seekable, unless it is
    /// a device, whose records are read whole. This bounds the bytes to return if the
    /// sink fails: for zstd, by the 128 MiB of its largest window. At most 256 MiB are
    /// returned; if there are more, as behind another stage that expands, the report
    /// has `ENOMEM`.
    fn expands(&self) -> bool {
        false
    }
}

/// The result of one call of [`Transform::transform`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Passed {
    /// The number of input bytes taken.
    pub taken: usize,
    /// Bytes of the output that were made.
    pub made: usize,
}

/// The result of one call of [`Transform::finish`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Finished {
    /// Bytes of the output that were made.
    pub made: usize,
    /// No more output follows.
    pub done: bool,
}

/// Why a stage rejects the bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Fault {
    /// The errno of the report: `EBADMSG` if the bytes have a wrong format, `ENOMEM`
    /// if the stage has no memory.
    pub errno: Errno,
    /// The reason, for the report and messages.
    pub why: Cow<'static, str>,
}
