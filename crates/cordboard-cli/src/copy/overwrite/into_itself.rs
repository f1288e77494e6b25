//! A directory is not copied into itself.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use cordboard::{Errno, Side};
use rustix::fs::{CWD, Mode, Stat};

use crate::directory::{PATH_ONLY, parent};
use crate::endpoint::is_directory_alias;
use crate::files::{id, if_exists, if_reachable};
use crate::problem::{Action, Problem};
use crate::signals::retry;

/// Refuses a copy that would contain itself and never end. The directories from
/// `to`, or from its parent, up to the root are compared with the source: by
/// bind mounts one directory has several names, and by an overlay or a server
/// several device numbers.
pub fn check_not_into_itself(
    from: &Path,
    source: (BorrowedFd<'_>, &Stat),
    to: &Path,
) -> Result<(), Problem> {
    let failed = |e| Problem::call(to.to_string_lossy(), Side::Sink, e, Action::Open);
    if !is_within(to, source).map_err(failed)? {
        return Ok(());
    }
    let text = format!(
        "is the directory to be copied, {}, or is inside it",
        from.display()
    );
    Err(
        Problem::refused(to.to_string_lossy(), Side::Sink, Errno::EINVAL, text)
            .help("a directory cannot be copied into itself"),
    )
}

/// Whether the directory of this path, or its parent, is this directory or
/// below it.
fn is_within(path: &Path, source: (BorrowedFd<'_>, &Stat)) -> Result<bool, rustix::io::Errno> {
    let known = id(source.1);
    let open = |above: BorrowedFd<'_>, name: &Path| {
        retry(|| rustix::fs::openat(above, name, PATH_ONLY, Mode::empty()))
    };
    let mut found = if_exists(open(CWD, path))?;
    if found.is_none() {
        // An error of the parent is reported when something is made in it.
        found = if_exists(open(CWD, &parent(path)))?;
    }
    let mut below = None;
    while let Some(fd) = found {
        let stat = retry(|| rustix::fs::fstat(&fd))?;
        let this = id(&stat);
        if this == known || is_directory_alias(source, (fd.as_fd(), &stat)) {
            return Ok(true);
        }
        // The root is its own parent.
        if below.replace(this) == Some(this) {
            break;
        }
        // Directories above one that may not be searched cannot be compared.
        found = if_reachable(open(fd.as_fd(), Path::new("..")))?;
    }
    Ok(false)
}
