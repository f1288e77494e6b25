//! Stages: modules between the read and the write. Fall and Pasquale (1993) plan such
//! modules ("compression", in the fashion of Streams).
//!
//! A stage either **inspects** the bytes ([`Inspect`]: a hash, a count) or **changes**
//! them ([`Transform`]: compression). Both work on the transfer's own buffers:
//! inspection makes no copy, and a transformation has one output buffer. Stages run in
//! the order of the calls of [`Transfer::stage`](crate::Transfer::stage), the first one
//! next to the source.
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
//! # Cost
//!
//! Every byte passes through user space: the only possible path is read/write. The
//! report lists other paths that the pair allows, such as a clone, in `declined`.
//!
//! # Accounting
//!
//! With inspecting stages only, `read == written + stranded` holds as always. The
//! stages see exactly the bytes that the sink accepted, in order; they see a hole as
//! zeros. So a digest is that of the bytes in the sink, however the transfer ends.
//!
//! Once a stage changes the bytes, `read` and `written` count different bytes:
//!
//! * `read`: bytes taken from the source, less those that were put back.
//!   [`Request::size`](crate::Request::size) limits these.
//! * `written`: bytes the sink accepted.
//! * `stranded`: output of the stages that the sink did not accept, returned as
//!   [`Stranded::Buffer`](crate::Stranded::Buffer). At every end the transfer runs the
//!   stages to their end, so that **the bytes written followed by the stranded bytes
//!   are exactly the output of the stages for the bytes read**. So a transfer that was
//!   cancelled, was idle or lost its sink has made a complete frame, of which a part
//!   may be stranded.
//! * Bytes that the first stage has not taken are put back if the source is seekable,
//!   and count as not read. Otherwise they go through the stages as well. Bytes inside
//!   a stage are never put back: their offset in the source is unknown.
//! * An inspecting stage sees the bytes that the next changing stage takes. After the
//!   last changing stage, it sees the bytes that the sink accepts.
//!
//! If a stage finds a [`Fault`] in the bytes (corrupt or truncated data, trailing
//! data), the transfer fails on the source's side. If a stage has no memory (`ENOMEM`),
//! it fails on neither side: the report's `failed` is `None`. Earlier output is written
//! first. Bytes after the fault are put back into a seekable source; from others they
//! are lost, and `read` exceeds the first stage's `bytes_in` by their number.

#[cfg(feature = "blake3")]
mod blake3;
mod builtin;
mod chain;
mod count;
#[cfg(feature = "crc32")]
mod crc32;
mod held;
mod inspect;
mod inspector;
mod report;
mod stages;
mod transform;
#[cfg(feature = "xxh3")]
mod xxh3;
#[cfg(feature = "zstd")]
mod zstd;

pub use builtin::Stage;
pub(crate) use chain::{Behind, Chain};
pub(crate) use held::Held;
pub use inspect::Inspect;
pub use report::StageReport;
pub(crate) use stages::Stages;
pub use transform::{Fault, Finished, Passed, Transform};
