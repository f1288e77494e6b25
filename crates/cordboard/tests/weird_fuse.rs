//! A file whose size is false, as a file system in user space can make it:
//! every path reads what a read loop reads.

mod common;

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use common::{content, only, pattern, run, watchdog};
use cordboard::Ended;
use cordboard::PathName::{CopyFileRange, ReadWrite, Sendfile, Splice};
use testkit::fuse::{Served, with_file};

#[test]
fn a_false_size_ends_nothing_early() {
    let _dog = watchdog("a_false_size_ends_nothing_early");
    if !common::root() {
        testkit::skip::here("mounting takes root");
        return;
    }
    let data = pattern(100_000);
    for direct in [false, true] {
        for claims in [0, 10, 99_999, 100_000, 150_000, 1 << 40] {
            let claim = format!("{claims}, direct {direct}");
            let served = Served {
                holds: &data,
                claims,
                direct,
                ..Served::default()
            };
            let mounted = with_file(served, |at| {
                let mut source = File::open(at).unwrap();
                // What a read loop finds.
                let (mut expected, mut block) = (Vec::new(), vec![0; 4096]);
                while let Ok(n @ 1..) = source.read_at(&mut block, expected.len() as u64) {
                    expected.extend_from_slice(&block[..n]);
                    assert!(expected.len() < 1 << 20, "{claim}");
                }
                if direct {
                    assert_eq!(expected.len(), 100_000, "{claim}");
                }
                for paths in [
                    &[CopyFileRange, Sendfile, Splice, ReadWrite][..],
                    &[Sendfile, ReadWrite],
                    &[Splice, ReadWrite],
                    &[ReadWrite],
                ] {
                    source.rewind().unwrap();
                    let sink = tempfile::tempfile().unwrap();
                    let report = run(source.as_fd(), &sink, only(paths)).report;
                    let what = format!("{claim} by {paths:?}: {report:?}");
                    assert_eq!(report.ended, Ended::Eof, "{what}");
                    assert_eq!(report.written, expected.len() as u64, "{what}");
                    assert!(content(&sink) == expected, "{what}");
                    if direct
                        && claims == 99_999
                        && paths.len() == 2
                        && common::forcible(paths) == paths
                    {
                        // It ends a byte too early, which a read finds out.
                        source.rewind().unwrap();
                        let (sink, mut peer) = common::tcp_pair();
                        let reader = std::thread::spawn(move || {
                            let mut got = Vec::new();
                            peer.read_to_end(&mut got).unwrap();
                            got
                        });
                        let report = run(source.as_fd(), &sink, only(paths)).report;
                        drop(sink);
                        // Linux 5.10 sends past the size that the file claims.
                        let first = &paths[..1];
                        let past = rustix::fs::sendfile(
                            std::fs::File::options()
                                .write(true)
                                .open("/dev/null")
                                .unwrap(),
                            source.as_fd(),
                            Some(&mut 0),
                            100_000,
                        );
                        let at_once = past == Ok(100_000) && report.path == first;
                        assert!(at_once || report.path == paths, "{report:?}");
                        assert!(reader.join().unwrap() == expected, "{report:?}");
                    }
                }
            });
            if !mounted {
                testkit::skip::here("no FUSE here");
                return;
            }
        }
    }
}
