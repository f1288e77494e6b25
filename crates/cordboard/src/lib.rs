//! Any descriptor to any descriptor: one call that moves bytes unchanged by
//! the fastest path this kernel has for the pair, with a correct fallback
//! everywhere and an exact account of every byte.
//!
//! The call is the `splice(source, sink, size)` that Fall and Pasquale
//! proposed in 1993 ("Exploiting In-Kernel Data Paths to Improve I/O
//! Throughput and CPU Availability"): any two I/O objects, a size or end of
//! file. Linux has since grown several in-kernel ways to carry bytes, each of
//! which takes some pairs and refuses the rest in its own way; this crate
//! knows which to ask, in which order, and what each refusal means.
//!
//! ```
//! use cordboard::{Size, splice};
//! use std::io::{Read, Seek, Write};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut source = tempfile::tempfile()?;
//! # let mut sink = tempfile::tempfile()?;
//! # source.write_all(b"number, please")?;
//! # source.rewind()?;
//! let report = splice(&source, &sink, Size::Eof)?;
//! assert_eq!(report.written, 14);
//! println!("{} bytes by {:?}", report.written, report.path);
//! # sink.rewind()?;
//! # let mut back = String::new();
//! # sink.read_to_string(&mut back)?;
//! # assert_eq!(back, "number, please");
//! # Ok(())
//! # }
//! ```
//!
//! # The layers
//!
//! `endpoint → route → path → sys` for one step, and [`Transfer`] to run the
//! steps. Dependencies point one way; `route` does no I/O; `unsafe` is in
//! `sys`, and once in `transfer`, which lends itself the descriptors it owns.
//!
//! # Stack
//!
//! A call needs a thread with a stack of 64 KiB or more. What observers and
//! stages of the caller's need comes on top. Threads of an [`Engine`] have 2 MiB.
//!
//! # What it never does
//!
//! * It changes no status flag of a descriptor it was given: `O_NONBLOCK` set
//!   on an inherited standard input would leak into the parent's shell. What
//!   does change is this: a pipe's capacity may be enlarged; `SO_PASSCRED` is
//!   set on a sequenced-packet socket that is the source, for the length of
//!   the transfer; and `O_DIRECT` is taken off a file for the one call that
//!   cannot be aligned, where no second descriptor of it can be had.
//! * It installs no signal handler. `SIGPIPE` and `SIGXFSZ` are held back
//!   from the calling thread while a transfer runs, so that a closed reader
//!   or a file-size limit is an errno in the report and not the host's end.
//! * It does not cut off what other processes write past its own bytes in the
//!   sink. One exception: a direct copy that ends early truncates the file to
//!   what it has filled, if the file still has the length that the copy gave
//!   it. No call compares and truncates at once, so bytes that another process
//!   appends between the two calls are lost.
//! * It takes no part in locks. By `fcntl_locking(2)` a process loses its own
//!   record locks on a file with any descriptor of it that is closed: those of
//!   an engine's transfers, and the second ones of direct copies, are.
//!   `F_OFD_SETLK` and `flock(2)` locks stay.
//! * It does not keep two transfers apart that read one open description at its
//!   position at once: `splice(2)` does not lock it, and bytes can come twice.
//!   Give each an offset.
//! * It passes no ancillary data: descriptors sent over a UNIX socket
//!   (`SCM_RIGHTS`) are not carried along, as with `read(2)`.

#![deny(unsafe_code)]

pub mod endpoint;
pub mod engine;
pub mod errno;
#[cfg(test)]
mod floors;
mod guarded;
mod map;
pub mod pair;
mod path;
mod pipe;
pub mod plan;
pub mod report;
pub mod request;
pub mod stage;
#[allow(unsafe_code)]
mod sys;
mod threads;
pub mod transfer;

pub use endpoint::{Endpoint, Kind, Side};
#[doc(hidden)]
pub use engine::close_inherited;
pub use engine::{Engine, Running, Status, start};
pub use errno::Errno;
pub use plan::Route;
pub use report::{Ended, Failure, Outcome, Refusal, Report, Stranded};
pub use request::{DataPath, Direct, Request, Size, Sparse, Switches, Watermarks};
pub use stage::{Stage, StageReport};
#[doc(hidden)]
pub use sys::{Lock, PerProcess, poll_for};
pub use transfer::{Control, Observer, Progress, Transfer, splice};
