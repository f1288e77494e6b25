//! The directory that something new goes into.

use std::path::{Path, PathBuf};

use cordboard::{Errno, Side};
use rustix::fs::{Mode, OFlags};

use crate::hints::Doing;
use crate::problem::Problem;

/// How directories are opened.
pub const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// A copy that contained itself would never end.
pub fn not_into_itself(from: &Path, to: &Path) -> Result<(), Problem> {
    let whole = |path: &Path| path.canonicalize().ok();
    let inside = match (whole(from), whole(to)) {
        (Some(from), Some(to)) => to.starts_with(from),
        (Some(from), None) => whole(&parent(to)).is_some_and(|to| to.starts_with(from)),
        _ => false,
    };
    if !inside {
        return Ok(());
    }
    let text = format!(
        "it is, or is in, the directory to be copied, {}",
        from.display()
    );
    Err(
        Problem::refused(to.to_string_lossy(), Side::Sink, Errno::EINVAL, text)
            .help("a directory is not copied into itself"),
    )
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_owned(),
        None => PathBuf::from("/"),
    }
}

/// Puts the entry of a new file on the disk.
pub fn sync_parent(path: &Path) -> Result<(), Problem> {
    let parent = parent(path);
    rustix::fs::open(&parent, DIRECTORY, Mode::empty())
        .and_then(rustix::fs::fsync)
        .map_err(|e| Problem::call(parent.to_string_lossy(), Side::Sink, e, Doing::Moving))
}
