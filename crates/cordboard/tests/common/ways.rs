//! Paths whose system call this kernel, or a filter, does not let anybody make.

use cordboard::{PathName, Request};
use testkit::needs::{self, Need};

/// The call that a path cannot do without.
fn need(path: PathName) -> Option<Need> {
    match path {
        PathName::Splice => Some(Need::Splice),
        PathName::Sendfile => Some(Need::Sendfile),
        PathName::CopyFileRange => Some(Need::CopyFileRange),
        _ => None,
    }
}

/// Whether it can be taken here.
pub fn is_open(path: PathName) -> bool {
    need(path).is_none_or(Need::is_met)
}

/// Those of the paths that a test can force here. The others are reported as
/// skipped.
pub fn forcible(paths: &[PathName]) -> Vec<PathName> {
    let open = |path: &PathName| {
        need(*path).is_none_or(|need| !needs::missing(&format!("{}: {path}", test()), &[need]))
    };
    paths.iter().copied().filter(open).collect()
}

/// Requests for any path, and for each of these alone that can be forced here.
pub fn any_and_each(paths: &[PathName]) -> Vec<Request> {
    let each = forcible(paths);
    let each = each.iter().map(|path| super::only(&[*path]));
    std::iter::once(super::any()).chain(each).collect()
}

/// The report's path if all of these suit, the best first: the first that is
/// not refused. To be asserted where the fallback is the point.
pub fn carried_by(paths: &[PathName]) -> [PathName; 1] {
    [paths.iter().copied().find(|path| is_open(*path)).unwrap()]
}

/// The running test, which the harness names its thread after, unless it is
/// the only one.
fn test() -> String {
    match std::env::var(super::CHILD) {
        Ok(name) => name,
        Err(_) => std::thread::current().name().unwrap_or("main").to_owned(),
    }
}
