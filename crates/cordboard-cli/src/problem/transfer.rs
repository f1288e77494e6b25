//! The report of a transfer as an error message.

use std::fmt::Display;
use std::os::fd::AsFd;

use cordboard::request::Why;
use cordboard::{Dropped, Ended, Errno, Failure, Refusal, Report, Side};

use super::action::Action;
use super::hints::hint;
use super::message::Problem;
use crate::signals::Interrupted;
use crate::units;

/// Returns the operand of one side, or both.
pub fn operand_of(side: Option<Side>, source: &dyn Display, sink: &dyn Display) -> String {
    match side {
        Some(Side::Source) => source.to_string(),
        Some(Side::Sink) => sink.to_string(),
        None => format!("{source} to {sink}"),
    }
}

/// Returns the result of a transfer that has ended.
pub fn result_of(
    report: &Report,
    (source, source_name): (impl AsFd, &dyn Display),
    (sink, sink_name): (impl AsFd, &dyn Display),
) -> Result<(), Problem> {
    match report.ended {
        Ended::Error => {
            let operand = operand_of(report.failed, source_name, sink_name);
            let action = action_at(report.failed, source, sink);
            Err(transfer_failed(operand, report, action))
        }
        Ended::Cancelled => Err(Interrupted.into()),
        _ => Ok(()),
    }
}

/// Returns the action on the side that has failed.
pub fn action_at(failed: Option<Side>, source: impl AsFd, sink: impl AsFd) -> Action {
    match failed {
        Some(Side::Source) => Action::transfer(source),
        Some(Side::Sink) => Action::transfer(sink),
        None => Action::Transfer,
    }
}

const CANNOT_WAIT: &str = "the transfer must wait, but poll(2) and select(2) are refused (seccomp)";

/// Several transfers that have ended because their thread could not wait. The report has no
/// side that has failed.
pub fn wait_failed(operand: String, report: &Report) -> Problem {
    let problem = transfer_failed(operand, report, Action::Transfer);
    match report.errno {
        Some(Errno::EPERM | Errno::EACCES | Errno::ENOSYS) => problem.help(CANNOT_WAIT),
        _ => problem,
    }
}

/// A transfer that has failed, at a descriptor of this kind.
pub fn transfer_failed(operand: String, report: &Report, action: Action) -> Problem {
    let fault = report.stages.iter().find_map(|stage| stage.fault.clone());
    let no_path = no_path_left(report);
    let hint = match (&fault, report.errno, report.failed) {
        (Some(_), Some(Errno::EBADMSG), Some(Side::Source)) if report.written > 0 => {
            Some("the bytes decoded before the fault were written")
        }
        (_, Some(errno), Some(side)) => hint(errno, side, action),
        (_, _, None) if cannot_wait(report) => Some(CANNOT_WAIT),
        (None, ..) if no_path.is_some() => Some("allow another path: see --route and --without"),
        _ => None,
    };
    let meaning = match (fault, no_path, report.errno) {
        (Some(fault), ..) => fault,
        (None, Some(no_path), _) => no_path,
        (None, None, Some(errno)) => errno.to_string(),
        (None, None, None) => "the transfer failed".to_owned(),
    };
    let written = units::number_of(report.written, "byte");
    let mut text = match report.failed {
        Some(side) => format!("{meaning} at the {side}, after {written}"),
        // It is unknown which side could not be opened again.
        None => format!("{meaning}, after {written}"),
    };
    if report.stranded > 0 {
        text += &format!(" ({})", lost(report));
    }
    // The input of a failed stage is lost.
    if report.failed.is_none() && report.stages.iter().any(|stage| stage.fault.is_some()) {
        let were = if report.read == 1 { "was" } else { "were" };
        text += &format!(" ({} {were} read)", units::number_of(report.read, "byte"));
    }
    if report.truncated > 0 {
        text += &match report.truncated {
            1 => " (1 datagram was truncated)".to_owned(),
            truncated => format!(" ({truncated} datagrams were truncated)"),
        };
    }
    Problem {
        side: report.failed,
        errno: report.errno,
        hint: hint.map(str::to_owned),
        ..Problem::new(operand, text)
    }
}

/// Returns the hint for a range that ends after the largest offset. The first
/// offsets are those of the source and of the sink, if they are known. A call
/// that would move bytes beyond it fails with `EINVAL` (`rw_verify_area`,
/// fs/read_write.c).
pub fn past_largest_offset(
    report: &Report,
    first: (Option<u64>, Option<u64>),
) -> Option<&'static str> {
    /// The most bytes of one call (`MAX_RW_COUNT`, include/linux/fs.h).
    const MOST: u64 = 0x7fff_f000;
    let end = match report.failed? {
        Side::Source => first.0?.saturating_add(report.read),
        Side::Sink => first.1?.saturating_add(report.written),
    };
    let exceeds = report.errno == Some(Errno::EINVAL) && end > i64::MAX as u64 - MOST;
    exceeds.then_some("the range exceeds 2^63-1, the largest offset")
}

/// Returns the reason of the last path, if no path of the route is left.
fn no_path_left(report: &Report) -> Option<String> {
    let last = report.no_path_left()?;
    let reason = match &last.why {
        Why::CannotWait => return None,
        Why::Errno(errno) => format!(": {errno}"),
        why => format!(" ({why})"),
    };
    Some(format!(
        "no usable data path is left: {}{reason}",
        last.path
    ))
}

fn cannot_wait(report: &Report) -> bool {
    let mut all = report.declined.iter();
    all.any(|declined| declined.why == Why::CannotWait)
}

fn lost(report: &Report) -> String {
    let origin = match changes_bytes(report) {
        true => "produced from what was read",
        false => "read",
    };
    match report.stranded {
        1 => format!("1 more byte was {origin} and is lost"),
        stranded => format!("{stranded} more bytes were {origin} and are lost"),
    }
}

/// Whether the stages write other bytes than they read.
pub fn changes_bytes(report: &Report) -> bool {
    let mut stages = report.stages.iter();
    stages.any(|stage| matches!(stage.stage, "zstd" | "unzstd"))
}

/// Returns the message about bytes that an idle limit has lost: they were read
/// from the source, and the sink did not take them.
pub fn lost_by_idle_limit(report: &Report, sink: &dyn Display) -> Option<String> {
    let lose = report.ended == Ended::Idle && report.stranded > 0;
    lose.then(|| {
        format!(
            "cordboard: {sink}: idle limit reached at the sink, after {} ({})",
            units::number_of(report.written, "byte"),
            lost(report)
        )
    })
}

/// What is left in a source.
pub enum Left {
    /// The bytes of a file.
    Bytes(u64),
    /// The bytes of another source that can be read now.
    Ready(u64),
}

/// Returns the message about an idle limit that has ended a transfer although the source has more
/// bytes: the sink took none.
pub fn left_by_idle_limit(
    report: &Report,
    left: impl FnOnce() -> Left,
    sink: &dyn Display,
) -> Option<String> {
    if report.ended != Ended::Idle {
        return None;
    }
    let bytes = |number| units::number_of(number, "byte");
    let left = match left() {
        Left::Bytes(0) | Left::Ready(0) => return None,
        Left::Bytes(left) => format!("{} of the source are left", bytes(left)),
        Left::Ready(_) => "the source has more".to_owned(),
    };
    let after = bytes(report.written);
    Some(format!(
        "cordboard: {sink}: idle limit reached, after {after} ({left})"
    ))
}

/// Returns the warning about datagrams that were dropped, because they were too long for the
/// sink.
pub fn dropped_line(report: &Report, sink: &dyn Display) -> Option<String> {
    let Dropped {
        datagrams, bytes, ..
    } = report.dropped;
    let were = match datagrams {
        0 => return None,
        1 => "datagram was",
        _ => "datagrams were",
    };
    Some(format!(
        "cordboard: {sink}: {datagrams} {were} too long for the sink (EMSGSIZE) and dropped: {}",
        units::number_of(bytes, "byte")
    ))
}

/// The line about bytes that the peer of a socket has not acknowledged at the end.
pub fn unacknowledged_line(bytes: u64, sink: &dyn Display) -> String {
    let bytes = units::number_of(bytes, "byte");
    format!("cordboard: {sink}: warning: the peer has not acknowledged {bytes}")
}

/// A transfer that was not started.
#[derive(Debug)]
pub struct Refused {
    /// The library's report, if there is one.
    pub report: Option<Box<Report>>,
    /// The reason.
    pub problem: Box<Problem>,
}

impl Refused {
    /// Returns what a transfer would: its report, and its result.
    pub fn into_moved(self) -> (Option<Report>, Result<(), Problem>) {
        (self.report.map(|report| *report), Err(*self.problem))
    }

    /// From the library's error.
    pub fn of(failure: &Failure, source: &dyn Display, sink: &dyn Display) -> Refused {
        let operand = operand_of(failure.report.failed, source, sink);
        Refused {
            report: Some(failure.report.clone()),
            problem: Box::new(request_refused(operand, failure)),
        }
    }
}

/// Returns the reason of a refusal. What helps is in [`refusal_hint`]: the
/// library's text can name calls of its interface.
fn refusal_text(refusal: &Refusal) -> String {
    match refusal {
        Refusal::NoDescriptor { errno } => {
            format!("no descriptor is available for the transfer: {errno}")
        }
        Refusal::NotSyncable { kind } => {
            format!("the sink is a {kind}, which cannot be synced (EINVAL)")
        }
        Refusal::NotSeekable { side, kind } => {
            format!("the {side} is a {kind}, which cannot seek (ESPIPE)")
        }
        Refusal::AppendOffset => "the sink is open with O_APPEND (EINVAL)".to_owned(),
        refusal => refusal.to_string(),
    }
}

/// Returns what helps against a refusal.
fn refusal_hint(refusal: &Refusal) -> Option<&'static str> {
    match refusal {
        Refusal::Directory { side } => hint(Errno::EISDIR, *side, Action::Transfer),
        Refusal::NotSeekable { side, .. } => hint(Errno::ESPIPE, *side, Action::Transfer),
        Refusal::NoDescriptor { errno } => hint(*errno, Side::Sink, Action::Open),
        Refusal::AppendOffset => {
            Some("omit --sink-offset, or open the file with <> instead of >> in the shell")
        }
        Refusal::NotSyncable { .. } => Some("omit --sync"),
        Refusal::NoPath { .. } => {
            Some("see cordboard explain, and allow another path: see --route and --without")
        }
        _ => None,
    }
}

/// A refusal by the library that concerns one operand.
pub fn refusal_problem(operand: &str, side: Side, refusal: &Refusal) -> Problem {
    Problem {
        hint: refusal_hint(refusal).map(str::to_owned),
        ..Problem::refused(operand, side, refusal.errno(), refusal_text(refusal))
    }
}

/// A request that the library refused before any byte moved.
pub fn request_refused(operand: String, failure: &Failure) -> Problem {
    let report = &failure.report;
    let Some(refusal) = &failure.refusal else {
        return transfer_failed(operand, report, Action::Transfer);
    };
    let usage = matches!(refusal, Refusal::BadSwitch(_));
    let operand = if usage { String::new() } else { operand };
    Problem {
        side: report.failed,
        errno: report.errno,
        hint: refusal_hint(refusal).map(str::to_owned),
        usage,
        ..Problem::new(operand, refusal_text(refusal))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use cordboard::{DataPath, Request, Switches, Transfer};

    use super::*;

    #[test]
    fn the_largest_offset_is_named_near_it() {
        let mut report = Report::default();
        (report.read, report.written) = (1 << 20, 1 << 20);
        let hint = |failed, errno, first| {
            let mut report = report.clone();
            (report.failed, report.errno) = (failed, Some(errno));
            past_largest_offset(&report, first).is_some()
        };
        let (sink, source) = (Some(Side::Sink), Some(Side::Source));
        let near = Some((1 << 63) - (1 << 31));
        assert!(hint(sink, Errno::EINVAL, (None, near)));
        assert!(hint(source, Errno::EINVAL, (near, None)));
        assert!(hint(sink, Errno::EINVAL, (None, Some(u64::MAX))));
        assert!(!hint(source, Errno::EINVAL, (None, near)));
        assert!(!hint(sink, Errno::EINVAL, (near, Some(1 << 62))));
        assert!(!hint(sink, Errno::EFBIG, (None, near)));
        assert!(!hint(None, Errno::EINVAL, (near, near)));
    }

    /// Its errno alone says nothing. A failure of a side after a path has declined is another.
    #[test]
    fn the_reason_of_the_last_path_is_named_if_none_is_left() {
        let request = Request {
            switches: Some(Switches::only(&[DataPath::Datagram])),
            ..Request::default()
        };
        let source = File::open("/dev/zero").unwrap();
        let sink = File::create("/dev/null").unwrap();
        let refused = Transfer::new(source.as_fd(), sink.as_fd(), request).err();
        let mut report = *refused.unwrap().report;
        let failed = |report: &Report| {
            transfer_failed("a to b".to_owned(), report, Action::Transfer).to_string()
        };
        let says = "cordboard: a to b: no usable data path is left: datagram (";
        let why = failed(&report);
        assert!(
            why.starts_with(says) && why.contains("), after 0 bytes; allow another"),
            "{why}"
        );
        (report.failed, report.errno) = (Some(Side::Sink), Some(Errno::EIO));
        assert!(!failed(&report).contains("datagram"));
    }

    #[test]
    fn one_byte_is_singular() {
        let mut report = Report::default();
        report.failed = Some(Side::Sink);
        report.errno = Some(Errno::EIO);
        for (count, says) in [
            (1, ", after 1 byte (1 more byte was read and is lost)"),
            (2, ", after 2 bytes (2 more bytes were read and are lost)"),
        ] {
            (report.written, report.stranded) = (count, count);
            let failed = transfer_failed(String::new(), &report, Action::Transfer);
            assert!(failed.text.ends_with(says), "{}", failed.text);
        }
    }
}
