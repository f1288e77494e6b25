//! Paths that a test can force: their system calls are refused neither by the
//! kernel nor by a filter.

use std::os::fd::AsFd;

use cordboard::{DataPath, Request};
use testkit::filesystem::{BTRFS, EXT4, TMPFS, temporary_kind};
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

/// Whether a file in the temporary directory has just the blocks that were written to it;
/// reports the test as skipped otherwise. xfs preallocates blocks. Where files can share
/// blocks, copy_file_range(2) has other limits.
pub fn has_plain_blocks() -> bool {
    let plain = [EXT4, TMPFS].contains(&temporary_kind());
    if !plain {
        testkit::skip::here("the temporary directory is neither on ext4 nor on tmpfs");
    }
    plain
}

/// Whether files in the temporary directory are certainly not on FUSE or a file server, also
/// not below an overlay; reports the test as skipped otherwise. A private pipe is between such
/// a file and the caller's pipe.
pub fn has_local_files() -> bool {
    let file = tempfile::tempfile().unwrap();
    let facts = *cordboard::Endpoint::probe(file.as_fd()).unwrap().facts();
    let is_local = facts.filesystem.is_some_and(|fs| !fs.is_foreign()) && !facts.may_be_served;
    if !is_local {
        testkit::skip::here("the temporary directory may be on a file server");
    }
    is_local
}

/// Whether files in the temporary directory are on a device whose blocks can be in flight;
/// reports the test as skipped otherwise. In memory a block ends in the call that starts it.
pub fn has_blocks_in_flight() -> bool {
    let memory = temporary_kind() == TMPFS;
    if memory {
        testkit::skip::here("the temporary directory is in memory");
    }
    !memory
}

/// Whether direct I/O may be chosen for files in the temporary directory; reports the test
/// as skipped otherwise. btrfs compresses only what passes through the page cache.
pub fn may_choose_direct() -> bool {
    let btrfs = temporary_kind() == BTRFS;
    if btrfs {
        testkit::skip::here("the temporary directory is on btrfs");
    }
    !btrfs
}

/// Whether files in the temporary directory support direct I/O; reports the test as
/// skipped otherwise.
pub fn has_direct_files() -> bool {
    let missing = testkit::SourceKind::Direct.unavailable();
    missing.iter().for_each(testkit::skip::here);
    missing.is_none()
}

/// Whether the path can be taken here.
pub fn is_open(path: DataPath) -> bool {
    need(path).is_none_or(Need::is_met)
}

/// Returns those of the paths that a test can force here, and reports the others
/// as skipped.
pub fn forcible(paths: &[DataPath]) -> Vec<DataPath> {
    let open = |path: &DataPath| match need(*path) {
        Some(need) => !needs::missing(&format!("{}: {path}", testkit::skip::this_test()), &[need]),
        None => *path != DataPath::Direct || has_direct_files(),
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
