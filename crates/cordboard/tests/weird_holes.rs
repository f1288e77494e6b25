//! Holes: ranges of a file without blocks stay so, whatever carries the file,
//! and nothing is lost or counted wrong around them.

mod common;

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use common::{any, content, file_with, meanwhile, only, pattern, position, run, watchdog};
use cordboard::PathName::{CopyFileRange, ReadWrite, Sendfile, Splice};
use cordboard::{Ended, PathName, Request, Sparse, Transfer};

const COPYING: [PathName; 4] = [CopyFileRange, Sendfile, Splice, ReadWrite];
const MIB: usize = 1 << 20;

/// Data and holes as (start, length, is data), and whether blocks are there.
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

/// The same holes in both. One that ends within a block can keep that block: no
/// call makes a file longer without one that could not make it shorter too.
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

#[test]
fn holes_stay_holes() {
    let _dog = watchdog("holes_stay_holes");
    let m = MIB as u64;
    for path in COPYING {
        for (size, data) in [
            (64 * m, &[(0, 4096), (32 * m, MIB)][..]),
            (64 * m, &[(63 * m, MIB)]),
            (64 * m, &[]),
            (5 * m + 17, &[(4096, 8192), (5 * m, 17)]),
            (m + 1, &[(0, 100)]),
        ] {
            let source = holey(size, data);
            let sink = tempfile::tempfile().unwrap();
            let report = run(&source, &sink, only(&[path])).report;
            assert_eq!((report.ended, report.written), (Ended::Eof, size), "{path}");
            assert_same_holes(&sink, &source, &format!("{path} {size} {data:?}"));
            assert!(content(&sink) == content(&source), "{path}");
            // With an offset of its own the source's position stays.
            let mut source = source;
            source.seek(SeekFrom::Start(3)).unwrap();
            let request = Request {
                source_offset: Some(0),
                ..only(&[path])
            };
            run(&source, tempfile::tempfile().unwrap(), request);
            assert_eq!(position(&source), 3, "{path}");
            // Old bytes under the hole read as zeros too.
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

/// With an offset of its own, looking for holes leaves the position alone at
/// every moment: others may be reading there.
#[test]
fn looking_for_holes_does_not_move_what_others_share() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let _dog = watchdog("looking_for_holes_does_not_move_what_others_share");
    let extents: Vec<_> = (0..500).map(|n| (n * 65_536, 4096)).collect();
    let mut source = holey(500 * 65_536, &extents);
    source.seek(SeekFrom::Start(3)).unwrap();
    let shared = source.try_clone().unwrap();
    let sink = tempfile::tempfile().unwrap();
    let done = AtomicBool::new(false);
    let moved = std::thread::scope(|scope| {
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
        done.store(true, Ordering::Relaxed);
        looking.join().unwrap()
    });
    assert_eq!(moved, 0, "times that it was somewhere else");
    assert_eq!(map(&sink), map(&source));
}

#[test]
fn append_set_among_holes_keeps_every_byte_in_its_place() {
    let _dog = watchdog("append_set_among_holes_keeps_every_byte_in_its_place");
    let m = MIB as u64;
    for path in COPYING {
        let source = holey(9 * m, &[(m, 4096), (4 * m, 4096), (8 * m, 4096)]);
        let sink = tempfile::tempfile().unwrap();
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
        assert!(content(&sink) == content(&source), "{path}: {report:?}");
    }
}

#[test]
fn zeros_become_holes_always_and_holes_become_zeros_never() {
    let _dog = watchdog("zeros_become_holes_always_and_holes_become_zeros_never");
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
    for path in COPYING {
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
fn more_than_four_gibibytes_are_counted_right() {
    let _dog = watchdog("more_than_four_gibibytes_are_counted_right");
    let size = (5 << 30) + 1;
    for path in COPYING {
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
