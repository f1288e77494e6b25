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
mod boxed;
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

pub use boxed::Stage;
pub(crate) use chain::{Behind, Chain};
pub(crate) use held::Held;
pub use inspect::Inspect;
pub use report::StageReport;
pub(crate) use stages::Stages;
pub use transform::{Fault, Finished, Passed, Transform};
