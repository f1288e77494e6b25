//! The beginning of compressed data, which is checked before a sink is emptied.

use std::fmt::Display;
use std::os::fd::BorrowedFd;

use cordboard::{Ended, Errno, Report, Request, Side, Size, Stage, StageReport};
use rustix::fs::FileType;

use super::{Staging, cut_by_size};
use crate::files::{is_pseudo, kind};
use crate::problem::{Action, Refused, transfer_failed};
use crate::signals::retry;

impl Staging {
    /// Builds the stage of `--unzstd`. Of a file or a block device, the first header is read at
    /// its position, which stays: data that is not zstd data, or that cannot be decoded here, is
    /// refused, and the memory for its first frame is allocated.
    pub(super) fn unzstd_of(
        &self,
        source: BorrowedFd<'_>,
        request: &Request,
        name: &dyn Display,
    ) -> Result<Stage, Refused> {
        let Some(first) = position(source, request) else {
            return Stage::unzstd().map_err(|errno| self.without_memory(name, errno));
        };
        let left = match request.size {
            Size::Bytes(size) => size,
            _ => u64::MAX,
        };
        let read = |at: u64, into: &mut [u8]| {
            let most = usize::try_from(left.saturating_sub(at)).unwrap_or(usize::MAX);
            let most = most.min(into.len());
            read_all(source, &mut into[..most], first.saturating_add(at))
        };
        Stage::unzstd_of(read).map_err(|(errno, stage)| match errno {
            Errno::ENOMEM => self.without_memory(name, errno),
            _ => self.rejected(source, request, name, (errno, stage)),
        })
    }

    /// What the transfer would have reported.
    fn rejected(
        &self,
        source: BorrowedFd<'_>,
        request: &Request,
        name: &dyn Display,
        (errno, stage): (Errno, StageReport),
    ) -> Refused {
        let mut report = Report::default();
        report.ended = Ended::Error;
        (report.failed, report.errno) = (Some(Side::Source), Some(errno));
        report.read = stage.bytes_in;
        report.stages = vec![stage];
        let hint = cut_by_size(&report, request, self.packed_size(source, request));
        // No byte was taken.
        report.read = 0;
        let problem = transfer_failed(name.to_string(), &report, Action::transfer(source));
        let problem = match hint {
            Some(hint) => problem.help(hint),
            None => problem,
        };
        Refused {
            report: Some(Box::new(report)),
            problem: Box::new(problem),
        }
    }
}

/// Returns the position of the first byte, if a read there takes nothing from the source. A file
/// that is generated on reading may differ the next time.
fn position(source: BorrowedFd<'_>, request: &Request) -> Option<u64> {
    if request.size == Size::Bytes(0) {
        return None;
    }
    let stat = retry(|| cordboard::fstat(source)).ok()?;
    let is_kept = match kind(&stat) {
        FileType::RegularFile => !is_pseudo(source),
        kind => kind == FileType::BlockDevice,
    };
    let position = rustix::fs::tell(source).ok().filter(|_| is_kept)?;
    Some(request.source_offset.unwrap_or(position))
}

/// Reads until the buffer is full or the file ends.
fn read_all(source: BorrowedFd<'_>, into: &mut [u8], position: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < into.len() {
        let at = position.saturating_add(done as u64);
        match retry(|| rustix::io::pread(source, &mut into[done..], at))? {
            0 => break,
            n => done += n,
        }
    }
    Ok(done)
}
