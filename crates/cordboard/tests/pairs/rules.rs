//! The rules of a right result.

use crate::cell::{Cell, Run};
use cordboard::{DataPath, Ended, Side};
use testkit::{Ask, SinkKind, SourceKind};

type RuleResult = Result<(), String>;

fn ensure(right: bool, wrong: impl FnOnce() -> String) -> RuleResult {
    if right { Ok(()) } else { Err(wrong()) }
}

/// Compares the library with the model.
pub fn check(cell: &Cell, model: &Run, library: &Run) -> RuleResult {
    account(library)?;
    match (model.failed, library.failed) {
        (_, None) => complete(cell, model, library),
        (None, Some(failed)) if by_luck(cell, failed) => Ok(()),
        (None, Some(_)) => Err("fails where read/write works".to_owned()),
        (Some(model), Some(library)) => ensure(model == library || by_luck(cell, library), || {
            format!("fails with {library:?}, read/write with {model:?}")
        }),
    }
}

/// A forced path may refuse a pair, or fail. It must not lose bytes, and no other
/// path may carry any.
pub fn check_forced(path: DataPath, library: &Run) -> RuleResult {
    account(library)?;
    ensure(library.path.iter().all(|taken| *taken == path), || {
        format!("{:?} was taken", library.path)
    })?;
    if library.failed.is_none() {
        ensure(library.written == library.expect.len(), || {
            format!("of {} bytes", library.expect.len())
        })?;
    }
    Ok(())
}

/// Whether a write may fail because of the length of the source's pieces: an event
/// counter requires 8 bytes at a time.
fn by_luck(cell: &Cell, failed: (Side, i32)) -> bool {
    let even = cell.source.is_seekable() && cell.size.is_multiple_of(8);
    cell.sink == SinkKind::Eventfd && !even && failed == (Side::Sink, libc::EINVAL)
}

/// The rules of every ending.
fn account(run: &Run) -> RuleResult {
    let Run {
        read,
        written,
        stranded,
        ..
    } = run;
    ensure(*read == written + stranded, || {
        "read is not written plus stranded".to_owned()
    })?;
    ensure(run.handed_back.len() as u64 == *stranded, || {
        format!("{} bytes were handed back", run.handed_back.len())
    })?;
    let whole = run.expect.check_at(*written, &run.handed_back);
    whole.map_err(|wrong| format!("handed back: {wrong}"))?;
    let found = run.found.as_ref().map_err(Clone::clone)?;
    found.check(&run.expect, *written)?;
    if let [Some(position), _] = run.positions {
        ensure(position == *read, || format!("the source is at {position}"))?;
        ensure(*stranded == 0, || "the source was not rewound".to_owned())?;
    }
    ensure(run.failed.is_some() || *stranded == 0, || {
        "stranded without a failure".to_owned()
    })?;
    ensure(
        *written == 0 || !run.path.is_empty() || run.ended.is_none(),
        || "no path is named".to_owned(),
    )
}

/// The rules of a complete transfer.
fn complete(cell: &Cell, model: &Run, library: &Run) -> RuleResult {
    let total = library.expect.len();
    ensure(library.written == total, || {
        format!("{} bytes of {total}", library.written)
    })?;
    let ended = match library.ask {
        Ask::Bytes(n) if n == total => Ended::Size,
        _ => Ended::Eof,
    };
    ensure(library.ended == Some(ended), || {
        format!("ended by {:?}, not {ended:?}", library.ended)
    })?;
    // The loop stops at a false end: if the peer sends and closes between two checks of
    // the kernel, a sequenced-packet socket returns 0 although packets are queued
    // (`__unix_dgram_recvmsg`, net/unix/af_unix.c). The library queries the queue too.
    let is_whole = model.failed.is_none() && model.written == total;
    let may_end_early = cell.source == SourceKind::UnixSeqpacket;
    ensure(is_whole || model.failed.is_some() || may_end_early, || {
        format!("the loop stopped after {} bytes of {total}", model.written)
    })?;
    if is_whole {
        ensure(model.positions == library.positions, || {
            format!(
                "positions are {:?}, not {:?}",
                library.positions, model.positions
            )
        })?;
    }
    let found = library.found.as_ref().map_err(Clone::clone)?;
    match (&library.messages, found.messages()) {
        (Some(sent), Some(came)) if cell.sink.keeps_messages() => {
            ensure(sent == came, || boundaries(sent, came))
        }
        _ => Ok(()),
    }
}

fn boundaries(sent: &[usize], came: &[usize]) -> String {
    let at = sent.iter().zip(came).position(|(a, b)| a != b);
    let (sent, came) = (sent.len(), came.len());
    format!("{sent} messages became {came}, differing from number {at:?} on")
}
