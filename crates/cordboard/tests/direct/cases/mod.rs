//! The cases of direct I/O, run by `direct` with io_uring and by `direct_threads`
//! with threads.

mod bad_sectors;
mod closed;
mod cut;
mod endings;
mod flow;
mod no_thread;
mod own_table;
mod places;
mod random;
mod refusals;
mod refused_ring;
mod released;

use std::fs::File;

use crate::common::{content, only, position, run};
use cordboard::DataPath::Direct;
use cordboard::{Control, Observer, Progress, Report, Request};

/// Cancels once this many bytes are written.
struct CancelAt(u64, Control);

impl Observer for CancelAt {
    fn progress(&mut self, progress: &Progress) {
        if progress.written >= self.0 {
            self.1.cancel();
        }
    }
}

/// Returns a request for this path only.
fn direct() -> Request {
    crate::engine();
    only(&[Direct])
}

/// Asserts that exactly the counted bytes are in the sink, and that both positions
/// are at their end.
fn audit(report: &Report, source: &File, sink: &File, data: &[u8]) {
    let written = report.written as usize;
    assert_eq!((report.read, report.stranded), (report.written, 0));
    assert_eq!(position(source), report.written, "{report:?}");
    assert_eq!(position(sink), report.written, "{report:?}");
    let found = content(sink);
    let back = rustix::fs::SeekFrom::Start(report.written);
    rustix::fs::seek(sink, back).unwrap();
    assert_eq!(found.len(), written, "{report:?}");
    assert!(found == data[..written], "{report:?}");
}

/// Moves everything by this path.
fn whole(source: &File, sink: &File, data: &[u8], request: Request) -> Report {
    let report = run(source, sink, request).report;
    assert_eq!(report.path, [Direct], "{report:?}");
    assert_eq!(report.written, data.len() as u64, "{report:?}");
    audit(&report, source, sink, data);
    report
}
