//! `-p` onto a file that exists. No user has access that the source denies, while the final mode
//! is not set and after a copy that fails.

use std::os::fd::BorrowedFd;

use rustix::fs::{Mode, Stat};
use rustix::io::Errno;

use super::acl;
use crate::signals::retry;

/// A file or directory that is open, and its status.
pub type Opened<'a> = (BorrowedFd<'a>, &'a Stat);

/// Restricts a sink to its owner before contents of the source are written to it, if
/// it permits more to other users than the source. Ignores an error: only the owner
/// may change the mode, and the final change of the mode reports the same.
pub fn restrict_before_contents(sink: Opened<'_>, source: Opened<'_>) {
    // The bits of the group limit the users that a POSIX list names, and do not name
    // them. Those of an NFSv4 list need no bits.
    let has_list = || sink.1.st_mode & 0o077 != 0 && acl::has_list(sink.0);
    let listed = || has_list() || acl::has_nfs4_names(sink.0);
    if permits_more_than(sink.1, source) || listed() {
        let _ = restrict(sink);
    }
}

/// Restricts a file or directory to its owner before it gets the owner and the group
/// of the source, if its mode permits more to other users than the source.
pub fn restrict_before_owner(sink: Opened<'_>, source: Opened<'_>) -> Result<(), Errno> {
    match has_same_owner(sink.1, source.1) || !permits_more_than(sink.1, source) {
        true => Ok(()),
        false => restrict(sink),
    }
}

fn has_same_owner(now: &Stat, source: &Stat) -> bool {
    (now.st_uid, now.st_gid) == (source.st_uid, source.st_gid)
}

/// The owner keeps its permissions: it writes the contents.
fn restrict((sink, now): Opened<'_>) -> Result<(), Errno> {
    retry(|| rustix::fs::fchmod(sink, Mode::from_raw_mode(now.st_mode & 0o700)))
}

fn permits_more_than(now: &Stat, (source, stat): Opened<'_>) -> bool {
    // Without bits for other users no list matters: the calls are saved.
    let has_list = || acl::has_list(source) || acl::has_nfs4_names(source);
    let listed = now.st_mode & 0o077 != 0 && has_list();
    permits_more(now, stat, listed)
}

/// Whether the mode of `now` permits something to the group, to others, or by
/// special bits, that the source does not permit. `listed`: the source has an access
/// control list. Its group bits are the mask, and the list may deny its group, or any
/// user of the others, what the mode of the source permits.
fn permits_more(now: &Stat, source: &Stat, listed: bool) -> bool {
    let mode = match listed {
        true => source.st_mode & !0o077,
        false => source.st_mode,
    };
    let permitted = match has_same_owner(now, source) {
        true => mode & 0o7077,
        // A user of the one group may be in the other group or not.
        false => {
            let both = mode & (mode >> 3) & 0o7;
            both << 3 | both
        }
    };
    now.st_mode & 0o7077 & !permitted != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_permits_more_by_what_the_source_denies() {
        let file = tempfile::tempfile().unwrap();
        let of = |mode: u32, owner| {
            let mut stat = cordboard::fstat(&file).unwrap();
            (stat.st_mode, stat.st_uid, stat.st_gid) = (0o100_000 | mode, owner, owner);
            stat
        };
        let found = |now, source: &Stat, listed| {
            [1, 2].map(|owner| permits_more(&of(now, owner), source, listed))
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
            let modes = format!("{now:o} {:o}", source.st_mode);
            assert_eq!(found(now, &source, false), [same, other], "{modes}");
        }
        // A list may deny what these bits permit.
        let source = of(0o666, 1);
        for (now, more) in [(0o600, false), (0o640, true), (0o604, true)] {
            assert_eq!(found(now, &source, true), [more; 2], "{now:o}");
        }
    }
}
