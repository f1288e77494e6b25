//! A directory is not copied into itself.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use cordboard::{Errno, Side};
use rustix::fs::{CWD, Mode, Stat};

use super::sources::Sources;
use crate::directory::{PATH_ONLY, parent};
use crate::endpoint::is_directory_alias;
use crate::files::{Id, id, if_exists, if_reachable};
use crate::problem::{Action, Problem};
use crate::signals::retry;

/// Refuses a copy that would contain itself and never end. The directories from
/// `to`, or from its parent, up to the root are compared with the source: by
/// bind mounts one directory has several names, and by an overlay or a server
/// several device numbers. The first one may also be in the source by a mount
/// above which there are other directories.
pub fn check_not_into_itself(
    from: &Path,
    source: (BorrowedFd<'_>, &Stat),
    to: &Path,
    sources: &Sources,
) -> Result<(), Problem> {
    let failed = |e| Problem::call(to.to_string_lossy(), Side::Sink, e, Action::Open);
    let is_met = |there: Id| sources.is_met_in(from, there);
    if !is_within(to, source, is_met).map_err(failed)? {
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
fn is_within(
    path: &Path,
    source: (BorrowedFd<'_>, &Stat),
    is_met: impl Fn(Id) -> bool,
) -> Result<bool, rustix::io::Errno> {
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
        let stat = retry(|| cordboard::fstat(&fd))?;
        let this = id(&stat);
        let met = below.is_none() && is_met(this);
        if this == known || met || is_directory_alias(source, (fd.as_fd(), &stat)) {
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
