//! Paths that a test can force: their system calls are refused neither by the
//! kernel nor by a filter.

use cordboard::{DataPath, Request};
use testkit::needs::{self, Need};

use super::requests::{any, only};
use super::sources::From;

/// The system call that a path requires.
fn need(path: DataPath) -> Option<Need> {
    match path {
        DataPath::Splice => Some(Need::Splice),
        DataPath::Sendfile => Some(Need::Sendfile),
        DataPath::CopyFileRange => Some(Need::CopyFileRange),
        _ => None,
    }
}

/// Whether the path can be taken here.
pub fn is_open(path: DataPath) -> bool {
    need(path).is_none_or(Need::is_met)
}

/// Returns those of the paths that a test can force here, and reports the others
/// as skipped.
pub fn forcible(paths: &[DataPath]) -> Vec<DataPath> {
    let open = |path: &DataPath| {
        need(*path).is_none_or(|need| {
            !needs::missing(&format!("{}: {path}", testkit::skip::this_test()), &[need])
        })
    };
    paths.iter().copied().filter(open).collect()
}

/// Returns a request for any path, and one for each of these paths that can be
/// forced here.
pub fn any_and_each(paths: &[DataPath]) -> Vec<Request> {
    let each = forcible(paths);
    let each = each.iter().map(|path| only(&[*path]));
    std::iter::once(any()).chain(each).collect()
}

/// Returns the path that a report names if the pair suits all of these paths: the
/// first, in order of preference, whose call is not refused. For tests of a
/// fallback.
pub fn carried_by(paths: &[DataPath]) -> [DataPath; 1] {
    [paths.iter().copied().find(|path| is_open(*path)).unwrap()]
}

/// Returns every path from this kind of source to a sink of the given kind that
/// can be forced here.
pub fn paths(from: From, to_file: bool, to_pipe: bool) -> Vec<DataPath> {
    forcible(match (from, to_file, to_pipe) {
        (From::File, true, _) => &[
            DataPath::CopyFileRange,
            DataPath::Sendfile,
            DataPath::Splice,
            DataPath::ReadWrite,
        ],
        (From::File, false, false) => &[DataPath::Sendfile, DataPath::Splice, DataPath::ReadWrite],
        _ => &[DataPath::Splice, DataPath::ReadWrite],
    })
}

/// Whether direct I/O is done by `io_uring(7)`, whose completions are signalled by
/// an eventfd. Elsewhere threads do it.
pub fn has_rings() -> bool {
    [Need::IoUring, Need::Eventfd].iter().all(|n| n.is_met())
}
