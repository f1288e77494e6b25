//! Another process reads and writes at the same positions, between two given calls of a transfer.

use std::io::{Read, Write};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;

use super::bytes_of;
use crate::common::{self, file_with, forcible, only, pattern, watchdog};
use cordboard::DataPath::{CopyFileRange, Direct, ReadWrite, Sendfile};
use cordboard::{Ended, Request};
use testkit::{midst, skip};

/// It reads the rest of the source at one call, and writes it at a later one. A range of the sink
/// that the transfer claims between them, for bytes that the source no longer has, would be a hole.
#[test]
fn the_rest_that_others_read_leaves_no_hole() {
    let _watchdog = watchdog("the_rest_that_others_read_leaves_no_hole");
    let calls = [
        libc::SYS_lseek,
        libc::SYS_copy_file_range,
        libc::SYS_sendfile,
    ];
    let data = pattern(1 << 20);
    for path in forcible(&[CopyFileRange, Sendfile, Direct]) {
        let (mut reads_at, mut writes_at) = (0, 1);
        loop {
            let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
            let (mut count, mut theirs, mut report) = (0, Vec::new(), None);
            let body = || report = Some(common::run(&source, &sink, only(&[path])).report);
            let others = || {
                if count == reads_at {
                    (&source).read_to_end(&mut theirs).unwrap();
                }
                if count == writes_at {
                    (&sink).write_all(&theirs).unwrap();
                }
                count += 1;
            };
            if midst::at_each(&calls, body, others).is_none() {
                return skip::here("no seccomp_unotify(2) here");
            }
            let report = report.unwrap();
            let what = format!("{path}, {reads_at} {writes_at} of {count}: {report:?}");
            assert!(matches!(report.ended, Ended::Eof), "{what}");
            assert_eq!(
                report.written + theirs.len() as u64,
                data.len() as u64,
                "{what}"
            );
            if writes_at >= count {
                (&sink).write_all(&theirs).unwrap();
            }
            assert!(bytes_of(&sink) == data, "{what}");
            match (writes_at < count, reads_at < count) {
                (true, _) => writes_at += 1,
                (false, true) => (reads_at, writes_at) = (reads_at + 1, reads_at + 2),
                (false, false) => break,
            }
        }
    }
}

/// It copies a part of a file with holes at one call. No block is lost, and none is copied twice,
/// also if blocks are in flight.
#[test]
fn each_block_between_holes_is_copied_once() {
    const BLOCK: usize = 4096;
    const RANGE: usize = 64 * BLOCK;
    let _watchdog = watchdog("each_block_between_holes_is_copied_once");
    let length = 9 * RANGE;
    let mut all = vec![0; length];
    for (number, block) in all.chunks_mut(BLOCK).enumerate() {
        // Every other range is a hole.
        if (number / (RANGE / BLOCK)).is_multiple_of(2) {
            let number = (number as u32 + 1).to_le_bytes();
            block
                .chunks_mut(4)
                .for_each(|word| word.copy_from_slice(&number));
        }
    }
    let numbers = |bytes: &[u8]| {
        let mut all: Vec<u32> = (bytes.chunks(BLOCK))
            .map(|block| u32::from_le_bytes(block[..4].try_into().unwrap()))
            .filter(|number| *number > 0)
            .collect();
        all.sort_unstable();
        all
    };
    for path in forcible(&[Direct, CopyFileRange, ReadWrite]) {
        let mut at = 0;
        loop {
            let (source, sink) = (tempfile::tempfile(), tempfile::tempfile());
            let (source, sink) = (source.unwrap(), sink.unwrap());
            source.set_len(length as u64).unwrap();
            for start in (0..length).step_by(2 * RANGE) {
                let range = &all[start..start + RANGE];
                source.write_all_at(range, start as u64).unwrap();
            }
            source.sync_all().unwrap();
            let request = Request {
                block: NonZeroUsize::new(16 * BLOCK),
                ..only(&[path])
            };
            let (mut count, mut theirs) = (0, vec![0; RANGE + RANGE / 2]);
            let body = || drop(common::run(&source, &sink, request));
            let others = || {
                if count == at {
                    let n = (&source).read(&mut theirs).unwrap();
                    (&sink).write_all(&theirs[..n]).unwrap();
                }
                count += 1;
            };
            if midst::at_each(&[libc::SYS_lseek], body, others).is_none() {
                return skip::here("no seccomp_unotify(2) here");
            }
            assert!(
                numbers(&bytes_of(&sink)) == numbers(&all),
                "{path}, {at} of {count}"
            );
            if at >= count {
                break;
            }
            at += 1;
        }
    }
}
