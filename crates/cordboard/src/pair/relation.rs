//! Whether both sides are the same file.

use std::os::fd::AsFd;

use rustix::fs::{major, minor};

use crate::endpoint::{Endpoint, Facts, Kind};
use crate::sys;

/// How the two sides of a transfer are related.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Relation {
    /// Different files, as far as is known.
    #[default]
    Strangers,
    /// The same file or pipe, open through two open file descriptions; or a block device and a
    /// part of it or its backing file, whose bytes overlap.
    SameFile,
    /// The same open file description: position and flags are shared. Also if the kernel
    /// cannot compare the two, and both can be read and written, at one position.
    SameDescription,
}

/// Compares the identities of files, block devices and pipes. The directions of
/// other objects, such as terminals and sockets, are independent.
pub(crate) fn relation(source: &Endpoint<'_>, sink: &Endpoint<'_>) -> Relation {
    let (a, b) = (source.facts(), sink.facts());
    let comparable = |facts: &Facts| facts.kind.is_cached() || facts.kind.is_pipe();
    if !comparable(a) || !comparable(b) {
        return Relation::Strangers;
    }
    if a.id.is_none() || a.id != b.id {
        return match share_bytes(a, b) {
            true => Relation::SameFile,
            false => Relation::Strangers,
        };
    }
    // A description has one mode and one position.
    let may_be_one = || {
        let both = |facts: &Facts| facts.readable && facts.writable;
        both(a) && both(b) && a.position == b.position
    };
    match sys::same_description(source.as_fd(), sink.as_fd()).unwrap_or_else(may_be_one) {
        true => Relation::SameDescription,
        false => Relation::SameFile,
    }
}

/// Returns whether two different files or devices have bytes in common: a disk and its partition,
/// two loop devices of one file.
fn share_bytes(a: &Facts, b: &Facts) -> bool {
    let bytes = |facts: &Facts, start: u64| {
        let size = facts.size.unwrap_or(u64::MAX);
        start..start.saturating_add(size)
    };
    let is_part = a.storage.is_some() || b.storage.is_some();
    is_part
        && a.starts_in_common(b).is_some_and(|(one, other)| {
            let (these, those) = (bytes(a, one), bytes(b, other));
            these.start < those.end && those.start < these.end
        })
}

/// Returns whether two sinks are the same file, device, pipe or stream socket, or have bytes in
/// common. Two transfers would mix their bytes. Memory devices are never the same.
pub(crate) fn are_same_sink(one: &Endpoint<'_>, other: &Endpoint<'_>) -> bool {
    is_same(one, other) || share_bytes(one.facts(), other.facts())
}

/// Returns whether two sources are the same file, device, pipe or stream socket. Two transfers
/// would divide its bytes. Memory devices are never the same.
pub(crate) fn is_same(one: &Endpoint<'_>, other: &Endpoint<'_>) -> bool {
    let (a, b) = (one.facts(), other.facts());
    let comparable = |facts: &Facts| {
        let kind = facts.kind;
        kind.is_stream_socket() || kind.is_cached() || kind.is_pipe()
    };
    comparable(a) && comparable(b) && a.id.is_some() && a.id == b.id || are_one_device(one, other)
}

/// Returns whether both are one terminal, or one open file description of another character
/// device. Two opens of such a device may be independent: those of `/dev/net/tun` are two
/// interfaces, and those of `/dev/kmsg` have a position each.
fn are_one_device(one: &Endpoint<'_>, other: &Endpoint<'_>) -> bool {
    let may_mix = |end: &Endpoint<'_>| {
        let is_device = matches!(end.kind(), Kind::Tty | Kind::CharDevice);
        is_device && !end.facts().memory
    };
    if !may_mix(one) || !may_mix(other) {
        return false;
    }
    let number = terminal(one);
    number.is_some() && number == terminal(other)
        || sys::same_description(one.as_fd(), other.as_fd()) == Some(true)
}

/// Identifies a terminal: [`terminal_of`].
fn terminal(end: &Endpoint<'_>) -> Option<(u64, u64)> {
    if end.kind() != Kind::Tty {
        return None;
    }
    let stat = sys::fstat(end.as_fd()).ok()?;
    terminal_of(stat.st_rdev, stat.st_dev)
}

/// Returns the device number of a terminal, and for a pseudoterminal the instance of devpts,
/// which has numbers of its own. `None` for `/dev/tty`, which is another one in each session, and
/// for `/dev/ptmx`, each open of which makes another one
/// (Documentation/admin-guide/devices.txt).
fn terminal_of(number: u64, filesystem: u64) -> Option<(u64, u64)> {
    match (major(number), minor(number)) {
        (5, 0 | 2) => None,
        (136..=143, _) => Some((number, filesystem)),
        _ => Some((number, 0)),
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::makedev;

    use super::*;
    use crate::endpoint::{FileId, Kind, Storage};

    #[test]
    fn a_terminal_has_one_number_unless_opens_are_independent() {
        let of = |major, minor, filesystem| terminal_of(makedev(major, minor), filesystem);
        // /dev/tty and /dev/ptmx.
        assert_eq!([of(5, 0, 6), of(5, 2, 6)], [None; 2]);
        // /dev/console, /dev/ttyprintk, a call-out device, /dev/tty1, /dev/ttyS0: each node of it.
        for (major, minor) in [(5, 1), (5, 3), (5, 64), (4, 1), (4, 64)] {
            let one = of(major, minor, 6);
            assert!(
                one.is_some() && one == of(major, minor, 7),
                "{major}:{minor}"
            );
        }
        // Pseudoterminals.
        assert_eq!(of(136, 1, 20), of(136, 1, 20));
        assert_ne!(of(136, 1, 20), of(136, 1, 21));
    }

    #[test]
    fn parts_of_one_disk_have_bytes_in_common() {
        let id = |device, inode| FileId { device, inode };
        let device = |number, size, storage: Option<(FileId, u64)>| Facts {
            id: Some(id(number, 0)),
            size: Some(size),
            storage: storage.map(|(id, start)| Storage { id, start }),
            ..Facts::plain(Kind::BlockDevice)
        };
        let on_disk = |number, start, size| device(number, size, Some((id(1, 0), start)));
        let disk = device(1, 100, None);
        let (first, second) = (on_disk(2, 10, 20), on_disk(3, 30, 70));
        assert!(share_bytes(&disk, &first) && share_bytes(&second, &disk));
        assert!(!share_bytes(&first, &second));
        assert!(!share_bytes(&disk, &device(4, 100, None)));
        let file = |size| Facts {
            id: Some(id(9, 5)),
            size: Some(size),
            ..Facts::plain(Kind::File)
        };
        let on_file = |number, start| device(number, 50, Some((id(9, 5), start)));
        assert!(share_bytes(&on_file(2, 0), &on_file(3, 49)));
        assert!(!share_bytes(&on_file(2, 0), &on_file(3, 50)));
        assert!(share_bytes(&on_file(2, 0), &file(1)) && share_bytes(&file(1), &on_file(2, 0)));
        assert!(!share_bytes(&on_file(2, 10), &file(10)));
        // A loop device behind another one.
        let behind = device(5, 20, Some((id(2, 0), 10)));
        assert!(share_bytes(&behind, &on_file(2, 0)) && share_bytes(&on_file(2, 0), &behind));
    }
}
