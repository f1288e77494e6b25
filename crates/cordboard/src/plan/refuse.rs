//! Refusals before any byte moves.

use std::os::fd::BorrowedFd;

use super::Route;
use crate::endpoint::{Endpoint, Facts, Kind, Side, Unexamined};
use crate::errno::Errno;
use crate::report::Refusal;
use crate::request::{Declined, Request, Switches};

/// The largest file offset (`loff_t`).
const END_OF_ANY_FILE: u64 = i64::MAX as u64;

pub(super) fn probe<'a>(
    source: BorrowedFd<'a>,
    sink: BorrowedFd<'a>,
    request: &Request,
) -> Result<(Endpoint<'a>, Endpoint<'a>), Refusal> {
    let source = Endpoint::probe_for(source, None, request.source_offset);
    let source = source.map_err(|failed| unexamined(Side::Source, failed))?;
    let sink = Endpoint::probe_for(sink, Some(&source), request.sink_offset);
    let sink = sink.map_err(|failed| unexamined(Side::Sink, failed))?;
    Ok((source, sink))
}

fn unexamined(side: Side, Unexamined { call, errno }: Unexamined) -> Refusal {
    match errno {
        Errno::EBADF => Refusal::Unusable { side, errno },
        errno => Refusal::Unexamined { side, call, errno },
    }
}

/// Refuses a file that can be opened but has no read or write operation. It may
/// never poll ready either, so a transfer would wait forever. Checked only for
/// kinds that can lack one.
pub(super) fn without_operation(source: &Endpoint<'_>, sink: &Endpoint<'_>) -> Result<(), Refusal> {
    for (side, end) in [(Side::Source, source), (Side::Sink, sink)] {
        if end.lacks_operation(side) {
            return Err(Refusal::NoOperation { side });
        }
    }
    Ok(())
}

pub(super) fn unfit(source: &Facts, sink: &Facts, request: &Request) -> Result<(), Refusal> {
    for (side, facts) in [(Side::Source, source), (Side::Sink, sink)] {
        if facts.kind == Kind::Directory {
            return Err(Refusal::Directory { side });
        }
        if facts.listening {
            return Err(Refusal::Listening { side });
        }
    }
    if !source.readable {
        return Err(Refusal::WrongMode { side: Side::Source });
    }
    if !sink.writable {
        return Err(Refusal::WrongMode { side: Side::Sink });
    }
    // A block device ignores O_APPEND (`Facts::appends`).
    if request.sink_offset.is_some() && sink.append && sink.kind != Kind::BlockDevice {
        return Err(Refusal::AppendOffset);
    }
    let offsets = [
        (Side::Source, source, request.source_offset),
        (Side::Sink, sink, request.sink_offset),
    ];
    for (side, facts, offset) in offsets {
        let Some(offset) = offset else { continue };
        if !facts.is_seekable() {
            return Err(Refusal::NotSeekable {
                side,
                kind: facts.kind,
            });
        }
        if offset > END_OF_ANY_FILE {
            return Err(Refusal::TooLarge);
        }
    }
    if request.sync && !sink.kind.is_cached() {
        return Err(Refusal::NotSyncable { kind: sink.kind });
    }
    Ok(())
}

/// Builds the refusal that lists the allowed paths and why each was declined.
pub(super) fn no_path(route: &Route, switches: Switches) -> Refusal {
    let allowed = |declined: &&Declined| switches.allows(declined.path);
    Refusal::NoPath {
        declined: route.excluded.iter().filter(allowed).cloned().collect(),
    }
}
