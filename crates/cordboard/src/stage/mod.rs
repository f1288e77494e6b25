//! Stages: modules that sit in the path, between the read and the write, as
//! the paper keeps room for ("compression", in the fashion of Streams).
//!
//! A stage either **looks** at the bytes ([`Inspect`]: a hash, a count) or
//! **changes** them ([`Transform`]: compression). Both work on the transfer's
//! own buffers: one that looks costs no copy at all, one that changes the
//! bytes has but one buffer behind it. Stages are stacked in the order in
//! which [`Transfer::stage`](crate::Transfer::stage) is given them, the first
//! one next to the source.
//!
//! ```
//! # #[cfg(all(feature = "blake3", feature = "zstd"))]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use cordboard::{Request, Stage, Transfer};
//! use std::io::{Seek, Write};
//! use std::os::fd::AsFd;
//! # let mut source = tempfile::tempfile()?;
//! # let sink = tempfile::tempfile()?;
//! source.write_all(&[7; 100_000])?;
//! source.rewind()?;
//! let transfer = Transfer::new(source.as_fd(), sink.as_fd(), Request::default())?
//!     .stage(Stage::blake3())? // of what is read
//!     .stage(Stage::zstd(3)?)?
//!     .stage(Stage::count())?; // of what is written
//! let report = transfer.run().into_result()?;
//! assert_eq!(report.read, 100_000);
//! assert_eq!(report.stages[0].digest.as_ref().map(String::len), Some(64));
//! assert_eq!(report.stages[2].bytes_in, report.written);
//! # Ok(())
//! # }
//! # #[cfg(not(all(feature = "blake3", feature = "zstd")))]
//! # fn main() {}
//! ```
//!
//! # The price
//!
//! Every byte passes through user space: of all paths only read/write is
//! left, and the report's `stages` say so. That a clone would have been the
//! faster way stands among its `declined`.
//!
//! # The account
//!
//! Stages that only look leave it as it was: `read == written + stranded`.
//! They see exactly the bytes that the sink accepted, in order, and a hole
//! that is passed on as a hole is seen as the zeros it reads as: so a digest
//! is that of what is in the sink, in every ending.
//!
//! Once a stage changes the bytes, `read` and `written` count different ones:
//!
//! * `read`: bytes taken from the source, less those that were put back.
//!   [`Request::size`](crate::Request::size) limits these.
//! * `written`: bytes the sink accepted.
//! * `stranded`: bytes *as the sink would have got them*, handed back as
//!   [`Stranded::Buffer`](crate::Stranded::Buffer). The stages are always
//!   driven to their end for it, so that
//!   **written ++ stranded is exactly what the stages make of the bytes read**,
//!   and `written + stranded` is what the last one gave. Cancelled, idle or
//!   with a dead sink: there is a complete frame, though not all of it need be
//!   in the sink.
//! * Bytes that the first stage has not taken in yet are put back where the
//!   source is seekable, and count as not read. Where it is not, they go
//!   through the stages as well. What is inside a stage is never rewound:
//!   nobody could say where to.
//! * A stage that looks sees what the stage behind it takes; behind the last
//!   that changes the bytes, what the sink accepts.
//!
//! A stage that finds a [`Fault`] in the bytes (damaged, cut off, followed by
//! something else) fails the source's side. One that has no memory (`ENOMEM`)
//! fails neither side: the report's `failed` is `None`. What was made before it is
//! written first. Bytes behind the fault go back into a seekable source; from
//! others they are gone, and `read` exceeds the first stage's `bytes_in` by
//! as many.

#[cfg(feature = "blake3")]
mod blake3;
mod chain;
mod count;
#[cfg(feature = "crc32")]
mod crc32;
mod held;
mod report;
mod tail;
#[cfg(feature = "xxh3")]
mod xxh3;
#[cfg(feature = "zstd")]
mod zstd;

use std::borrow::Cow;
use std::fmt;

pub(crate) use chain::{Behind, Chain};
pub(crate) use held::Held;
pub use report::StageReport;
pub(crate) use tail::{Seen, Stages};

use crate::errno::Errno;

/// Looks at the bytes that pass, and leaves them as they are.
pub trait Inspect: Send {
    /// What the report calls it.
    fn name(&self) -> &'static str;

    /// The next bytes. Where one call ends and the next begins means nothing.
    fn inspect(&mut self, bytes: &[u8]);

    /// The same of so many zeros, which are a hole.
    fn inspect_zeros(&mut self, mut count: u64) {
        const ZEROS: [u8; 16 << 10] = [0; 16 << 10];
        while count > 0 {
            let now = count.min(ZEROS.len() as u64);
            self.inspect(&ZEROS[..now as usize]);
            count -= now;
        }
    }

    /// What it makes of all it has seen so far, for the report.
    fn digest(&self) -> Option<String> {
        None
    }
}

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

/// One module in the path of a transfer.
pub struct Stage(pub(crate) Nature);

pub(crate) enum Nature {
    Inspect(Box<dyn Inspect>),
    Transform(Box<dyn Transform>),
}

impl Stage {
    /// One that looks.
    pub fn inspecting(stage: impl Inspect + 'static) -> Stage {
        Stage(Nature::Inspect(Box::new(stage)))
    }

    /// One that changes the bytes.
    pub fn transforming(stage: impl Transform + 'static) -> Stage {
        Stage(Nature::Transform(Box::new(stage)))
    }

    /// Counts the bytes that pass.
    pub fn count() -> Stage {
        Stage::inspecting(count::Count)
    }

    /// CRC-32 as of gzip and Ethernet (`crc32(1)`): eight hexadecimal digits.
    #[cfg(feature = "crc32")]
    pub fn crc32() -> Stage {
        Stage::inspecting(crc32::Crc32::default())
    }

    /// XXH3 of 64 bits (`xxhsum -H3`): sixteen hexadecimal digits. The
    /// fastest; not for keeping adversaries out.
    #[cfg(feature = "xxh3")]
    pub fn xxh3() -> Stage {
        Stage::inspecting(xxh3::Xxh3::default())
    }

    /// BLAKE3 of 256 bits (`b3sum`): 64 hexadecimal digits.
    #[cfg(feature = "blake3")]
    pub fn blake3() -> Stage {
        Stage::inspecting(blake3::Blake3::default())
    }

    /// Compresses to one zstd frame with a checksum (RFC 8878), as `zstd(1)`
    /// does; level 3 is the usual one, 1 the fast and 19 the dense end.
    ///
    /// # Errors
    ///
    /// `EINVAL`: there is no such level. `ENOMEM`.
    #[cfg(feature = "zstd")]
    pub fn zstd(level: i32) -> Result<Stage, Errno> {
        Ok(Stage::transforming(zstd::Compress::new(level)?))
    }

    /// Decompresses zstd frames (RFC 8878), one after the other up to the
    /// source's end. Frames whose window is larger than 128 MiB (`--long`
    /// beyond 27) are refused, as by `zstd(1)`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[cfg(feature = "zstd")]
    pub fn unzstd() -> Result<Stage, Errno> {
        Ok(Stage::transforming(zstd::Decompress::new()?))
    }

    /// What the report calls it.
    pub fn name(&self) -> &'static str {
        match &self.0 {
            Nature::Inspect(stage) => stage.name(),
            Nature::Transform(stage) => stage.name(),
        }
    }

    /// Whether it changes the bytes.
    pub fn transforms(&self) -> bool {
        matches!(self.0, Nature::Transform(_))
    }
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stage").field(&self.name()).finish()
    }
}
