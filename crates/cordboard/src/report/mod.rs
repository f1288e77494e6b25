//! The report of a transfer, or why it was refused.

mod failure;
#[cfg(all(test, feature = "serde"))]
mod json_tests;
mod path_use;
mod refusal;

pub use failure::Failure;
pub(crate) use path_use::BestSetting;
pub use path_use::{Chosen, PathUse};
pub use refusal::Refusal;

use std::fmt;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::endpoint::Side;
use crate::errno::Errno;
use crate::pipe::{self, Channel as _, OwnedPipe};
use crate::quantity::Bytes;
use crate::request::{DataPath, Declined};
use crate::stage::StageReport;

/// Why a transfer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ended {
    /// The source ended.
    Eof,
    /// The requested size was reached.
    Size,
    /// No byte moved for [`Request::idle`](crate::Request::idle).
    Idle,
    /// [`Control::cancel`](crate::Control::cancel) or
    /// [`Running::cancel`](crate::Running::cancel) was called, its handle was
    /// dropped, or its engine was shut down.
    Cancelled,
    /// One side failed: see [`Report::failed`] and [`Report::errno`].
    Error,
}

impl Ended {
    /// Returns the word of the JSON line: `eof`, `size`, `idle`, `cancelled`,
    /// `error`.
    pub fn name(self) -> &'static str {
        match self {
            Ended::Eof => "eof",
            Ended::Size => "size",
            Ended::Idle => "idle",
            Ended::Cancelled => "cancelled",
            Ended::Error => "error",
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The report of a transfer, exact however it ended.
///
/// `read == written + stranded + dropped.bytes`, always. If bytes of a
/// seekable source could not be written, the transfer rewinds the source over
/// them, and they count as not read, unless another process has moved its position since. If a stage
/// changes the bytes, `read` counts its input, and `written` and `stranded` its
/// output: see [`stage`](crate::stage).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Bytes taken from the source.
    pub read: u64,
    /// Bytes that the sink accepted, up to the first gap. If blocks are written
    /// out of order ([`DataPath::Direct`]) and one fails, the sink may contain
    /// later blocks, which do not count. A file that those blocks extended is
    /// truncated again. Data that they overwrote within its old length, or in a
    /// block device, is lost.
    pub written: u64,
    /// Bytes taken from the source that the sink did not accept and that could
    /// not be returned to the source; they are in [`Outcome::stranded`].
    pub stranded: u64,
    /// Why the transfer ended.
    pub ended: Ended,
    /// The side that failed.
    pub failed: Option<Side>,
    /// The errno that side failed with.
    pub errno: Option<Errno>,
    /// The paths that carried the bytes, in the order of their first use.
    pub path: Vec<DataPath>,
    /// The bytes of each of these paths, and why it was used, in the same order. In the JSON line if
    /// there are several, or if measurements have chosen the one, or its setting.
    pub by_path: Vec<PathUse>,
    /// The preferred paths that were not taken, and why.
    pub declined: Vec<Declined>,
    /// The number of datagrams that the kernel truncated because they were
    /// longer than the receive buffer. Normally 0; otherwise the transfer has
    /// failed.
    pub truncated: u64,
    /// Datagrams that were longer than the sink accepts (`EMSGSIZE`). They count as read, and
    /// not as written. If the source is not a datagram socket, `EMSGSIZE` is a failure instead.
    pub dropped: Dropped,
    /// The report of each stage, in order. If there is a stage, all bytes
    /// passed through user space.
    pub stages: Vec<StageReport>,
    /// The wall-clock time from start to end.
    pub elapsed: Duration,
}

/// Datagrams that were dropped, because they were longer than the sink accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Dropped {
    /// Their number.
    pub datagrams: u64,
    /// The sum of their lengths.
    pub bytes: u64,
}

/// Adds the counts. A sum that overflows is the largest number.
impl std::ops::AddAssign for Dropped {
    fn add_assign(&mut self, other: Dropped) {
        self.datagrams = self.datagrams.saturating_add(other.datagrams);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// A report of no bytes, the initial value for a sum of reports.
impl Default for Report {
    fn default() -> Report {
        Report {
            read: 0,
            written: 0,
            stranded: 0,
            ended: Ended::Eof,
            failed: None,
            errno: None,
            path: Vec::new(),
            by_path: Vec::new(),
            declined: Vec::new(),
            truncated: 0,
            dropped: Dropped::default(),
            stages: Vec::new(),
            elapsed: Duration::ZERO,
        }
    }
}

impl Report {
    /// Makes the report of a request that was refused.
    pub(crate) fn nothing(failed: Option<Side>, errno: Option<Errno>) -> Report {
        Report {
            ended: Ended::Error,
            failed,
            errno,
            ..Report::default()
        }
    }

    /// Adds the result of the close of the descriptors. An error that was found before is kept.
    pub(crate) fn closed(&mut self, result: Result<(), (Side, Errno)>) {
        if let Err((side, errno)) = result
            && self.ended != Ended::Error
        {
            (self.ended, self.failed, self.errno) = (Ended::Error, Some(side), Some(errno));
        }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Report {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let has_paths = self.by_path.len() > 1 || self.by_path.iter().any(PathUse::is_measured);
        let more = usize::from(has_paths)
            + usize::from(self.truncated > 0)
            + usize::from(self.dropped.datagrams > 0)
            + usize::from(!self.stages.is_empty());
        let mut out = serializer.serialize_struct("Report", 9 + more)?;
        out.serialize_field("read", &self.read)?;
        out.serialize_field("written", &self.written)?;
        out.serialize_field("stranded", &self.stranded)?;
        out.serialize_field("ended", self.ended.name())?;
        out.serialize_field("failed", &self.failed.map(Side::name))?;
        let errno = self
            .errno
            .map(|e| e.name().map_or_else(|| e.raw().to_string(), str::to_owned));
        out.serialize_field("errno", &errno)?;
        let path: Vec<&str> = self.path.iter().map(|p| p.name()).collect();
        out.serialize_field("path", &path)?;
        if has_paths {
            out.serialize_field("by_path", &self.by_path)?;
        }
        out.serialize_field("declined", &self.declined)?;
        if self.truncated > 0 {
            out.serialize_field("truncated", &self.truncated)?;
        }
        if self.dropped.datagrams > 0 {
            out.serialize_field("dropped", &self.dropped)?;
        }
        if !self.stages.is_empty() {
            out.serialize_field("stages", &self.stages)?;
        }
        out.serialize_field("seconds", &(self.elapsed.as_nanos() as f64 / 1e9))?;
        out.end()
    }
}

/// Bytes that were read and could not be written, returned to the caller.
#[non_exhaustive]
pub enum Stranded {
    /// The read end of a pipe that holds [`Report::stranded`] bytes. The
    /// transfer has closed the write end, so the end of file follows the bytes,
    /// unless a child that was forked as the transfer ended still has the write
    /// end open.
    Pipe(OwnedFd),
    /// The bytes.
    Buffer(Vec<u8>),
    /// Whole datagrams, in order.
    Datagrams(Vec<Vec<u8>>),
}

/// The bytes can be many, and private: only their number is shown.
impl fmt::Debug for Stranded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, count) = match self {
            Stranded::Pipe(pipe) => return f.debug_tuple("Pipe").field(pipe).finish(),
            Stranded::Buffer(bytes) => ("Buffer", bytes.len()),
            Stranded::Datagrams(all) => ("Datagrams", all.iter().map(Vec::len).sum()),
        };
        let count = Bytes(count as u64);
        f.debug_tuple(name).field(&format_args!("{count}")).finish()
    }
}

impl Stranded {
    /// Copies these bytes into a buffer, or into a pipe, whose memory belongs
    /// to the kernel, if this process cannot allocate (`RLIMIT_AS`).
    pub(crate) fn copied(bytes: &[u8]) -> Stranded {
        let mut copy = Vec::new();
        if copy.try_reserve_exact(bytes.len()).is_err()
            && let Some(pipe) = OwnedPipe::holding(bytes)
        {
            return Stranded::Pipe(pipe.into_reader());
        }
        copy.extend_from_slice(bytes);
        Stranded::Buffer(copy)
    }

    /// Joins these bytes and the content of this pipe. If no pipe can hold both, returns a
    /// buffer with the bytes up to the first that cannot be read.
    pub(crate) fn before(held: Option<Stranded>, mut pipe: OwnedPipe) -> Stranded {
        let mut bytes = match held {
            Some(Stranded::Buffer(bytes)) => bytes,
            Some(Stranded::Datagrams(all)) => all.concat(),
            Some(before @ Stranded::Pipe(_)) => return before,
            None => Vec::new(),
        };
        let Some(mut all) = OwnedPipe::holding(&bytes) else {
            if bytes.is_empty() {
                return Stranded::Pipe(pipe.into_reader());
            }
            let _ = pipe::read_out(&mut pipe, &mut bytes);
            return Stranded::Buffer(bytes);
        };
        let rest = all.append(pipe);
        bytes.clear();
        let length = all.held() as usize + rest.len();
        if rest.is_empty() || bytes.try_reserve_exact(length).is_err() {
            return Stranded::Pipe(all.into_reader());
        }
        match pipe::read_out(&mut all, &mut bytes) {
            Ok(()) => bytes.extend(rest),
            Err(_) if bytes.is_empty() => return Stranded::Pipe(all.into_reader()),
            Err(_) => {}
        }
        Stranded::Buffer(bytes)
    }
}

/// The report and the stranded bytes of a transfer that has ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The report.
    pub report: Report,
    /// The bytes that count as [`Report::stranded`]; `None` if there are none.
    pub stranded: Option<Stranded>,
}

impl Outcome {
    /// Returns `Err` if the transfer ended with [`Ended::Error`], or has
    /// stranded bytes: a cancelled or idle transfer may have read bytes that
    /// its sink did not accept, and the caller must not lose them.
    ///
    /// # Errors
    ///
    /// A [`Failure`] with the report and the stranded bytes.
    pub fn into_result(self) -> Result<Report, Failure> {
        if self.report.ended == Ended::Error || self.stranded.is_some() {
            Err(Failure {
                refusal: None,
                report: Box::new(self.report),
                stranded: self.stranded,
            })
        } else {
            Ok(self.report)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_handed_back_are_not_lost() {
        let outcome = |stranded| Outcome {
            report: Report {
                read: 8,
                written: 5,
                stranded: 3,
                ended: Ended::Cancelled,
                ..Report::default()
            },
            stranded,
        };
        let failure = outcome(Some(Stranded::Buffer(b"abc".to_vec())))
            .into_result()
            .unwrap_err();
        assert!(matches!(&failure.stranded, Some(Stranded::Buffer(b)) if b == b"abc"));
        assert_eq!(
            failure.to_string(),
            "the transfer ended early (cancelled); \
             5 bytes written, 3 read and returned to the caller"
        );
        assert_eq!(outcome(None).into_result().unwrap().written, 5);
    }

    /// The first pipe is full before the second one is empty: its capacity cannot grow.
    #[test]
    fn bytes_for_which_no_pipe_has_room_are_handed_back_in_a_buffer() {
        let capacity = pipe::default_capacity();
        let first = vec![1; capacity / 2];
        let second: Vec<u8> = (0..capacity).map(|at| (at % 251) as u8).collect();
        if OwnedPipe::holding(&second).is_none() {
            return testkit::skip::report("bytes_for_which_no_pipe", "no pipe of this size here");
        }
        // The pool of this process may have a larger pipe of another test.
        let joined_in_a_buffer = |without_splice| {
            let pipe = OwnedPipe::holding(&second).unwrap();
            let stranded = testkit::refuse::apart(|| {
                let resize = libc::F_SETPIPE_SZ as u32;
                testkit::refuse::refuse_where(testkit::refuse::FCNTL, 1, resize, libc::EPERM);
                if without_splice {
                    testkit::refuse::refuse(&[libc::SYS_splice], libc::ENOSYS);
                }
                Stranded::before(Some(Stranded::Buffer(first.clone())), pipe)
            });
            let Stranded::Buffer(all) = stranded else {
                panic!("no pipe has room: {stranded:?}");
            };
            all == [&first[..], &second].concat()
        };
        for without_splice in [false, true] {
            let fine = testkit::child::in_a_child(|| joined_in_a_buffer(without_splice));
            assert!(fine, "{without_splice}");
        }
    }

    #[test]
    fn one_byte_is_singular() {
        for (count, says) in [(0, "; 0 bytes "), (1, "; 1 byte "), (2, "; 2 bytes ")] {
            let mut report = Report::nothing(Some(Side::Sink), Some(Errno::EIO));
            report.written = count;
            let failure = Failure {
                report: Box::new(report),
                refusal: None,
                stranded: None,
            };
            assert!(failure.to_string().contains(says), "{failure}");
        }
        let refusal = Refusal::SamePipe { holds: 1, help: "" };
        assert!(refusal.to_string().contains("which holds 1 byte: "));
    }

    #[test]
    fn the_bytes_are_not_printed() {
        let printed = format!("{:?}", Some(Stranded::Buffer(vec![7; 1 << 20])));
        assert_eq!(printed, "Some(Buffer(1048576 bytes))");
    }
}
