//! What holds for every path between two files. A new path is tested here by its name
//! alone, because the tests take the paths from [`DataPath::ALL`].

use std::os::fd::AsFd;

use crate::common::{self, Cancelling, content, file_with, meanwhile, only, pattern, watchdog};
use cordboard::{Control, DataPath, Ended, Request, Transfer};

const MIB: usize = 1 << 20;

/// Returns the paths that move bytes from file to file here. A path that takes the pair
/// must either move the bytes or decline.
fn between_files() -> Vec<DataPath> {
    let carries = |path: &DataPath| {
        let (source, sink) = (file_with(&[7; 8192]), tempfile::tempfile().unwrap());
        let Ok(transfer) = Transfer::new(source.as_fd(), sink.as_fd(), only(&[*path])) else {
            return false;
        };
        let report = transfer.run().report;
        let carried = report.path == [*path];
        let declined = || {
            report
                .declined
                .iter()
                .any(|declined| declined.path == *path)
        };
        assert!(carried || declined(), "{path}: {report:?}");
        carried
    };
    let paths = common::forcible(DataPath::ALL);
    let paths: Vec<_> = paths.into_iter().filter(carries).collect();
    assert!(paths.contains(&DataPath::ReadWrite), "{paths:?}");
    paths
}

#[test]
fn a_file_is_copied_whole_by_each_path() {
    let _dog = watchdog("a_file_is_copied_whole_by_each_path");
    for path in between_files() {
        for size in [1, 4095, 4096, 65_537, MIB + 1] {
            let data = pattern(size);
            let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
            let transfer = Transfer::new(source.as_fd(), sink.as_fd(), only(&[path])).unwrap();
            let report = transfer.run().into_result().unwrap();
            assert_eq!((report.read, report.written), (size as u64, size as u64));
            assert_eq!(
                (report.ended, &*report.path),
                (Ended::Eof, &[path][..]),
                "{report:?}"
            );
            assert_eq!(common::position(&source), size as u64, "{path}");
            assert_eq!(common::position(&sink), size as u64, "{path}");
            assert!(content(&sink) == data, "{path} {size}");
        }
    }
}

/// As with a loop of `read(2)` and `write(2)`, what follows goes to the end of the sink.
#[test]
fn a_sink_that_begins_to_append_gets_each_byte_once() {
    let _dog = watchdog("a_sink_that_begins_to_append_gets_each_byte_once");
    let data = pattern(8 * MIB);
    for path in between_files() {
        let old = vec![9; data.len() + 4096];
        let (source, sink) = (file_with(&data), file_with(&old));
        let mut append = meanwhile(|| {
            let flags = rustix::fs::fcntl_getfl(&sink).unwrap();
            rustix::fs::fcntl_setfl(&sink, flags | rustix::fs::OFlags::APPEND).unwrap();
        });
        let request = Request {
            block: std::num::NonZeroUsize::new(MIB),
            ..only(&[path])
        };
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let report = transfer.observe(&mut append).run().report;
        let written = report.written as usize;
        let found = content(&sink);
        let in_place = old.len() + written - found.len();
        let expected = [
            &data[..in_place],
            &old[in_place..],
            &data[in_place..written],
        ]
        .concat();
        assert!(found == expected, "{in_place} in place: {report:?}");
        assert_eq!(common::position(&source), report.read, "{report:?}");
        assert!(
            report.ended == Ended::Error || written == data.len(),
            "{report:?}"
        );
    }
}

#[test]
fn a_cancelled_path_has_moved_what_it_counts() {
    const BLOCK: usize = 16 << 10;
    let _dog = watchdog("a_cancelled_path_has_moved_what_it_counts");
    let data = pattern(8 * MIB);
    for path in between_files() {
        let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
        let request = Request {
            block: std::num::NonZeroUsize::new(BLOCK),
            ..only(&[path])
        };
        let control = Control::new().unwrap();
        let mut cancel = Cancelling::at(1, &control, BLOCK as u64);
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let report = transfer.control(&control).observe(&mut cancel).run().report;
        cancel.check(&report);
        let written = report.written as usize;
        assert_eq!(report.read, report.written + report.stranded, "{report:?}");
        assert!(content(&sink) == data[..written], "{report:?}");
        assert_eq!(common::position(&source), report.read, "{report:?}");
    }
}
