//! The calls of a sparse copy: their number, and their failures.

use super::*;

/// For each of many small extents the transfer makes no more calls than to find the
/// extent, to seek there, and to copy it.
#[test]
fn an_extent_takes_few_calls() {
    let name = "an_extent_takes_few_calls";
    let _dog = watchdog(name);
    if !common::alone!() {
        return;
    }
    // Two calls find an extent, and two copy it. Positions are moved with it. Without
    // RWF_NOAPPEND the sink is extended before each, by calls that depend on its file
    // system.
    let longer = if NoAppend.is_met() { 0 } else { 6 };
    // A hole that may be false is read, or asked for in the extent map.
    let file = tempfile::tempfile().unwrap();
    let facts = *cordboard::Endpoint::probe(file.as_fd()).unwrap().facts();
    let name_of = facts.filesystem.and_then(|fs| fs.name());
    let longer = longer + usize::from(matches!(name_of, None | Some("overlayfs" | "xfs" | "zfs")));
    let (plain, direct) = (OFlags::empty(), OFlags::DIRECT);
    for (flags, offset, each) in [
        (plain, None, 6 + longer),
        (plain, Some(0), 4 + longer),
        // Each write reads its position, for alignment.
        (direct, None, 7 + longer),
        (direct, Some(0), 4 + longer),
    ] {
        let calls = [100, 200].map(|extents| {
            let data: Vec<_> = (0..extents).map(|n| (n * 8192 + 4096, 4096)).collect();
            let source = holey(extents * 8192, &data);
            let (sink, cached) = sinks(flags);
            let request = Request {
                source_offset: offset,
                sink_offset: offset,
                ..only(&[ReadWrite])
            };
            let counted = testkit::calls::count(|| {
                let report = run(&source, &sink, request).report;
                (report.ended, report.written) == (Ended::Eof, extents * 8192)
            });
            // The extent map of so many extents takes blocks too, now or at
            // writeback.
            assert!(map(&sink).0 == map(&source).0);
            assert!(content(&cached) == content(&source));
            counted
        });
        match calls {
            [Ok(some), Ok(more)] => {
                let most = each * 100;
                let took = more - some;
                assert!(took <= most, "{flags:?} {offset:?}: {took} of {most}");
            }
            [Err(error), _] | [_, Err(error)] => {
                return testkit::skip::report(name, &error.to_string());
            }
        }
    }
}

/// The sink is lengthened through a private description. Its close may be the only one that
/// gets an error of the file system. A filter fails the call.
#[test]
fn the_error_of_a_close_after_a_hole_is_reported() {
    use cordboard::{Errno, Side};
    use testkit::refuse::{apart, refuse};
    let _dog = watchdog("the_error_of_a_close_after_a_hole_is_reported");
    if !common::has_plain_blocks() {
        return;
    }
    let m = MIB as u64;
    for data in [&[(0, 4096)][..], &[(m - 4096, 4096)]] {
        let (source, sink) = (holey(m, data), tempfile::tempfile().unwrap());
        let report = apart(|| {
            let calls = [libc::SYS_pwritev2, libc::SYS_fallocate];
            refuse(&calls, libc::EOPNOTSUPP);
            refuse(&[libc::SYS_close], libc::ENOSPC);
            run(&source, &sink, only(&[ReadWrite])).report
        });
        assert_eq!(
            (report.ended, report.failed, report.errno),
            (Ended::Error, Some(Side::Sink), Some(Errno::ENOSPC)),
            "{data:?} {report:?}"
        );
        assert_eq!(report.written, m, "{data:?} {report:?}");
        assert!(content(&sink) == content(&source), "{data:?}");
    }
}

/// A position cannot be read, moved or restored, from the start or after the first
/// bytes. The transfer fails on that side, or every byte is in its place. It never
/// continues at a wrong position.
#[test]
fn positions_that_cannot_be_moved() {
    use cordboard::{Errno, Side};
    use testkit::refuse::{apart, refuse_where};
    let _dog = watchdog("positions_that_cannot_be_moved");
    if !common::has_plain_blocks() {
        return;
    }
    let k = 1024;
    use libc::{SEEK_CUR, SEEK_DATA, SEEK_HOLE, SEEK_SET};
    let ways = [SEEK_SET, SEEK_CUR, SEEK_DATA, SEEK_HOLE];
    let extents = [(0, 4096), (64 * k, 4096), (512 * k, 8192)];
    let forcible = common::forcible(&COPYING);
    let cases = [Sparse::Auto, Sparse::Always, Sparse::Never]
        .into_iter()
        .flat_map(|sparse| match sparse {
            // Only read/write turns zeros into holes.
            Sparse::Always => vec![(sparse, ReadWrite)],
            _ => forcible.iter().map(|path| (sparse, *path)).collect(),
        })
        .flat_map(|(sparse, path)| [false, true].map(|late| (sparse, path, late)))
        .flat_map(|(sparse, path, late)| ways.map(|way| (sparse, path, late, way)))
        .flat_map(|case| [false, true].map(|unshared| (case, unshared)));
    for ((sparse, path, late, way), unshared) in cases {
        let source = holey(800 * k, &extents);
        let sink = tempfile::tempfile().unwrap();
        let refuse = || refuse_where(libc::SYS_lseek, 2, way.cast_unsigned(), libc::EIO);
        let report = apart(|| {
            let request = Request {
                sparse,
                source_unshared: unshared,
                sink_unshared: unshared,
                ..only(&[path])
            };
            let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
            if late {
                let mut first = meanwhile(refuse);
                return transfer.observe(&mut first).run().report;
            }
            refuse();
            transfer.run().report
        });
        let case = format!("{path} {way} {late} {unshared} {sparse:?}: {report:?}");
        let (there, here) = (content(&sink), content(&source));
        assert!(here.starts_with(&there), "{case}");
        // A hole that is made without moving the position does not count.
        let longer = there.len() as u64 - report.written;
        assert!(longer == 0 || way == SEEK_CUR, "{case}");
        match report.ended {
            Ended::Eof => assert!(there == here, "{case}"),
            _ => assert_eq!(report.errno, Some(Errno::EIO), "{case}"),
        }
        // A search for holes moves the source's position, if no other process uses
        // it.
        if unshared && way == SEEK_SET && sparse == Sparse::Auto {
            let found = (report.ended, report.failed);
            assert_eq!(found, (Ended::Error, Some(Side::Source)), "{case}");
        }
    }
}
