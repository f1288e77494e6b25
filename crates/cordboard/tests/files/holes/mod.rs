//! Holes: ranges of a file without blocks stay holes on every path, and nothing is
//! lost or miscounted around them.

mod calls;
mod random;

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::common::{
    self, any, content, file_with, meanwhile, only, pattern, position, run, watchdog,
};
use cordboard::DataPath::{CopyFileRange, ReadWrite, Sendfile, Splice};
use cordboard::{DataPath, Ended, Request, Sparse, Transfer};
use rustix::fs::{Mode, OFlags};
use testkit::needs::{self, Need::NoAppend};

const COPYING: [DataPath; 4] = [CopyFileRange, Sendfile, Splice, ReadWrite];
const MIB: usize = 1 << 20;

/// Returns the ranges of data as (start, length), and the number of allocated
/// 512-byte blocks.
fn map(file: &File) -> (Vec<(u64, u64)>, u64) {
    let size = file.metadata().unwrap().len();
    let (mut extents, mut at) = (Vec::new(), 0);
    while let Ok(data) = rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
        at = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(data)).unwrap();
        extents.push((data, at - data));
        if at >= size {
            break;
        }
    }
    (extents, file.metadata().unwrap().blocks())
}

/// Asserts that both files have the same holes. A hole that ends within a block may
/// keep that block: the calls that extend a file without a block could also shorten
/// it.
fn assert_same_holes(sink: &File, source: &File, what: &str) {
    let (there, here) = (map(sink), map(source));
    assert_eq!(there.0, here.0, "{what}");
    let within = !source.metadata().unwrap().len().is_multiple_of(4096);
    let most = here.1 + if within { 8 } else { 0 };
    assert!(there.1 <= most, "{what}: {} blocks of {}", there.1, here.1);
}

fn holey(size: u64, data: &[(u64, usize)]) -> File {
    let file = tempfile::tempfile().unwrap();
    for (at, length) in data {
        file.write_all_at(&pattern(*length), *at).unwrap();
    }
    file.set_len(size).unwrap();
    file
}

/// Makes an empty file, opened with these flags and without them.
fn sinks(flags: OFlags) -> (File, File) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let open = rustix::fs::open(file.path(), OFlags::RDWR | flags, Mode::empty());
    (open.unwrap().into(), file.into_file())
}

#[test]
fn holes_stay_holes() {
    let _dog = watchdog("holes_stay_holes");
    if !common::has_plain_blocks() {
        return;
    }
    let m = MIB as u64;
    for path in common::forcible(&COPYING) {
        for (size, data) in [
            (16 * m, &[(0, 4096), (8 * m, MIB)][..]),
            (16 * m, &[(15 * m, MIB)]),
            (16 * m, &[]),
            (5 * m + 17, &[(4096, 8192), (5 * m, 17)]),
            (m + 1, &[(0, 100)]),
        ] {
            let source = holey(size, data);
            let sink = tempfile::tempfile().unwrap();
            let report = run(&source, &sink, only(&[path])).report;
            assert_eq!((report.ended, report.written), (Ended::Eof, size), "{path}");
            assert_same_holes(&sink, &source, &format!("{path} {size} {data:?}"));
            assert!(content(&sink) == content(&source), "{path}");
            // With an explicit offset the source's position stays.
            let mut source = source;
            source.seek(SeekFrom::Start(3)).unwrap();
            let request = Request {
                source_offset: Some(0),
                ..only(&[path])
            };
            run(&source, tempfile::tempfile().unwrap(), request);
            assert_eq!(position(&source), 3, "{path}");
            // Old bytes of the sink in the range of the hole are zeros afterwards.
            let full = file_with(&vec![7; size as usize]);
            source.rewind().unwrap();
            let mut full_sink = full;
            full_sink.rewind().unwrap();
            run(&source, &full_sink, only(&[path]));
            assert!(
                content(&full_sink) == content(&source),
                "{path}, over old bytes"
            );
        }
    }
}

/// With an explicit offset, the search for holes never moves the position, at which
/// other processes may be reading.
#[test]
fn looking_for_holes_does_not_move_what_others_share() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let _dog = watchdog("looking_for_holes_does_not_move_what_others_share");
    if !common::has_plain_blocks() {
        return;
    }
    let extents: Vec<_> = (0..500).map(|n| (n * 65_536, 4096)).collect();
    let mut source = holey(500 * 65_536, &extents);
    source.seek(SeekFrom::Start(3)).unwrap();
    let shared = source.try_clone().unwrap();
    let sink = tempfile::tempfile().unwrap();
    let done = AtomicBool::new(false);
    let moved = std::thread::scope(|scope| {
        let ends = testkit::ends::Ends(&done);
        let looking = scope.spawn(|| {
            let mut moved = 0;
            while !done.load(Ordering::Relaxed) {
                moved += u32::from(position(&shared) != 3);
            }
            moved
        });
        let request = Request {
            source_offset: Some(0),
            ..only(&[ReadWrite])
        };
        run(&source, &sink, request);
        drop(ends);
        looking.join().unwrap()
    });
    assert_eq!(moved, 0, "times that the position had moved");
    assert_same_holes(&sink, &source, "by an offset");
}

#[test]
fn append_set_among_holes_keeps_every_byte_in_its_place() {
    let _dog = watchdog("append_set_among_holes_keeps_every_byte_in_its_place");
    // `OVL_IOCB_MASK`, fs/backing-file.c.
    if testkit::skip::on_overlayfs("RWF_NOAPPEND has no effect") {
        return;
    }
    let m = MIB as u64;
    let plain = COPYING.map(|path| (path, OFlags::empty()));
    for (path, flags) in plain.into_iter().chain([(ReadWrite, OFlags::DIRECT)]) {
        // The last extent is not a whole block.
        let source = holey(9 * m, &[(m, 4096), (4 * m, 4096), (9 * m - 100, 100)]);
        let (sink, cached) = sinks(flags);
        let mut append = meanwhile(|| {
            let flags = rustix::fs::fcntl_getfl(&sink).unwrap();
            rustix::fs::fcntl_setfl(&sink, flags | rustix::fs::OFlags::APPEND).unwrap();
        });
        let request = only(&[path, ReadWrite]);
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let report = transfer.observe(&mut append).run().report;
        assert_eq!(
            (report.ended, report.written),
            (Ended::Eof, 9 * m),
            "{path}"
        );
        assert!(content(&cached) == content(&source), "{path}: {report:?}");
    }
}

#[test]
fn zeros_become_holes_always_and_holes_become_zeros_never() {
    let _dog = watchdog("zeros_become_holes_always_and_holes_become_zeros_never");
    if !common::has_plain_blocks() {
        return;
    }
    let m = MIB as u64;
    for (front, back) in [(0, 0), (4096, 0), (0, 4096), (1, 1), (8192, 5)] {
        let zeros = [vec![1; front], vec![0; 2 * MIB], vec![1; back]].concat();
        let sink = tempfile::tempfile().unwrap();
        let always = Request {
            sparse: Sparse::Always,
            ..any()
        };
        let report = run(file_with(&zeros), &sink, always).report;
        assert_eq!(report.written, zeros.len() as u64, "{report:?}");
        assert!(content(&sink) == zeros, "{front} {back}: {report:?}");
        assert!(
            map(&sink).1 <= 64,
            "{front} {back}: blocks {}",
            map(&sink).1
        );
    }
    for path in common::forcible(&COPYING) {
        let source = holey(4 * m, &[(m, 4096)]);
        let sink = tempfile::tempfile().unwrap();
        let never = Request {
            sparse: Sparse::Never,
            ..only(&[path])
        };
        run(&source, &sink, never);
        assert!(content(&sink) == content(&source));
        assert!(map(&sink).1 * 512 >= 4 * m, "{path}: {:?}", map(&sink));
    }
}

#[test]
fn zeros_of_datagrams_become_holes() {
    let _dog = watchdog("zeros_of_datagrams_become_holes");
    if !common::has_plain_blocks() {
        return;
    }
    let (feed, source) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let sink = tempfile::tempfile().unwrap();
    let always = Request {
        size: cordboard::Size::Bytes(2 * MIB as u64),
        sparse: Sparse::Always,
        ..any()
    };
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..64 {
                assert_eq!(feed.send(&[0; 32 << 10]).unwrap(), 32 << 10);
            }
        });
        run(&source, &sink, always).report
    });
    assert_eq!(report.path, [ReadWrite], "{report:?}");
    assert!(content(&sink) == vec![0; 2 * MIB]);
    assert!(map(&sink).1 <= 64, "blocks {}", map(&sink).1);
}

#[test]
fn more_than_four_gibibytes_are_counted_right() {
    let _dog = watchdog("more_than_four_gibibytes_are_counted_right");
    if !common::has_plain_blocks() {
        return;
    }
    let size = (5 << 30) + 1;
    for path in common::forcible(&COPYING) {
        let source = holey(size, &[(0, 10), ((4 << 30) - 5, 4096)]);
        let sink = tempfile::tempfile().unwrap();
        let report = run(&source, &sink, only(&[path])).report;
        assert_eq!((report.ended, report.written), (Ended::Eof, size), "{path}");
        assert_eq!((position(&source), position(&sink)), (size, size), "{path}");
        assert_same_holes(&sink, &source, &path.to_string());
        let (mut here, mut there) = ([0; 4096], [1; 4096]);
        source.read_exact_at(&mut here, (4 << 30) - 5).unwrap();
        sink.read_exact_at(&mut there, (4 << 30) - 5).unwrap();
        assert!(here == there && here != [0; 4096], "{path}");
    }
}

/// Counts the calls of the observer.
struct Steps(u64);

impl cordboard::Observer for Steps {
    fn progress(&mut self, _: &cordboard::Progress) {
        self.0 += 1;
    }
}

/// If blocks of zeros become holes, the source's holes are not read. The transfer
/// searches the data for zeros, or the whole file if the file system cannot report
/// holes.
#[test]
fn holes_are_not_read_where_zeros_become_holes() {
    use testkit::refuse::{apart, refuse_where};
    let _dog = watchdog("holes_are_not_read_where_zeros_become_holes");
    if !common::has_plain_blocks() {
        return;
    }
    let m = MIB as u64;
    for (size, tells, stage) in [
        (2 << 30, true, false),
        (9 * m, true, true),
        (9 * m, false, false),
    ] {
        for offset in [None, Some(0)] {
            let source = holey(size, &[(m, 8192), (5 * m, MIB), (8 * m, 4096)]);
            source.write_all_at(&[0; 512 << 10], 5 * m + 4096).unwrap();
            let sink = tempfile::tempfile().unwrap();
            let mut steps = Steps(0);
            let report = apart(|| {
                if !tells {
                    let way = libc::SEEK_DATA.cast_unsigned();
                    refuse_where(libc::SYS_lseek, 2, way, libc::EINVAL);
                }
                let request = Request {
                    sparse: Sparse::Always,
                    source_offset: offset,
                    sink_offset: offset,
                    ..only(&[ReadWrite])
                };
                let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
                if stage {
                    transfer = transfer.stage(cordboard::Stage::count()).unwrap();
                }
                transfer.observe(&mut steps).run().report
            });
            let case = format!("{size} {tells} {offset:?}: {report:?}");
            assert_eq!((report.ended, report.written), (Ended::Eof, size), "{case}");
            assert_eq!(report.path, [ReadWrite], "{case}");
            if size > 9 * m {
                assert!(steps.0 <= 64, "{} steps, {case}", steps.0);
            }
            let some = |file: &File| {
                let mut bytes = vec![1; 9 * MIB];
                file.read_exact_at(&mut bytes, 0).unwrap();
                bytes
            };
            assert!(some(&sink) == some(&source), "{case}");
            assert_eq!(sink.metadata().unwrap().len(), size, "{case}");
            let (extents, blocks) = map(&sink);
            let end = 5 * m + 4096 + (512 << 10);
            let all = [(m, 8192), (5 * m, 4096), (end, 6 * m - end), (8 * m, 4096)];
            assert_eq!(extents, all, "{case}");
            assert!(blocks * 512 <= m, "{blocks} blocks, {case}");
        }
    }
}

/// Calls a function once this many bytes are written.
struct AtBytes<F: FnMut()>(u64, F);

impl<F: FnMut()> cordboard::Observer for AtBytes<F> {
    fn progress(&mut self, progress: &cordboard::Progress) {
        if progress.written == self.0 {
            (self.1)();
        }
    }
}

/// The count equals the sink's length, also if a transfer ends between a hole and the
/// data behind it.
#[test]
fn the_sink_has_the_hole_that_was_counted_last() {
    use cordboard::{Errno, Side};
    let name = "the_sink_has_the_hole_that_was_counted_last";
    let _dog = watchdog(name);
    let m = MIB as u64;
    let (write, read) = (libc::SYS_pwritev2, libc::SYS_read);
    let both = [write, libc::SYS_fallocate];
    // If the write behind a hole fails, and no call extends the sink, the hole does
    // not count. If the read fails, the hole counts. A write without an offset
    // argument is made at the right position.
    for (calls, errno, end) in [
        (&[write][..], Errno::ENOSPC, Err((Side::Sink, 2 * m))),
        (&[read], Errno::EIO, Err((Side::Source, 5 * m))),
        (&[write], Errno::EOPNOTSUPP, Ok(9 * m)),
        (&[write], Errno::EPERM, Ok(9 * m)),
        // The sink is lengthened by a byte then.
        (&both, Errno::EOPNOTSUPP, Ok(9 * m)),
    ] {
        // Without RWF_NOAPPEND this call is not made behind a hole.
        if calls.contains(&write) && needs::missing(&format!("{name} {errno:?}"), &[NoAppend]) {
            continue;
        }
        let source = holey(9 * m, &[(m, MIB), (5 * m, MIB)]);
        let sink = tempfile::tempfile().unwrap();
        let report = testkit::refuse::apart(|| {
            let transfer = Transfer::new(source.as_fd(), sink.as_fd(), only(&[ReadWrite])).unwrap();
            let refuse = AtBytes(2 * m, || testkit::refuse::refuse(calls, errno.raw()));
            transfer.observe(refuse).run().report
        });
        let what = format!("{calls:?} {errno:?}: {report:?}");
        let failure = report.failed.zip(report.errno);
        let written = match end {
            Ok(written) => {
                assert_eq!((report.ended, failure), (Ended::Eof, None), "{what}");
                written
            }
            Err((side, written)) => {
                assert_eq!(failure, Some((side, errno)), "{what}");
                written
            }
        };
        assert_eq!((report.read, report.written), (written, written), "{what}");
        assert_eq!(
            (position(&source), position(&sink)),
            (written, written),
            "{what}"
        );
        assert_eq!(sink.metadata().unwrap().len(), written, "{what}");
        let whole = content(&source);
        assert!(content(&sink) == whole[..written as usize], "{what}");
    }
}

/// A hole at the end that is not a multiple of a page: on xfs, `fallocate(2)` would
/// keep the space reserved behind the end.
#[test]
fn a_hole_at_the_end_keeps_no_room_behind_it() {
    let Some(mount) = common::mount::Mount::new("xfs", 320 << 20) else {
        return;
    };
    let end = 64 * 8192 + 5;
    let source = holey(end, &[(0, 4096), (63 * 8192, 4096)]);
    let cases = [Sparse::Auto, Sparse::Always].map(|sparse| [(sparse, false), (sparse, true)]);
    for (sparse, without) in cases.into_iter().flatten() {
        let sink = mount.file("sink");
        let request = Request {
            sparse,
            ..only(&[ReadWrite])
        };
        (&source).rewind().unwrap();
        let report = testkit::refuse::apart(|| {
            if without {
                // No RWF_NOAPPEND, before Linux 6.9.
                testkit::refuse::refuse(&[libc::SYS_pwritev2], libc::EOPNOTSUPP);
            }
            run(&source, &sink, request).report
        });
        assert_eq!(
            (report.ended, report.written),
            (Ended::Eof, end),
            "{report:?}"
        );
        assert!(content(&sink) == content(&source));
        drop(sink);
        let at = mount.path().join("sink");
        let shown = std::process::Command::new("xfs_io")
            .args(["-r", "-c", "lsattr"])
            .arg(&at)
            .output();
        let shown = match shown {
            Ok(shown) if shown.status.success() => shown.stdout,
            other => return testkit::skip::here(format!("no xfs_io: {other:?}")),
        };
        let flags = shown.split(|byte| *byte == b' ').next().unwrap();
        assert!(
            flags.len() > 8 && !flags.contains(&b'p'),
            "{sparse:?}, {without}: {flags:?}"
        );
    }
}

/// A sink that can be extended and not written, or the reverse: a refused call changes
/// neither its length nor anything that is not counted.
#[test]
fn a_hole_that_is_refused_changes_nothing() {
    use rustix::fs::{MemfdFlags, SealFlags};
    let _dog = watchdog("a_hole_that_is_refused_changes_nothing");
    let source = holey(20_480, &[(0, 8192)]);
    let seals = [SealFlags::FUTURE_WRITE, SealFlags::GROW];
    let each = |seal| [any(), only(&[ReadWrite])].map(|request| (request, seal));
    for (request, seal) in seals.into_iter().flat_map(each) {
        let mut source = source.try_clone().unwrap();
        let skipped = match seal {
            SealFlags::GROW => 0,
            _ => 8192,
        };
        source.seek(SeekFrom::Start(skipped)).unwrap();
        let sink = rustix::fs::memfd_create("sealed", MemfdFlags::ALLOW_SEALING).unwrap();
        let sink = File::from(sink);
        let before = vec![7; 10_000];
        sink.write_all_at(&before, 0).unwrap();
        rustix::fs::fcntl_add_seals(&sink, seal).unwrap();
        let report = run(&source, &sink, request).report;
        assert_eq!(report.errno, Some(cordboard::Errno::EPERM), "{report:?}");
        let written = report.written as usize;
        let expected = match seal {
            // The part of the hole within the length of the sink is made.
            SealFlags::GROW => before.len(),
            _ => 0,
        };
        assert_eq!(written, expected, "{report:?}");
        let now = content(&sink);
        assert!(now[..written] == content(&source)[..written], "{report:?}");
        assert!(now[written..] == before[written..], "{report:?}");
    }
}
