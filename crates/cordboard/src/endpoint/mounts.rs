//! The types of mounted file systems, as procfs lists them.

use rustix::fs::{major, minor};

/// Returns whether the file system with this device number is FUSE. False if it is not
/// mounted in the mount namespace of the thread, or without procfs.
pub(super) fn is_fuse(device: u64) -> bool {
    // `/proc/thread-self`: since Linux 3.17.
    std::fs::read("/proc/thread-self/mountinfo").is_ok_and(|list| lists_as_fuse(&list, device))
}

/// The format is in section 3.5, "/proc/<pid>/mountinfo", of
/// Documentation/filesystems/proc.rst. Spaces in names are escaped.
fn lists_as_fuse(list: &[u8], device: u64) -> bool {
    let number = format!("{}:{}", major(device), minor(device));
    list.split(|b| *b == b'\n').any(|line| {
        let mut words = line.split(|b| *b == b' ');
        if words.nth(2) != Some(number.as_bytes()) {
            return false;
        }
        words.find(|word| word == b"-");
        let name = words.next().unwrap_or_default();
        // A subtype may follow, as in `fuse.sshfs`.
        let of = name.split(|b| *b == b'.').next().unwrap_or_default();
        matches!(of, b"fuse" | b"fuseblk" | b"virtiofs")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::makedev;

    #[test]
    fn the_type_of_a_mount_is_found() {
        let list = b"22 28 0:21 / /proc rw,nosuid shared:12 - proc proc rw\n\
            70 28 0:51 / /a\\040-\\040fuse rw - tmpfs fuse rw\n\
            71 28 0:52 / /mnt rw shared:1 master:2 - fuse.sshfs host:/ rw,user_id=0\n\
            72 28 8:3 / /n rw - fuseblk /dev/sda3 rw\n\
            73 28 0:53 / /v rw - virtiofs tag rw\n\
            74 28 0:54 / /c rw - fusectl fusectl rw\n\
            75 28 0:55 / /cut rw -\n";
        let is = |major, minor| lists_as_fuse(list, makedev(major, minor));
        assert!([(0, 52), (8, 3), (0, 53)].iter().all(|(a, b)| is(*a, *b)));
        let others = [(0, 21), (0, 51), (0, 54), (0, 55), (0, 5)];
        assert!(!others.iter().any(|(a, b)| is(*a, *b)));
    }
}
