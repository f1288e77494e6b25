//! The outcome of a transfer between two ends of testkit, compared with its bytes.

use std::os::fd::OwnedFd;

use cordboard::Outcome;
use testkit::{Sink, Source, SourceKind};

use super::runs::{adds_up, handed_back};

/// Asserts that no byte is lost: compares the report with what has arrived, what was handed
/// back, and what is left in the source.
pub fn is_exact(what: &str, outcome: Outcome, source: &Source, sink: Sink) {
    let report = outcome.report;
    let (read, written) = (report.read, report.written);
    assert_eq!(read, written + report.stranded, "{what}: {report:?}");
    adds_up(&report);
    let expect = &source.expect;
    let stranded = handed_back(outcome.stranded);
    assert_eq!(stranded.len() as u64, report.stranded, "{what}: {report:?}");
    let told = |wrong| panic!("{what}: {wrong}: {report:?}");
    expect.check_at(written, &stranded).unwrap_or_else(told);
    let arrived = sink.finish(written).unwrap();
    arrived.check(expect, written).unwrap_or_else(told);
    match source.kind {
        kind if kind.is_seekable() => {
            let at = rustix::fs::tell(&source.fd).unwrap();
            assert_eq!(at, read, "{what}: {report:?}");
        }
        SourceKind::Zero | SourceKind::Tty => {}
        _ => {
            let rest = rest(&source.fd);
            expect.check_at(read, &rest).unwrap_or_else(told);
            let all = read + rest.len() as u64;
            assert_eq!(all, expect.len(), "{what}: {report:?}");
        }
    }
}

/// Reads the rest of a stream.
fn rest(fd: &OwnedFd) -> Vec<u8> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let flags = fcntl_getfl(fd).unwrap();
    fcntl_setfl(fd, flags - OFlags::NONBLOCK).unwrap();
    let (mut all, mut piece) = (Vec::new(), vec![0; 1 << 20]);
    loop {
        match rustix::io::read(fd, &mut piece).unwrap() {
            0 => return all,
            n => all.extend_from_slice(&piece[..n]),
        }
    }
}
