//! Holes: stages see them as zeros, and they stay holes if no stage changes the
//! bytes.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use super::*;
use crate::common::{self, any, watchdog};
use cordboard::Sparse;

/// A file of data, a hole, data, and a hole to the end.
fn with_holes(hole: usize) -> (File, Vec<u8>) {
    use std::os::unix::fs::FileExt;
    let file = tempfile::tempfile().unwrap();
    let part = common::pattern(20_000);
    let second = (20_000 + hole).next_multiple_of(4096);
    let length = second + 20_000 + hole;
    file.write_all_at(&part, 0).unwrap();
    file.write_all_at(&part, second as u64).unwrap();
    file.set_len(length as u64).unwrap();
    let mut all = vec![0; length];
    all[..20_000].copy_from_slice(&part);
    all[second..second + 20_000].copy_from_slice(&part);
    (file, all)
}

fn has_holes(file: &File) -> bool {
    let meta = file.metadata().unwrap();
    meta.blocks() * 512 < meta.len()
}

#[test]
fn what_looks_sees_zeros_and_the_hole_stays_a_hole() {
    let _dog = watchdog("what_looks_sees_zeros_and_the_hole_stays_a_hole");
    // The longer one takes several steps.
    for hole in [300_000, 40 << 20] {
        let (source, all) = with_holes(hole);
        assert!(has_holes(&source), "no holes on this file system");
        let sink = tempfile::tempfile().unwrap();
        let report = run(&source, &sink, any(), &["blake3", "count"]).report;
        by_user_space(&report, &["blake3", "count"]);
        let length = all.len() as u64;
        assert_eq!((report.read, report.written), (length, length));
        assert_eq!(report.stages[0].digest, digest("blake3", &all));
        assert_eq!(report.stages[1].bytes_in, length);
        assert!(common::content(&sink) == all && has_holes(&sink));
    }
}

#[test]
fn a_size_that_ends_within_a_hole() {
    let _dog = watchdog("a_size_that_ends_within_a_hole");
    let (source, all) = with_holes(300_000);
    let size = 100_000;
    let request = Request {
        size: cordboard::Size::Bytes(size as u64),
        ..any()
    };
    let sink = tempfile::tempfile().unwrap();
    let report = run(&source, &sink, request.clone(), &["blake3"]).report;
    assert_eq!(report.stages[0].digest, digest("blake3", &all[..size]));
    assert!(common::content(&sink) == all[..size]);
    common::rewind(&source);
    let sink = tempfile::tempfile().unwrap();
    let report = run(&source, &sink, request, &["zstd"]).report;
    assert_eq!(report.read, size as u64);
    assert!(unpacked(&common::content(&sink)) == all[..size]);
}

#[test]
fn what_changes_the_bytes_reads_holes_as_zeros() {
    let _dog = watchdog("what_changes_the_bytes_reads_holes_as_zeros");
    let (source, all) = with_holes(1 << 20);
    let packed = tempfile::tempfile().unwrap();
    let report = run(&source, &packed, any(), &["blake3", "zstd"]).report;
    assert_eq!(report.read, all.len() as u64);
    assert_eq!(report.stages[0].digest, digest("blake3", &all));
    let frame = common::content(&packed);
    assert!(unpacked(&frame) == all);
    // Unpacked zeros become holes if the request says so.
    for (sparse, holes) in [(Sparse::Auto, false), (Sparse::Always, true)] {
        let sink = tempfile::tempfile().unwrap();
        let packed = common::file_with(&frame);
        let request = Request { sparse, ..any() };
        let report = run(&packed, &sink, request, &["unzstd", "blake3"]).report;
        assert_eq!(report.written, all.len() as u64);
        assert_eq!(report.stages[1].digest, digest("blake3", &all));
        assert!(common::content(&sink) == all);
        assert_eq!(has_holes(&sink), holes, "{sparse:?}");
    }
}
