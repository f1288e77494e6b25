//! The identity of users in a user namespace (`user_namespaces(7)`).

use rustix::net::{SocketAddrAny, SocketAddrUnix};
use rustix::process::geteuid;

/// The overflow id, unless it was changed.
const NOBODY: u32 = 65534;

/// Returns whether a user of the process at the other end of a control socket is that of this
/// process. `name`: the address at which the socket listens.
///
/// If the number is not certain, the file of the socket decides, to which other users must not
/// write. An abstract name has no permissions.
pub fn is_own(uid: u32, name: Option<SocketAddrAny>) -> bool {
    let has_file = || {
        let name = name.and_then(|name| SocketAddrUnix::try_from(name).ok());
        name.is_some_and(|name| name.path().is_some())
    };
    uid == geteuid().as_raw() && (is_certain(uid) || has_file())
}

/// Returns whether a number is that of one user only. The kernel shows all users that have no
/// number in this namespace as the overflow id, also this process (`from_kuid_munged`,
/// kernel/user_namespace.c).
pub fn is_certain(uid: u32) -> bool {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let overflow = read("/proc/sys/kernel/overflowuid").and_then(|id| id.trim().parse().ok());
    uid != overflow.unwrap_or(NOBODY)
        || read("/proc/self/uid_map").is_some_and(|map| is_whole(&map))
}

/// Returns whether all users have a number: the sum of the lengths of the ranges.
fn is_whole(map: &str) -> bool {
    let lengths = map
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2));
    let lengths = lengths.filter_map(|length| length.parse::<u64>().ok());
    // The last number is that of no user.
    lengths.sum::<u64>() >= u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_namespace_has_a_number_for_each_user() {
        assert!(is_whole("         0          0 4294967295\n"));
        assert!(is_whole("0 0 1\n1 1 4294967294\n"));
        assert!(!is_whole(""));
        assert!(!is_whole("0 100000 65536\n"));
    }

    #[test]
    fn other_numbers_are_certain() {
        assert!(is_certain(0) && is_certain(1000));
    }
}
