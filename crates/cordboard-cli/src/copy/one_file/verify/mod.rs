//! `--verify`: reads back what was written and compares it.
//!
//! If the bytes passed through user space, the bytes read back must have the
//! hash that was computed on the way. After a clone or a copy within the
//! kernel, both files are read and compared. The sink is read from the device,
//! not from the page cache, as far as the file system drops its pages.

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use cordboard::{Errno, Report, Side};
use rustix::fs::{Advice, FileType, Mode, OFlags};
use xxhash_rust::xxh3::Xxh3Default;

use super::appended::behind;
use super::finish::CopyObserver;
use super::opened::{Opened, SinkFile};
use super::read_once::seeks;
use crate::copy::job::Job;
use crate::copy::place::Place;
use crate::files::{is_pseudo, kind};
use crate::memory;
use crate::problem::Action;
use crate::problem::Problem;
use crate::signals::{Interrupted, check_stop, retry, stop};
use crate::sys::close;
use crate::units::number_of;

/// Bytes of either file that are compared at a time.
const PIECE: usize = 1 << 20;

/// Refuses a sink that cannot be read back, before it is truncated or written to.
pub fn can_be_read_back(sink: BorrowedFd<'_>, to: &Place<'_>) -> Result<(), Problem> {
    let stat = retry(|| cordboard::fstat(sink))
        .map_err(|e| Problem::call(to.shown(), Side::Sink, e, Action::Open))?;
    let text = match kind(&stat) {
        // fdatasync(2) fails, and its contents may differ from those that were written.
        FileType::RegularFile if is_pseudo(sink) => "is a pseudo file, which cannot be verified",
        FileType::RegularFile => return Ok(()),
        _ => return Err(not_regular(to)),
    };
    Err(Problem::refused(to.shown(), Side::Sink, Errno::EINVAL, text).help("omit --verify"))
}

/// Refuses a sink that is not a regular file.
pub fn not_regular(to: &Place<'_>) -> Problem {
    let text = "is not a regular file, and cannot be read back";
    Problem::refused(to.shown(), Side::Sink, Errno::EINVAL, text).help("omit --verify")
}

impl Job {
    /// Compares the sink with what was to be written: the number of bytes and
    /// their values. They are behind those that the sink had, where they were
    /// appended, or at the offset. Other processes may have written more, behind
    /// or beside them.
    pub fn verified(
        &self,
        opened: &Opened,
        (from, to): (&Place<'_>, &Place<'_>),
        report: &Report,
        watch: &mut dyn CopyObserver,
    ) -> Result<(), Problem> {
        let mut seen = |bytes: usize| {
            let bytes = bytes as u64;
            watch.read_back(self.read_back.fetch_add(bytes, Ordering::Relaxed) + bytes);
        };
        let (source, sink) = opened.ends();
        let failed = |e: Errno, action| Problem::call(to.shown(), Side::Sink, e, action);
        // Dirty pages cannot be dropped from the page cache.
        retry(|| rustix::fs::fdatasync(sink)).map_err(|e| failed(e.into(), Action::Sync))?;
        let failed = |e| failed(e, Action::ReadBack);
        let SinkFile { start, before, .. } = opened.sink;
        let here = match &opened.appended {
            Some(appended) => appended.ranges(report.written, start),
            None => vec![behind(start, report.written)],
        };
        let back = self
            .spares
            .retry_without_spares(|| read_back(sink))
            .map_err(|e| failed(e.into()))?;
        skip(back.as_fd(), start).map_err(|e| failed(e.into()))?;
        let stat = retry(|| cordboard::fstat(&back)).map_err(|e| failed(e.into()))?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let end = here.last().map_or(start, |range| range.end);
        let whole = match report.written {
            // An offset alone does not lengthen a file.
            0 => before,
            _ => end.max(before),
        };
        let others = opened.appended.is_some() || self.request.sink_offset.is_some();
        if size < whole || (size > whole && !others) {
            let text = format!("holds {} instead of {whole}", number_of(size, "byte"));
            return Err(mismatch(to, report, text));
        }
        let plain = !self.staging.stages.transform();
        let on_the_way = report.stages.last().and_then(|s| s.digest.as_deref());
        match on_the_way {
            Some(expected) => {
                let found = self.hash(back.as_fd(), to, &here, &mut seen)?;
                if found != expected {
                    let sums = format!("read back, its xxh3 is {found}, expected {expected}");
                    // A file that cannot seek has been read by now.
                    let again = !opened.read_once && seeks(back.as_fd());
                    let text = match plain && again {
                        true => {
                            let back = (back.as_fd(), to);
                            self.difference((source, from), back, &here, &mut |_| {})?
                        }
                        false => None,
                    };
                    return Err(mismatch(to, report, text.unwrap_or(sums)));
                }
            }
            None => {
                let back = (back.as_fd(), to);
                if let Some(text) = self.difference((source, from), back, &here, &mut seen)? {
                    return Err(mismatch(to, report, text));
                }
            }
        }
        match back.close() {
            // fdatasync(2) has succeeded.
            Err(rustix::io::Errno::INTR) => Ok(()),
            closed => closed.map_err(|errno| Problem::closing(to.shown(), errno)),
        }
    }

    /// Hashes ranges, as far as they exist. Calls `seen` with the size of each piece.
    fn hash(
        &self,
        file: BorrowedFd<'_>,
        to: &Place<'_>,
        here: &[Range<u64>],
        seen: &mut dyn FnMut(usize),
    ) -> Result<String, Problem> {
        let mut hash = Xxh3Default::new();
        let mut buffer = memory::buffer(0, PIECE)
            .map_err(|e| Problem::call(to.shown(), Side::Sink, e, Action::ReadBack))?;
        let piece = buffer.len();
        for range in here {
            let mut at = range.start;
            while at < range.end {
                check_stop()?;
                let want = usize::try_from(range.end - at).map_or(piece, |left| left.min(piece));
                let got = fill(file, &mut buffer[..want], at)
                    .map_err(|e| Problem::call(to.shown(), Side::Sink, e, Action::ReadBack))?;
                hash.update(&buffer[..got]);
                seen(got);
                at += got as u64;
                if got < want {
                    break;
                }
            }
        }
        Ok(format!("{:016x}", hash.digest()))
    }

    /// Describes the first byte that differs. Calls `seen` with the size of each piece that
    /// does not differ.
    fn difference(
        &self,
        (source, from): (BorrowedFd<'_>, &Place<'_>),
        (back, to): (BorrowedFd<'_>, &Place<'_>),
        here: &[Range<u64>],
        seen: &mut dyn FnMut(usize),
    ) -> Result<Option<String>, Problem> {
        let reading = |side: Side, e: Errno| {
            let place = match side {
                Side::Source => from,
                Side::Sink => to,
            };
            Problem::call(place.shown(), side, e, Action::ReadBack)
        };
        let begin = self.request.source_offset.unwrap_or(0);
        let source = (self.spares)
            .retry_without_spares(|| reopened(source))
            .map_err(|e| reading(Side::Source, e.into()))?;
        let mut before = 0;
        for range in here {
            let sides = [(source.as_fd(), begin + before), (back, range.start)];
            let length = range.end - range.start;
            let found = first_difference(sides, length, seen).map_err(|e| match e {
                Stop::Failed(side, e) => reading(side, e),
                Stop::Interrupted => Interrupted.into(),
            })?;
            if let Some(mut difference) = found {
                difference.at += before;
                return Ok(Some(difference.to_string()));
            }
            before += length;
        }
        Ok(None)
    }
}

/// Opens the sink, which is open for reading too, with as little of it in the
/// page cache as possible.
fn read_back(sink: BorrowedFd<'_>) -> rustix::io::Result<Back<'_>> {
    let back = reopened(sink)?;
    // Only a hint: a file system in memory cannot drop its pages.
    let _ = rustix::fs::fadvise(&back, 0, None, Advice::DontNeed);
    Ok(back)
}

/// A file that is read again.
enum Back<'a> {
    /// By offsets, through the existing descriptor.
    Same(BorrowedFd<'a>),
    /// From its start, because it cannot seek.
    Again(OwnedFd),
}

impl Back<'_> {
    /// Closes a descriptor of its own. A FUSE server is flushed by each close, and may report
    /// only by the first that it has no space.
    fn close(self) -> rustix::io::Result<()> {
        match self {
            Back::Same(_) => Ok(()),
            Back::Again(fd) => close(fd),
        }
    }
}

impl AsFd for Back<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Back::Same(fd) => *fd,
            Back::Again(fd) => fd.as_fd(),
        }
    }
}

fn reopened(file: BorrowedFd<'_>) -> rustix::io::Result<Back<'_>> {
    if seeks(file) {
        return Ok(Back::Same(file));
    }
    let very = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    retry(|| rustix::fs::open(&very, flags, Mode::empty())).map(Back::Again)
}

/// Reads over the bytes before, if the file cannot seek.
fn skip(file: BorrowedFd<'_>, mut bytes: u64) -> rustix::io::Result<()> {
    if seeks(file) {
        return Ok(());
    }
    let mut piece = vec![0; 64 << 10];
    while bytes > 0 {
        let most = usize::try_from(bytes).map_or(piece.len(), |n| n.min(piece.len()));
        match fill(file, &mut piece[..most], 0)? {
            0 => break,
            n => bytes -= n as u64,
        }
    }
    Ok(())
}

/// Where two files differ.
#[derive(Debug, PartialEq, Eq)]
struct Difference {
    at: u64,
    expected: Option<u8>,
    found: Option<u8>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let byte = |byte: Option<u8>| byte.map_or("the end".to_owned(), |b| format!("{b:#04x}"));
        let (expected, found) = (byte(self.expected), byte(self.found));
        write!(
            f,
            "differs from the source at byte {}: expected {expected}, found {found}",
            self.at
        )
    }
}

/// Why the comparison was not completed.
#[derive(Debug, PartialEq, Eq)]
enum Stop {
    Failed(Side, Errno),
    Interrupted,
}

/// Compares so many bytes of a source and a sink, each from an offset. Calls `seen` with the
/// size of each piece that does not differ.
fn first_difference(
    sides: [(BorrowedFd<'_>, u64); 2],
    length: u64,
    seen: &mut dyn FnMut(usize),
) -> Result<Option<Difference>, Stop> {
    let room = |side| memory::buffer(0, PIECE).map_err(|e| Stop::Failed(side, e));
    let mut buffers = [room(Side::Source)?, room(Side::Sink)?];
    let piece = buffers[0].len().min(buffers[1].len());
    let mut at = 0;
    while at < length {
        check_stop().map_err(|_| Stop::Interrupted)?;
        let want = usize::try_from(length - at).map_or(piece, |left| left.min(piece));
        let mut got = [0; 2];
        for (index, side) in [Side::Source, Side::Sink].into_iter().enumerate() {
            let (file, start) = sides[index];
            let read = fill(file, &mut buffers[index][..want], start + at);
            got[index] = read.map_err(|e| Stop::Failed(side, e.into()))?;
        }
        let [expected, found] = [&buffers[0][..got[0]], &buffers[1][..got[1]]];
        if expected != found {
            let same = expected.iter().zip(found).take_while(|(a, b)| a == b);
            let same = same.count();
            return Ok(Some(Difference {
                at: at + same as u64,
                expected: expected.get(same).copied(),
                found: found.get(same).copied(),
            }));
        }
        if got[0] < want {
            // Both end here, before the number of bytes that was written.
            return Ok(Some(Difference {
                at: at + got[0] as u64,
                expected: None,
                found: None,
            }));
        }
        at += want as u64;
        seen(want);
    }
    Ok(None)
}

/// Fills the buffer, or reads up to the end.
fn fill(file: BorrowedFd<'_>, into: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
    let mut done = 0;
    let mut in_turn = false;
    while done < into.len() {
        let read = match in_turn {
            false => rustix::io::pread(file, &mut into[done..], offset + done as u64),
            true => rustix::io::read(file, &mut into[done..]),
        };
        match read {
            // It has no positions; its next read is at that place (`reopened`).
            Err(rustix::io::Errno::SPIPE) if !in_turn => in_turn = true,
            Ok(0) => break,
            Ok(n) => done += n,
            Err(rustix::io::Errno::INTR) if stop().is_none() => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// The sink differs from what it should be.
fn mismatch(to: &Place<'_>, report: &Report, text: String) -> Problem {
    let paths: Vec<&str> = report.path.iter().map(|p| p.name()).collect();
    let text = format!("not verified: {text}");
    // No lock keeps other processes from either file.
    let meanwhile = "copy it again if another process was writing to either file";
    let help = match paths.last() {
        Some(path) if *path != "read/write" => {
            format!(
                "{meanwhile}; otherwise copy it by another path: --without {}",
                paths.join(",")
            )
        }
        _ => format!("{meanwhile}; otherwise the device or the memory may be failing"),
    };
    Problem::refused(to.shown(), Side::Sink, Errno::EIO, text).help(help)
}

#[cfg(test)]
mod tests;
