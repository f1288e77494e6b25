//! The types and the options of mounted file systems, as procfs lists them.

use std::io::ErrorKind;
use std::os::fd::BorrowedFd;

use rustix::fs::{major, minor};

use crate::sys;

/// `/proc/thread-self`: since Linux 3.17.
const LIST: &str = "/proc/thread-self/mountinfo";

/// Returns whether the file system with this device number is FUSE. False if it is not
/// mounted in the mount namespace of the thread, or without procfs.
pub(super) fn is_fuse(device: u64) -> bool {
    std::fs::read(LIST).is_ok_and(|list| lists_as_fuse(&list, device))
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

/// Returns whether each file of this overlay has its bytes in the layer that has its
/// attributes. Not so if a copy up may copy the attributes only (`metacopy=on`, since Linux
/// 4.19), or if a lower layer has bytes only (`::`, since Linux 6.5, and `datadir+`). False if
/// the mount is not in the mount namespace of the thread, or without procfs and sysfs.
pub(crate) fn keeps_bytes_with_attributes(overlay: BorrowedFd<'_>) -> bool {
    let by_default = || match std::fs::read("/sys/module/overlay/parameters/metacopy") {
        Ok(is_on) => is_on == b"N\n",
        // Before Linux 4.19.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            std::fs::exists("/sys/module/overlay").is_ok_and(|exists| exists)
        }
        Err(_) => false,
    };
    let list = sys::mount_id(overlay).and_then(|id| Some((id, std::fs::read(LIST).ok()?)));
    list.is_some_and(|(id, list)| lists_as_whole(&list, id).unwrap_or_else(by_default))
}

/// `None`: by default. An option is listed if it is not the default (`ovl_show_options`).
fn lists_as_whole(list: &[u8], id: u64) -> Option<bool> {
    let id = id.to_string();
    let mut lines = list.split(|b| *b == b'\n');
    let line = lines.find(|line| line.split(|b| *b == b' ').next() == Some(id.as_bytes()));
    let mut words = line.unwrap_or_default().split(|b| *b == b' ');
    words.find(|word| *word == b"-");
    let (Some(b"overlay"), Some(_), Some(options)) = (words.next(), words.next(), words.next())
    else {
        return Some(false);
    };
    let is_listed = |option: &[u8]| options.split(|b| *b == b',').any(|word| word == option);
    let has_data_only = [&b"::"[..], b"datadir+"]
        .iter()
        .any(|part| options.windows(part.len()).any(|window| window == *part));
    if has_data_only || is_listed(b"metacopy=on") {
        return Some(false);
    }
    is_listed(b"metacopy=off").then_some(true)
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

    #[test]
    fn overlays_whose_bytes_may_be_in_another_layer() {
        let list = b"22 28 0:21 / /proc rw shared:12 - proc proc rw\n\
            23 28 0:40 / /a rw - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w\n\
            24 28 0:41 / /b rw shared:1 - overlay o rw,lowerdir=/l,metacopy=on\n\
            25 28 0:42 / /c rw - overlay o rw,metacopy=off,volatile\n\
            26 28 0:43 / /d rw - overlay o ro,lowerdir=/l::/data\n\
            27 28 0:44 / /e rw - overlay o ro,lowerdir+=/l,datadir+=/data\n\
            28 28 0:45 / /f rw - overlay o\n";
        let whole = |id| lists_as_whole(list, id);
        assert_eq!((whole(23), whole(25)), (None, Some(true)));
        for id in [2, 22, 24, 26, 27, 28, 29] {
            assert_eq!(whole(id), Some(false), "{id}");
        }
    }
}
