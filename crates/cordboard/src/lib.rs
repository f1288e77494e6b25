//! Moves bytes from any descriptor to any descriptor. One call moves them
//! unchanged, by the fastest path that the kernel has for the pair. Every pair has
//! a correct fallback, and every transfer an exact account of its bytes.
//!
//! The call is the `splice(source, sink, size)` that Fall and Pasquale proposed in
//! 1993 ("Exploiting In-Kernel Data Paths to Improve I/O Throughput and CPU
//! Availability"): any two I/O objects, and a size or the end of file. Linux now
//! has several in-kernel ways to move bytes. Each takes some pairs and refuses the
//! rest in its own way. This crate knows which of them to try for a pair, in which
//! order, and what each refusal means.
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
//! # Structure
//!
//! | module | content |
//! |---|---|
//! | [`cue`] | control descriptors: commands start and steer transfers |
//! | [`buffer`] | a large buffer between a source and a sink |
//! | [`fan_in`] | moves several sources into one sink |
//! | [`fan_out`] | moves one source to several sinks |
//! | `compose` | shared by the compositions of transfers |
//! | [`engine`] | runs transfers beside their callers, with `epoll(7)` |
//! | [`transfer`] | one running transfer: steps, waits, hand-over, settling, control |
//! | [`plan`] | examines both descriptors and decides the route |
//! | `path` | the data paths |
//! | [`report`] | the result: counts, refusals, failures, stranded bytes |
//! | [`pair`] | the facts about both descriptors together |
//! | `pipe` | private pipes and socket pairs, packets |
//! | [`stage`] | modules between read and write: hashes, zstd, counting |
//! | [`tune`](Tune) | the controller that measures paths and sizes of calls |
//! | `threads` | threads for calls that block in the kernel |
//! | [`endpoint`] | the facts about one descriptor |
//! | [`request`] | the request of the caller |
//! | `sys` | system calls without a safe wrapper |
//!
//! A module imports only from those below it; `pipe`, `stage` and `tune` do not import each
//! other, nor do the first four. `errno`, `guarded`, `map`, `named` and `quantity` are below
//! all of them. The choice of the route performs no I/O. `unsafe` is in `sys`, and once
//! in `transfer`: a transfer that owns its descriptors also borrows them.
//! [`splice`] and [`Transfer::run`] take the steps on the caller's thread,
//! [`start`] on an engine's.
//!
//! # Features
//!
//! No feature is on by default.
//!
//! | feature | content |
//! |---|---|
//! | `blake3`, `crc32`, `xxh3` | `Stage::blake3`, `Stage::crc32`, `Stage::xxh3` |
//! | `zstd` | `Stage::zstd` and `Stage::unzstd` |
//! | `stages` | all of these |
//! | `serde` | `Serialize` for [`Report`], with the members of the command's JSON line (docs/json.md) |
//!
//! # Stack
//!
//! A call needs a stack of 64 KiB or more, plus what the caller's observers and
//! stages need. Threads of an [`Engine`] have 2 MiB.
//!
//! # Threads
//!
//! The threads of an [`Engine`] have the scheduling policy, the processor affinity, the credentials
//! (capabilities, the user for files), the Landlock rules and the seccomp filters of the thread that
//! starts them: for the engine of the process, the first one that calls [`start`]. Later changes of
//! one thread do not apply to transfers on the engine, also if that thread starts them.
//! [`Transfer::run`] and [`Stepping`] read and write on the calling thread, except with direct I/O.
//! After `unshare(2)` with `CLONE_NEWPID`, the kernel starts no thread (`EAGAIN`).
//!
//! # What it never does
//!
//! * It changes no status flag of the caller's descriptors: `O_NONBLOCK` set on an
//!   inherited standard input would affect the parent's shell. It does change the
//!   following. A pipe's capacity may be enlarged. `SO_PASSCRED` is set on a UNIX
//!   sequenced-packet socket that is the source: for the duration of the transfer if
//!   the sink keeps message boundaries, otherwise for single receives. If the host
//!   has set `SO_PEEK_OFF` on a socket, it is 0 during each peek. `O_DIRECT` is
//!   cleared on a file for a call that cannot be aligned, if the file cannot be
//!   opened a second time.
//! * It installs no signal handler. `SIGPIPE` and `SIGXFSZ` are blocked in the
//!   calling thread while a transfer runs, so that a closed reader or a file-size
//!   limit is an errno in the report and does not kill the process. A signal that
//!   the transfer has raised stays blocked if a filter refuses both
//!   `rt_sigtimedwait(2)` and `signalfd4(2)`.
//! * It does not truncate bytes that other processes write to the sink behind its
//!   own bytes. One exception: a direct copy that ends early truncates the file to
//!   the bytes that it has written, if the file still has the length that the copy
//!   gave it, and keeps bytes that others have written before its range. No system
//!   call compares the length and truncates atomically, so bytes that another process
//!   appends between `fstat(2)` and `ftruncate(2)` are lost.
//! * It takes no file locks, but may release those of the caller. By
//!   `fcntl_locking(2)` a process loses its own record locks on a file when it
//!   closes any descriptor of the file: the engine closes the descriptors of its
//!   transfers, and direct copies close their second descriptors of both files.
//!   `F_OFD_SETLK` and `flock(2)` locks stay.
//! * It does not synchronize two transfers that read one open description at its
//!   position concurrently: `splice(2)` does not lock the position, and bytes can
//!   be read twice. Give each transfer an offset.
//! * It passes no ancillary data: descriptors sent over a UNIX socket
//!   (`SCM_RIGHTS`) are not transferred, as with `read(2)`.

#![deny(unsafe_code)]

pub mod buffer;
mod compose;
pub mod cue;
pub mod endpoint;
pub mod engine;
pub mod errno;
pub mod fan_in;
pub mod fan_out;
mod guarded;
mod map;
#[cfg(test)]
mod module_order;
mod named;
pub mod pair;
mod path;
mod pipe;
pub mod plan;
mod quantity;
pub mod report;
pub mod request;
pub mod stage;
#[allow(unsafe_code)]
mod sys;
mod threads;
pub mod transfer;
mod tune;

pub use buffer::{Buffered, BufferedOutcome};
pub use cue::Cue;
pub use endpoint::{Endpoint, Kind, Side};
pub use engine::{Engine, Running, Status, start};
#[doc(hidden)]
pub use engine::{close_inherited, start_in};
pub use errno::Errno;
pub use fan_in::{FanIn, FanInOutcome, OnFailure};
pub use fan_out::{FanOut, FanOutOutcome, OnSlow};
pub use plan::Route;
pub use report::{Chosen, Dropped, Ended, Failure, Outcome, PathUse, Refusal, Report, Stranded};
pub use request::{
    Aim, DataPath, Direct, Request, Schedule, Size, Sparse, Switches, Tune, Watermarks,
};
pub use stage::{Stage, StageReport};
#[doc(hidden)]
pub use sys::{
    Lock, Origin, PerProcess, close_inherited_fd, duplicate, fstat, memory_file, poll_for,
    poll_or_select, sleep_a_moment,
};
pub use transfer::{Control, Observer, Progress, Stepping, Transfer, splice};
