//! What a transfer's report says, as a problem for people.

use std::fmt::Display;
use std::os::fd::AsFd;

use cordboard::request::Why;
use cordboard::{Ended, Errno, Failure, Refusal, Report, Side};

use crate::hints::{Doing, hint};
use crate::problem::Problem;
use crate::stages;

/// Who is to be named: one side, or both.
pub fn operand(side: Option<Side>, source: &dyn Display, sink: &dyn Display) -> String {
    match side {
        Some(Side::Source) => source.to_string(),
        Some(Side::Sink) => sink.to_string(),
        None => format!("{source} to {sink}"),
    }
}

/// How a transfer that has ended went.
pub fn ended(
    report: &Report,
    (source, source_name): (impl AsFd, &dyn Display),
    (sink, sink_name): (impl AsFd, &dyn Display),
) -> Result<(), Problem> {
    match report.ended {
        Ended::Error => {
            let operand = operand(report.failed, source_name, sink_name);
            Err(failed(operand, report, moving(report.failed, source, sink)))
        }
        Ended::Cancelled => Err(Problem::interrupted()),
        _ => Ok(()),
    }
}

/// Moving bytes of the side that has failed.
pub fn moving(failed: Option<Side>, source: impl AsFd, sink: impl AsFd) -> Doing {
    match failed {
        Some(Side::Source) => Doing::moving(source),
        Some(Side::Sink) => Doing::moving(sink),
        None => Doing::Moving,
    }
}

/// A failure in the midst of a transfer, by a descriptor of this kind.
pub fn failed(operand: String, report: &Report, doing: Doing) -> Problem {
    let fault = report.stages.iter().find_map(|stage| stage.fault.clone());
    let hint = match (&fault, report.errno, report.failed) {
        (Some(_), Some(Errno::EBADMSG), Some(Side::Source)) if report.written > 0 => {
            Some("what was made of the bytes before it is written")
        }
        (_, Some(errno), Some(side)) => hint(errno, side, doing),
        (_, _, None) if cannot_wait(report) => {
            Some("poll(2) and select(2) are refused here, and it has to wait")
        }
        _ => None,
    };
    let meaning = match (fault, report.errno) {
        (Some(fault), _) => fault,
        (None, Some(errno)) => errno.to_string(),
        (None, None) => "it failed".to_owned(),
    };
    let mut text = match report.failed {
        Some(side) => format!("{meaning} at the {side}, after {} bytes", report.written),
        // Of a file that is opened anew, which of the two it was is not told.
        None => format!("{meaning}, after {} bytes", report.written),
    };
    if report.stranded > 0 {
        text += &format!(" ({})", lost(report));
    }
    // What a stage was to work on is gone with it.
    if report.failed.is_none() && report.stages.iter().any(|stage| stage.fault.is_some()) {
        text += &format!(" ({} were read)", report.read);
    }
    if report.truncated > 0 {
        text += &format!(" ({} datagrams were cut)", report.truncated);
    }
    Problem {
        operand,
        side: report.failed,
        errno: report.errno,
        text,
        hint: hint.map(str::to_owned),
        usage: false,
    }
}

fn cannot_wait(report: &Report) -> bool {
    let mut all = report.declined.iter();
    all.any(|declined| declined.why == Why::CannotWait)
}

fn lost(report: &Report) -> String {
    let came = match stages::make_others(report) {
        true => "made of what was read",
        false => "read",
    };
    format!("{} more were {came}, and are lost", report.stranded)
}

/// What is told of an idle limit that was reached with bytes in hand: the sink
/// is stuck, and they are gone from the source.
pub fn lost_by_idling(report: &Report, sink: &dyn Display) -> Option<String> {
    let lose = report.ended == Ended::Idle && report.stranded > 0;
    lose.then(|| {
        format!(
            "cordboard: {sink}: nothing has moved for the idle limit at the sink, after {} bytes ({})",
            report.written,
            lost(report)
        )
    })
}

/// A transfer that was not begun.
#[derive(Debug)]
pub struct Refused {
    /// Of the library, if it was asked.
    pub report: Option<Box<Report>>,
    /// Why.
    pub problem: Box<Problem>,
}

impl Refused {
    /// From what the library says.
    pub fn of(failure: &Failure, source: &dyn Display, sink: &dyn Display) -> Refused {
        let operand = operand(failure.report.failed, source, sink);
        Refused {
            report: Some(failure.report.clone()),
            problem: Box::new(refused(operand, failure)),
        }
    }
}

/// A request that was refused before anything moved.
pub fn refused(operand: String, failure: &Failure) -> Problem {
    let report = &failure.report;
    let Some(refusal) = &failure.refusal else {
        return failed(operand, report, Doing::Moving);
    };
    let help = match refusal {
        Refusal::Directory { side } => hint(Errno::EISDIR, *side, Doing::Moving),
        Refusal::NotSeekable { side, .. } => hint(Errno::ESPIPE, *side, Doing::Moving),
        Refusal::NoPath { .. } => Some("see `cordboard explain`, and allow another with --route"),
        _ => None,
    };
    let usage = matches!(refusal, Refusal::BadSwitch(_));
    Problem {
        operand: if usage { String::new() } else { operand },
        side: report.failed,
        errno: report.errno,
        text: refusal.to_string(),
        hint: help.map(str::to_owned),
        usage,
    }
}
