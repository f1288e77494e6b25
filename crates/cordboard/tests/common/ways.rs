//! Paths whose system call this kernel, or a filter, does not let anybody make.

use cordboard::{DataPath, Request};
use testkit::needs::{self, Need};

/// The call that a path cannot do without.
fn need(path: DataPath) -> Option<Need> {
    match path {
        DataPath::Splice => Some(Need::Splice),
        DataPath::Sendfile => Some(Need::Sendfile),
        DataPath::CopyFileRange => Some(Need::CopyFileRange),
        _ => None,
    }
}

/// Whether it can be taken here.
pub fn is_open(path: DataPath) -> bool {
    need(path).is_none_or(Need::is_met)
}

/// Those of the paths that a test can force here. The others are reported as
/// skipped.
pub fn forcible(paths: &[DataPath]) -> Vec<DataPath> {
    let open = |path: &DataPath| {
        need(*path).is_none_or(|need| !needs::missing(&format!("{}: {path}", test()), &[need]))
    };
    paths.iter().copied().filter(open).collect()
}

/// Requests for any path, and for each of these alone that can be forced here.
pub fn any_and_each(paths: &[DataPath]) -> Vec<Request> {
    let each = forcible(paths);
    let each = each.iter().map(|path| super::only(&[*path]));
    std::iter::once(super::any()).chain(each).collect()
}

/// The report's path if all of these suit, the best first: the first that is
/// not refused. To be asserted where the fallback is the point.
pub fn carried_by(paths: &[DataPath]) -> [DataPath; 1] {
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
