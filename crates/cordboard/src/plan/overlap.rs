//! Source and sink are one file or pipe: which transfers are possible and which are
//! refused.

use crate::endpoint::{Endpoint, Facts, Kind};
use crate::pair::Relation;
use crate::pipe::{self, Contents};
use crate::report::Refusal;
use crate::request::{Request, Size};

/// The constraint on a transfer within one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Within {
    /// The ranges are disjoint: any path works.
    Apart,
    /// The sink's range begins below the source's. Correct only if each block is
    /// read in full before it is written, so only by read/write.
    Downwards,
}

/// Refuses transfers within one file or pipe that cannot complete correctly, and
/// returns the constraint on the others.
pub(crate) fn within(
    source: &Endpoint<'_>,
    sink: &Endpoint<'_>,
    relation: Relation,
    request: &Request,
) -> Result<Within, Refusal> {
    match relation {
        Relation::Strangers => Ok(Within::Apart),
        _ if source.kind().is_pipe() => {
            let Some(contents) = pipe::contents(source.fd(), sink.fd()) else {
                return Err(Refusal::SamePipe {
                    holds: 0,
                    help: "another process is splicing into it, which holds its lock",
                });
            };
            within_pipe(&contents, request.size)
        }
        _ => within_file(source.facts(), sink.facts(), relation, request),
    }
}

/// Checks a pipe spliced onto itself. A size no larger than the pipe's contents
/// goes through once, by read/write. A larger one would read its own output forever:
/// end of file never comes, because this process holds the write end.
///
/// In a full pipe, a read of part of a page frees no slot, so a write finds no
/// room. Then the size must be all of the contents, which frees every page, or 0.
///
/// Only the current contents are considered. If another process reads the pipe
/// meanwhile, the transfer waits for the bytes that it took.
fn within_pipe(contents: &Contents, size: Size) -> Result<Within, Refusal> {
    let holds = contents.bytes;
    let help = match size {
        Size::Eof => "end of file never comes: give a size of no more than that",
        Size::Bytes(n) if n > holds => "give a size of no more than that",
        Size::Bytes(n) if contents.full && n != holds && n != 0 => {
            "it is full: give just that size, or read some of it first"
        }
        Size::Bytes(_) => return Ok(Within::Downwards),
    };
    Err(Refusal::SamePipe { holds, help })
}

fn within_file(
    source: &Facts,
    sink: &Facts,
    relation: Relation,
    request: &Request,
) -> Result<Within, Refusal> {
    let (Some(end), Some(position)) = (source.size, source.position) else {
        return Ok(Within::Apart);
    };
    let from = request.source_offset.unwrap_or(position);
    let length = match request.size {
        Size::Bytes(n) => n.min(end.saturating_sub(from)),
        Size::Eof => end.saturating_sub(from),
    };
    if length == 0 {
        return Ok(Within::Apart);
    }
    let shares_position = relation == Relation::SameDescription
        && request.source_offset.is_none()
        && request.sink_offset.is_none();
    if shares_position && !sink.appends() {
        return Err(Refusal::SharedPosition);
    }
    let bounded = matches!(request.size, Size::Bytes(n) if n <= end - from);
    let to = if sink.appends() {
        sink.size.unwrap_or(end)
    } else {
        request.sink_offset.or(sink.position).unwrap_or(0)
    };
    // A block device has a fixed end. A file's end moves as it is written.
    let has_end = [source, sink]
        .iter()
        .any(|facts| facts.kind == Kind::BlockDevice);
    let endless = !has_end && !bounded && to.saturating_add(length) > end;
    if endless && to > from {
        let help = match request.size {
            Size::Eof => "which would grow forever: give a size, or write to another file",
            // The rest of the source would be the bytes written, or a hole before
            // them.
            Size::Bytes(_) if to >= from.saturating_add(length) => {
                "whose end moves as it is written: give a size of no more than what is left \
                 before its end, or write to another file"
            }
            Size::Bytes(_) => return Err(Refusal::Overlap),
        };
        return Err(Refusal::EndlessLoop { help });
    }
    // Each write moves the position to the end, where the next read would find nothing.
    if shares_position {
        return Err(Refusal::SharedPosition);
    }
    // Parts of one disk or file begin at different offsets there.
    let starts = source.starts_in_common(sink).unwrap_or((0, 0));
    let (from, to) = (from.saturating_add(starts.0), to.saturating_add(starts.1));
    if to >= from.saturating_add(length) || to.saturating_add(length) <= from {
        Ok(Within::Apart)
    } else if to <= from {
        Ok(Within::Downwards)
    } else {
        Err(Refusal::Overlap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(size: u64, position: u64) -> Facts {
        Facts {
            size: Some(size),
            position: Some(position),
            ..Facts::plain(Kind::File)
        }
    }

    fn verdict(from: u64, to: u64, size: Size) -> Result<Within, Refusal> {
        let request = Request {
            size,
            ..Request::default()
        };
        within_file(
            &file(100, from),
            &file(100, to),
            Relation::SameFile,
            &request,
        )
    }

    #[test]
    fn ranges_of_one_file() {
        assert_eq!(verdict(0, 50, Size::Bytes(50)), Ok(Within::Apart));
        assert_eq!(verdict(50, 0, Size::Bytes(50)), Ok(Within::Apart));
        assert_eq!(verdict(10, 0, Size::Bytes(50)), Ok(Within::Downwards));
        assert_eq!(verdict(10, 0, Size::Eof), Ok(Within::Downwards));
        assert_eq!(verdict(0, 0, Size::Eof), Ok(Within::Downwards));
        assert_eq!(verdict(0, 10, Size::Bytes(50)), Err(Refusal::Overlap));
        assert!(matches!(
            verdict(0, 10, Size::Eof),
            Err(Refusal::EndlessLoop { .. })
        ));
        assert!(matches!(
            verdict(0, 100, Size::Eof),
            Err(Refusal::EndlessLoop { .. })
        ));
        assert_eq!(verdict(100, 0, Size::Eof), Ok(Within::Apart));
    }

    #[test]
    fn cat_f_onto_f() {
        let sink = Facts {
            append: true,
            ..file(100, 0)
        };
        let eof = Request::default();
        let refused = within_file(&file(100, 0), &sink, Relation::SameFile, &eof);
        assert!(matches!(refused, Err(Refusal::EndlessLoop { .. })));
        let bounded = Request {
            size: Size::Bytes(100),
            ..Request::default()
        };
        assert_eq!(
            within_file(&file(100, 0), &sink, Relation::SameFile, &bounded),
            Ok(Within::Apart)
        );
        let same = |source_offset| {
            let request = Request {
                source_offset,
                ..bounded.clone()
            };
            within_file(&file(100, 0), &sink, Relation::SameDescription, &request)
        };
        assert_eq!(same(None), Err(Refusal::SharedPosition));
        assert_eq!(same(Some(0)), Ok(Within::Apart));
        let empty = within_file(&file(0, 0), &file(0, 0), Relation::SameFile, &eof);
        assert_eq!(empty, Ok(Within::Apart));
    }

    #[test]
    fn a_device_is_not_appended_to() {
        let device = |position, append| Facts {
            kind: Kind::BlockDevice,
            append,
            ..file(100, position)
        };
        let request = Request {
            size: Size::Bytes(50),
            ..Request::default()
        };
        for append in [false, true] {
            let within = |to| {
                let (source, sink) = (device(0, false), device(to, append));
                within_file(&source, &sink, Relation::SameFile, &request)
            };
            assert_eq!(within(10), Err(Refusal::Overlap));
            assert_eq!(within(50), Ok(Within::Apart));
        }
    }

    /// A partition begins at 30, and the disk at 0.
    #[test]
    fn a_disk_and_its_partition() {
        use crate::endpoint::{FileId, Storage};
        let id = |device| FileId { device, inode: 0 };
        let disk = |size, position| Facts {
            kind: Kind::BlockDevice,
            id: Some(id(1)),
            ..file(size, position)
        };
        let storage = Storage {
            id: id(1),
            start: 30,
        };
        let part = |position| Facts {
            id: Some(id(2)),
            storage: Some(storage),
            ..disk(20, position)
        };
        let request = Request::default();
        let within = |from: Facts, to: Facts| within_file(&from, &to, Relation::SameFile, &request);
        let all = disk(100, 0);
        assert_eq!(within(all, part(0)), Err(Refusal::Overlap));
        assert_eq!(within(part(0), all), Ok(Within::Apart));
        assert_eq!(within(part(0), disk(100, 29)), Ok(Within::Downwards));
        assert_eq!(within(part(0), disk(100, 31)), Err(Refusal::Overlap));
        assert_eq!(within(part(0), disk(100, 50)), Ok(Within::Apart));
        assert_eq!(within(disk(100, 30), part(0)), Ok(Within::Downwards));
        assert_eq!(within(disk(100, 50), part(0)), Ok(Within::Downwards));
        // A loop device and its file, which does not grow.
        let whole = Facts {
            id: Some(id(1)),
            ..file(100, 0)
        };
        assert_eq!(within(whole, part(0)), Err(Refusal::Overlap));
        assert_eq!(within(part(0), whole), Ok(Within::Apart));
    }

    #[test]
    fn a_pipe_onto_itself() {
        let contents = |full| Contents { bytes: 100, full };
        for (size, full, goes) in [
            (0, false, true),
            (99, false, true),
            (100, false, true),
            (101, false, false),
            (0, true, true),
            (99, true, false),
            (100, true, true),
            (101, true, false),
        ] {
            let verdict = within_pipe(&contents(full), Size::Bytes(size));
            assert_eq!(verdict.is_ok(), goes, "{size} {full}: {verdict:?}");
        }
        let endless = within_pipe(&contents(false), Size::Eof);
        assert!(matches!(endless, Err(Refusal::SamePipe { holds: 100, .. })));
    }
}
