//! Conversions between the structures of C and those of the library.

use std::ffi::{c_char, c_int};
use std::num::NonZeroUsize;
use std::time::Duration;

use cordboard::{
    DataPath, Direct, Ended, Errno, Progress, Report, Request, Side, Size, Sparse, Status,
    Switches, Watermarks,
};

use crate::error::Error;
use crate::types::*;

/// Converts a C request to the library's type.
///
/// # Errors
///
/// * `EINVAL`: an unknown flag, path or value of `direct`, an offset below 0,
///   or flags that exclude each other.
/// * `E2BIG`: a reserved field is not 0.
#[allow(
    clippy::needless_update,
    reason = "the default of a field that is added later changes nothing"
)]
pub(crate) fn request(from: &cord_request, paths: Option<&str>) -> Result<Request, Error> {
    const KNOWN: u64 = CORD_STABLE | CORD_SYNC | CORD_SPARSE | CORD_DENSE;
    let invalid = |message: &str| Error::new(Errno::EINVAL, message);
    if from.flags & !KNOWN != 0 {
        return Err(invalid("flags: unknown flag"));
    }
    let sparse = match (from.flags & CORD_SPARSE != 0, from.flags & CORD_DENSE != 0) {
        (false, false) => Sparse::Auto,
        (true, false) => Sparse::Always,
        (false, true) => Sparse::Never,
        (true, true) => return Err(invalid("CORD_SPARSE and CORD_DENSE exclude each other")),
    };
    let direct = match from.direct {
        CORD_DIRECT_AUTO => Direct::Auto,
        CORD_DIRECT_ALWAYS => Direct::Always,
        CORD_DIRECT_NEVER => Direct::Never,
        _ => return Err(invalid("direct: not CORD_DIRECT_AUTO, _ALWAYS or _NEVER")),
    };
    if from.reserved != 0 {
        return Err(Error::new(Errno::E2BIG, "reserved: not 0"));
    }
    let marks = Watermarks {
        reads: from.marks_reads,
        writes: from.marks_writes,
        burst: from.marks_burst,
    };
    let adaptive = (marks.reads, marks.writes, marks.burst) == (0, 0, 0);
    let offset = |at: i64| match (at, u64::try_from(at)) {
        (CORD_HERE, _) => Ok(None),
        (_, Ok(at)) => Ok(Some(at)),
        _ => Err(invalid("offset: below 0 and not CORD_HERE")),
    };
    let switches = match paths {
        Some(paths) => Some(
            Switches::parse(paths, "").map_err(|bad| Error::new(Errno::EINVAL, bad.to_string()))?,
        ),
        None => None,
    };
    Ok(Request {
        size: match from.size {
            CORD_ALL => Size::Eof,
            bytes => Size::Bytes(bytes),
        },
        source_offset: offset(from.source_offset)?,
        sink_offset: offset(from.sink_offset)?,
        block: NonZeroUsize::new(usize::try_from(from.block).unwrap_or(usize::MAX)),
        idle: (from.idle_ms > 0).then(|| Duration::from_millis(from.idle_ms)),
        stable: from.flags & CORD_STABLE != 0,
        sync: from.flags & CORD_SYNC != 0,
        sparse,
        direct,
        watermarks: (!adaptive).then_some(marks),
        switches,
        ..Request::default()
    })
}

/// Converts a report to the C structure.
pub(crate) fn report(from: &Report) -> cord_report {
    cord_report {
        struct_size: size_of::<cord_report>(),
        read: from.read,
        written: from.written,
        stranded: from.stranded,
        truncated: from.truncated,
        elapsed_ns: nanoseconds(from.elapsed),
        ended: match from.ended {
            Ended::Eof => CORD_ENDED_EOF,
            Ended::Size => CORD_ENDED_SIZE,
            Ended::Idle => CORD_ENDED_IDLE,
            Ended::Cancelled => CORD_ENDED_CANCELLED,
            _ => CORD_ENDED_ERROR,
        },
        failed: match from.failed {
            None => CORD_NEITHER,
            Some(Side::Source) => CORD_SOURCE,
            Some(Side::Sink) => CORD_SINK,
        },
        error: from.errno.map_or(0, Errno::raw),
        reserved: 0,
        path: names(&from.path),
        dropped: from.dropped.bytes,
        dropped_datagrams: from.dropped.datagrams,
    }
}

/// Converts a status to the C structure.
pub(crate) fn status(from: &Status, ended: bool) -> cord_status {
    counters(
        [from.read, from.written, from.in_transit()],
        [from.pending_reads, from.pending_writes],
        from.path,
        from.elapsed,
        ended,
    )
}

/// Converts the progress of a transfer whose steps the program takes.
pub(crate) fn progress(from: &Progress, ended: bool) -> cord_status {
    counters(
        [from.read, from.written, from.in_transit()],
        [from.pending_reads, from.pending_writes],
        from.path,
        from.elapsed,
        ended,
    )
}

fn counters(
    [read, written, in_transit]: [u64; 3],
    [pending_reads, pending_writes]: [u32; 2],
    path: DataPath,
    elapsed: Duration,
    ended: bool,
) -> cord_status {
    let seconds = elapsed.as_secs_f64();
    let rate = match seconds > 0.0 {
        true => written as f64 / seconds,
        false => 0.0,
    };
    cord_status {
        struct_size: size_of::<cord_status>(),
        read,
        written,
        in_transit,
        rate: rate as u64,
        elapsed_ns: nanoseconds(elapsed),
        pending_reads,
        pending_writes,
        ended: c_int::from(ended),
        reserved: 0,
        path: names(&[path]),
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the names of the paths, separated by commas, truncated to fit, with
/// a terminating 0.
fn names<const SIZE: usize>(paths: &[DataPath]) -> [c_char; SIZE] {
    let names: Vec<&str> = paths.iter().map(|path| path.name()).collect();
    let mut out = [0; SIZE];
    for (to, from) in out[..SIZE - 1].iter_mut().zip(names.join(",").bytes()) {
        *to = from as c_char;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> cord_request {
        cord_request {
            struct_size: size_of::<cord_request>(),
            source: 0,
            sink: 1,
            size: CORD_ALL,
            source_offset: CORD_HERE,
            sink_offset: CORD_HERE,
            block: 0,
            idle_ms: 0,
            flags: 0,
            paths: std::ptr::null(),
            direct: 0,
            marks_reads: 0,
            marks_writes: 0,
            marks_burst: 0,
            reserved: 0,
        }
    }

    #[test]
    fn the_plain_request_is_the_default() {
        let made = request(&plain(), None).unwrap();
        assert_eq!(format!("{made:?}"), format!("{:?}", Request::default()));
    }

    #[test]
    fn each_field_arrives() {
        let full = cord_request {
            size: 5,
            source_offset: 0,
            sink_offset: 7,
            block: 512,
            idle_ms: 1500,
            flags: CORD_STABLE | CORD_SYNC | CORD_DENSE,
            direct: CORD_DIRECT_ALWAYS,
            marks_reads: 2,
            marks_writes: 7,
            marks_burst: 0,
            ..plain()
        };
        let made = request(&full, Some("splice,read/write")).unwrap();
        assert_eq!(made.size, Size::Bytes(5));
        assert_eq!((made.source_offset, made.sink_offset), (Some(0), Some(7)));
        assert_eq!(made.block.map(usize::from), Some(512));
        assert_eq!(made.idle, Some(Duration::from_millis(1500)));
        assert!(made.stable && made.sync);
        assert_eq!(made.sparse, Sparse::Never);
        assert_eq!(made.direct, Direct::Always);
        let marks = made.watermarks.unwrap();
        assert_eq!((marks.reads, marks.writes, marks.burst), (2, 7, 0));
        let only = Switches::only(&[DataPath::Splice, DataPath::ReadWrite]);
        assert_eq!(made.switches, Some(only));
    }

    #[test]
    fn invalid_requests_are_refused() {
        for bad in [
            cord_request {
                flags: 1 << 40,
                ..plain()
            },
            cord_request {
                flags: CORD_SPARSE | CORD_DENSE,
                ..plain()
            },
            cord_request {
                sink_offset: -2,
                ..plain()
            },
            cord_request {
                direct: 3,
                ..plain()
            },
        ] {
            assert_eq!(request(&bad, None).unwrap_err().errno, Errno::EINVAL);
        }
        let later = cord_request {
            reserved: 1,
            ..plain()
        };
        assert_eq!(request(&later, None).unwrap_err().errno, Errno::E2BIG);
        assert_eq!(
            request(&plain(), Some("teleport")).unwrap_err().errno,
            Errno::EINVAL
        );
    }

    #[test]
    fn every_path_fits_into_a_report() {
        let text = |name: &[c_char]| -> String {
            name.iter()
                .take_while(|c| **c != 0)
                .map(|c| *c as u8 as char)
                .collect()
        };
        let all = names::<96>(DataPath::ALL);
        let expected: Vec<&str> = DataPath::ALL.iter().map(|path| path.name()).collect();
        assert_eq!(text(&all), expected.join(","));
        assert_eq!(text(&names::<4>(&[DataPath::Clone])), "clo");
    }
}
