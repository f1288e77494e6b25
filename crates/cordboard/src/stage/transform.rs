//! Stages that change the bytes.

use std::borrow::Cow;

use crate::errno::Errno;

/// Makes other bytes of those that pass.
pub trait Transform: Send {
    /// What the report calls it.
    fn name(&self) -> &'static str;

    /// Takes some of `input` and fills some of `output`, which is never empty.
    /// It must do one or the other as long as there is input.
    ///
    /// It is called with no input where the last call filled its output, in
    /// case that there is more to come of what was taken before.
    ///
    /// # Errors
    ///
    /// A [`Fault`], in the bytes or for want of memory: nothing of this call was taken or made, and
    /// there will be no other.
    fn transform(&mut self, input: &[u8], output: &mut [u8]) -> Result<Passed, Fault>;

    /// The source has ended: writes the rest to `output`, which is never
    /// empty. Called again until it says that it is done.
    ///
    /// # Errors
    ///
    /// A [`Fault`]: the bytes ended where they must not. It is not told of
    /// where the transfer itself was cut short (cancelled, a dead sink).
    fn finish(&mut self, output: &mut [u8]) -> Result<Finished, Fault>;

    /// A few bytes can become very many. Of a source that cannot be rewound
    /// only little is then read ahead, so that what must be handed back when
    /// the sink dies is bounded: for zstd, by the 128 MiB that its largest
    /// window takes anyway.
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
    /// There is no more.
    pub done: bool,
}

/// Why a stage can make nothing of the bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Fault {
    /// What the report says: `EBADMSG` for bytes that are not what they claim
    /// to be, `ENOMEM` where the stage has no memory.
    pub errno: Errno,
    /// The same in words.
    pub why: Cow<'static, str>,
}
