//! Stages that change the bytes.

use std::borrow::Cow;

use crate::errno::Errno;

/// A stage that changes the bytes.
pub trait Transform: Send {
    /// Returns its name in the report.
    fn name(&self) -> &'static str;

    /// Takes some of `input` and fills some of `output`, which is never empty. It must
    /// do either as long as there is input.
    ///
    /// It is called without input if the last call filled its output, since more output
    /// may follow from earlier input.
    ///
    /// # Errors
    ///
    /// A [`Fault`] of the bytes, or of memory: this call took and made nothing, and is
    /// the last one.
    fn transform(&mut self, input: &[u8], output: &mut [u8]) -> Result<Passed, Fault>;

    /// Writes the rest to `output`, which is never empty, after the source has ended.
    /// Called again until it returns `done`.
    ///
    /// # Errors
    ///
    /// A [`Fault`]: the bytes end where they must not. It is ignored if the transfer
    /// itself ended early (cancelled, or the sink failed).
    fn finish(&mut self, output: &mut [u8]) -> Result<Finished, Fault>;

    /// Whether a few bytes can become very many. Only little is then read ahead from a
    /// source that is not seekable, which bounds the bytes to return when the sink
    /// fails: for zstd, by the 128 MiB of its largest window.
    fn expands(&self) -> bool {
        false
    }
}

/// What one call of [`Transform::transform`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Passed {
    /// Bytes of the input that were taken.
    pub taken: usize,
    /// Bytes of the output that were made.
    pub made: usize,
}

/// What one call of [`Transform::finish`] did.
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
    /// The errno of the report: `EBADMSG` for bytes of a wrong format, `ENOMEM` if the
    /// stage has no memory.
    pub errno: Errno,
    /// A description.
    pub why: Cow<'static, str>,
}
