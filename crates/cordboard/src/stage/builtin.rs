//! A stage of either kind, and the stages of the library.

use std::fmt;

#[cfg(feature = "blake3")]
use super::blake3;
use super::count;
#[cfg(feature = "crc32")]
use super::crc32;
use super::inspect::Inspect;
#[cfg(feature = "zstd")]
use super::report::StageReport;
use super::transform::Transform;
#[cfg(feature = "xxh3")]
use super::xxh3;
#[cfg(feature = "zstd")]
use super::zstd;
#[cfg(feature = "zstd")]
use crate::errno::Errno;

/// A module between the read and the write of a transfer.
pub struct Stage(pub(crate) Nature);

pub(crate) enum Nature {
    Inspect(Box<dyn Inspect>),
    Transform(Box<dyn Transform>),
}

impl Stage {
    /// Makes a stage that inspects the bytes.
    pub fn inspecting(stage: impl Inspect + 'static) -> Stage {
        Stage(Nature::Inspect(Box::new(stage)))
    }

    /// Makes a stage that changes the bytes.
    pub fn transforming(stage: impl Transform + 'static) -> Stage {
        Stage(Nature::Transform(Box::new(stage)))
    }

    /// Counts the bytes.
    pub fn count() -> Stage {
        Stage::inspecting(count::Count)
    }

    /// CRC-32 as in gzip and Ethernet (`crc32(1)`): eight hexadecimal digits.
    #[cfg(feature = "crc32")]
    pub fn crc32() -> Stage {
        Stage::inspecting(crc32::Crc32::default())
    }

    /// XXH3 of 64 bits (`xxhsum -H3`): sixteen hexadecimal digits. The fastest;
    /// not secure against adversaries.
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
    /// does. Level 3 is the default of `zstd(1)`, 1 is fast and 19 dense.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the level does not exist. `ENOMEM`.
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

    /// As [`Stage::unzstd`], for data whose start can be read at positions: checks the first
    /// header of a frame, and allocates the memory for that frame. `read` returns the number of
    /// bytes that it has read at a position of the data, which is less than requested only at
    /// its end. If `read` fails, nothing is checked.
    ///
    /// # Errors
    ///
    /// The errno and the report of a stage that has failed there.
    #[cfg(feature = "zstd")]
    #[doc(hidden)]
    pub fn unzstd_of<R>(mut read: R) -> Result<Stage, (Errno, StageReport)>
    where
        R: FnMut(u64, &mut [u8]) -> Result<usize, Errno>,
    {
        Ok(Stage::transforming(zstd::Decompress::of(&mut read)?))
    }

    /// Returns the name of the stage in the report.
    pub fn name(&self) -> &'static str {
        match &self.0 {
            Nature::Inspect(stage) => stage.name(),
            Nature::Transform(stage) => stage.name(),
        }
    }

    /// Returns whether the stage changes the bytes.
    pub fn transforms(&self) -> bool {
        matches!(self.0, Nature::Transform(_))
    }
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stage").field(&self.name()).finish()
    }
}
