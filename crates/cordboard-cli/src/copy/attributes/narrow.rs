//! `-p` onto a file that exists: users to whom the source denies access must not
//! have it until the final mode is set, nor if the copy fails before.

use std::os::fd::BorrowedFd;

use rustix::fs::{Mode, Stat};
use rustix::io::Errno;

use super::acl;
use crate::signals::retry;

/// Shuts a sink before contents of the source are written to it, if other users
/// than those of the source may access it. `now` and `source` are the status of
/// both. Ignores an error: only the owner may do this, and the final change of
/// the mode reports the same.
pub fn shut_before_contents(sink: BorrowedFd<'_>, now: &Stat, source: &Stat) {
    // The bits of the group limit the users that a list names, and do not name
    // them.
    let listed = || now.st_mode & 0o077 != 0 && acl::has_list(sink);
    if is_wider(now, source) || listed() {
        let _ = shut(sink, now);
    }
}

/// Shuts a file or directory before it gets the owner and the group of the
/// source, if its mode would let other users in than that of the source.
pub fn shut_before_owner(sink: BorrowedFd<'_>, now: &Stat, source: &Stat) -> Result<(), Errno> {
    match has_same_owner(now, source) || !is_wider(now, source) {
        true => Ok(()),
        false => shut(sink, now),
    }
}

pub fn has_same_owner(now: &Stat, source: &Stat) -> bool {
    (now.st_uid, now.st_gid) == (source.st_uid, source.st_gid)
}

/// The owner keeps what it has: it writes the contents.
fn shut(sink: BorrowedFd<'_>, now: &Stat) -> Result<(), Errno> {
    retry(|| rustix::fs::fchmod(sink, Mode::from_raw_mode(now.st_mode & 0o700)))
}

/// Whether the mode of `now` permits something to the group, to others, or by
/// special bits, that the source does not permit.
fn is_wider(now: &Stat, source: &Stat) -> bool {
    let permitted = match has_same_owner(now, source) {
        true => source.st_mode & 0o7077,
        // A user of the one group may be in the other group or not.
        false => {
            let both = source.st_mode & (source.st_mode >> 3) & 0o7;
            both << 3 | both
        }
    };
    now.st_mode & 0o7077 & !permitted != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_wider_by_what_the_source_denies() {
        let file = tempfile::tempfile().unwrap();
        let of = |mode: u32, owner| {
            let mut stat = cordboard::fstat(&file).unwrap();
            (stat.st_mode, stat.st_uid, stat.st_gid) = (0o100_000 | mode, owner, owner);
            stat
        };
        for (now, source, same, other) in [
            (0o600, 0o600, false, false),
            (0o700, 0o400, false, false),
            (0o644, 0o600, true, true),
            (0o644, 0o644, false, false),
            // Another group.
            (0o640, 0o640, false, true),
            (0o640, 0o604, true, true),
            (0o644, 0o666, false, false),
            (0o4755, 0o4755, false, true),
            (0o2755, 0o755, true, true),
        ] {
            let source = of(source, 1);
            let found = [1, 2].map(|owner| is_wider(&of(now, owner), &source));
            assert_eq!(found, [same, other], "{now:o} {:o}", source.st_mode);
        }
    }
}
