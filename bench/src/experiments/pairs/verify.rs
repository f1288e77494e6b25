//! Checks whether a pair works, comparing every byte.

use std::os::fd::AsFd;

use anyhow::{Context, Result};
use cordboard::{Errno, Report, Request, Size, Transfer};
use testkit::table::Entry;
use testkit::{Ask, Collected, Sink, SinkKind, Source, SourceKind, Spec, matrix, model};

/// The library's report of one transfer, also of a refused one.
pub fn transfer(source: &Source, sink: &Sink) -> Report {
    let request = Request {
        size: match source.ask {
            Ask::Eof => Size::Eof,
            Ask::Bytes(n) => Size::Bytes(n),
        },
        ..Request::default()
    };
    match Transfer::new(source.as_fd(), sink.as_fd(), request) {
        Ok(transfer) => transfer.run().report,
        Err(failure) => *failure.report,
    }
}

/// A source and a sink for checking.
fn fixtures(source: SourceKind, sink: SinkKind) -> Result<(Source, Sink)> {
    let size = matrix::bounded(source, sink, matrix::TABLE_SIZE);
    let spec = Spec::verify(size);
    let made = Source::make(source, &spec).context("making the source")?;
    let sink = Sink::make(sink, &spec).context("making the sink")?;
    Ok((made, sink))
}

/// The entry of this pair in the table, without the ratio.
pub fn verify(source: SourceKind, sink: SinkKind) -> Result<Entry> {
    let (from, to) = fixtures(source, sink)?;
    let report = transfer(&from, &to);
    let found = to.finish(report.written)?;
    if let Err(wrong) = found.check(&from.expect, report.written) {
        return Ok(Entry::Wrong(wrong));
    }
    let whole = report.written == from.expect.len();
    if let Some(errno) = report.errno {
        return failure(source, sink, errno);
    }
    if !whole {
        let total = from.expect.len();
        let why = format!("ended after {} of {total} bytes", report.written);
        return Ok(Entry::Wrong(why));
    }
    if let (Some(sent), Collected::Bytes(_, Some(came))) = (&from.messages, &found)
        && sent != came
    {
        return Ok(Entry::Wrong("message boundaries were not kept".to_owned()));
    }
    let names: Vec<&str> = report.path.iter().map(|path| path.name()).collect();
    Ok(Entry::Moved {
        path: names.join("+"),
        ratio: None,
    })
}

/// A failure is correct if the plain loop fails with the same errno.
fn failure(source: SourceKind, sink: SinkKind, errno: Errno) -> Result<Entry> {
    let (from, to) = fixtures(source, sink)?;
    let size = from.ask.size();
    let plain = model::run(from.as_fd(), to.as_fd(), size, sink.piece());
    let name = format!("{errno:?}");
    Ok(match plain.failed {
        Some((_, wanted)) if wanted == errno.raw() => Entry::FailsAlike(name),
        _ => Entry::Wrong(name),
    })
}
