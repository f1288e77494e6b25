//! `-p`: the mode and the NFSv4 access control lists, which a server derives from each other.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use cordboard::Side;
use cordboard::endpoint::Filesystem;
use rustix::fs::Mode;
use rustix::io::Errno;

use super::acl;
use super::extended::{CopyResult, Names, Node, copy_one, is_refusal, report};
use crate::copy::outcome::Outcome;
use crate::copy::place::Place;
use crate::signals::retry;

/// The results of setting the lists and of setting the mode.
pub type Results = (CopyResult, CopyResult);

/// Sets this mode, and the NFSv4 lists of `source` with these names.
///
/// A list comes after the mode, which may discard it. The mode alone may permit what the list
/// denies: with a list of other users, it is set without the bits of group and others. The
/// server then derives the mode from the list (RFC 7530, 6.4.1.2). If the list is refused, the
/// bits stay off.
pub fn set_mode_and_lists(
    names: &Names,
    mode: u32,
    (source, sink): (BorrowedFd<'_>, BorrowedFd<'_>),
    to: &Place<'_>,
    outcome: &mut Outcome,
) -> Results {
    let change = |mode| retry(|| rustix::fs::fchmod(sink, Mode::from_raw_mode(mode)));
    let lists: Vec<&CStr> = names.only(acl::is_nfs4_list).collect();
    let has_names = acl::names_others_in(source, &lists);
    let first = if has_names { mode & !0o077 } else { mode };
    let mut changed = change(first);
    let both = (Node::Open(source), Node::Open(sink));
    let mut copied = copy_lists(&lists, has_names, both, to, outcome);
    if copied.is_set {
        // A FUSE file system may store any attribute: the mode then does not depend on the list.
        // The attributes that an NFS client caches may be older than the list.
        if first != mode && is_fuse(sink) && has_mode(sink, first) {
            changed = change(mode);
            // If the mode does depend on the list, the change may have discarded the list.
            let lists: Vec<&CStr> = lists
                .into_iter()
                .filter(|name| acl::permits(name))
                .collect();
            let again = copy_lists(&lists, has_names, both, to, outcome);
            copied.result = copied.result.and(again.result);
            if again.is_refused {
                changed = change(first);
            }
        } else if changed.is_err() && has_mode(sink, mode) {
            // An inherited list may forbid a change of the mode (`aclmode=restricted` of ZFS).
            changed = Ok(());
        }
    } else if first != mode && !copied.is_refused {
        // The file system has no such lists.
        changed = change(mode);
    }
    (copied.result, changed.map_err(|errno| (Side::Sink, errno)))
}

/// The lists after an attempt to copy them.
struct Copied {
    /// The sink has a list that determines permissions.
    is_set: bool,
    /// The sink has none, and the file system has such lists.
    is_refused: bool,
    result: CopyResult,
}

/// `has_names`: a refusal is a failure, as that of a POSIX list.
fn copy_lists(
    lists: &[&CStr],
    has_names: bool,
    both: (Node<'_>, Node<'_>),
    to: &Place<'_>,
    outcome: &mut Outcome,
) -> Copied {
    let (mut is_set, mut failures) = (false, Vec::new());
    for name in lists {
        match copy_one(name, both) {
            Ok(copied) => is_set |= copied && acl::permits(name),
            Err(failure) => failures.push((name, failure)),
        }
    }
    let (mut is_refused, mut result) = (false, Ok(()));
    for (name, failure) in failures {
        let is_missing = matches!(failure.1, Errno::OPNOTSUPP | Errno::NOSYS);
        let refused = has_names && !is_set && acl::permits(name) && !is_missing;
        is_refused |= refused;
        result = result.and(match refused && is_refusal(failure.1) {
            true => Err(failure),
            false => report(name, failure, to, outcome),
        });
    }
    Copied {
        is_set,
        is_refused,
        result,
    }
}

fn is_fuse(file: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|about| Filesystem::of(&about).is_fuse())
}

fn has_mode(file: BorrowedFd<'_>, mode: u32) -> bool {
    retry(|| cordboard::fstat(file)).is_ok_and(|now| now.st_mode & 0o7777 == mode)
}
