//! Files and paths for the tests of pauses and schedules.

use std::os::fd::AsFd;

use super::Transfer;
use crate::request::{DataPath, Request, Switches};
use testkit::needs::{self, Need};
use testkit::skip;

/// Returns true if the system call of this path, or `O_DIRECT`, is missing, and reports the skip of
/// this test.
pub(super) fn is_missing(test: &str, path: DataPath) -> bool {
    let need = match path {
        DataPath::CopyFileRange => Need::CopyFileRange,
        DataPath::Sendfile => Need::Sendfile,
        DataPath::Splice => Need::Splice,
        DataPath::Direct => {
            let missing = testkit::SourceKind::Direct.unavailable();
            (missing.iter()).for_each(|why| skip::report(&format!("{test} of {path}"), why));
            return missing.is_some();
        }
        _ => return false,
    };
    needs::missing(&format!("{test} of {path}"), &[need])
}

/// Returns the paths that copy a file in pieces here, and reports those that are
/// missing. A clone is left out: without a schedule it takes the whole file at once.
pub(super) fn paths_between_files(test: &str) -> Vec<DataPath> {
    let (source, sink) = (file_with(b"x"), file_with(b""));
    let all = DataPath::ALL.iter().copied();
    let works = |path: &DataPath| {
        if *path == DataPath::Clone || is_missing(test, *path) {
            return false;
        }
        let request = Request {
            switches: Some(Switches::only(&[*path])),
            ..Request::default()
        };
        Transfer::new(source.as_fd(), sink.as_fd(), request).is_ok()
    };
    all.filter(works).collect()
}

pub(super) use testkit::file::file_with;
