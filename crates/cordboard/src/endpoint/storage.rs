//! Block devices that are parts of other devices or files.

use std::os::fd::BorrowedFd;

use rustix::fs::{major, makedev, minor};

use super::file_id::FileId;
use crate::sys;

/// The major number of loop devices (Documentation/admin-guide/devices.txt).
const LOOP_MAJOR: u32 = 7;
/// The unit of `start` in sysfs, in bytes. It does not depend on the device.
const SECTOR: u64 = 512;

/// The place of a block device in a larger device or in a file: of a partition in its disk, of
/// a loop device in its backing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Storage {
    /// The disk, as in [`Facts::id`](super::Facts::id) of a block device, or the file.
    pub id: FileId,
    /// The offset of the first byte of the device there, in bytes.
    pub start: u64,
}

impl Storage {
    /// Returns the place of a block device, by its number (`st_rdev`): from sysfs, and by
    /// `LOOP_GET_STATUS64` of a loop device or a partition of one. `None`: it is a whole disk,
    /// or neither sysfs nor the ioctl reports the place. A device that maps others (device mapper, RAID) counts as a disk,
    /// as does a loop device behind another one.
    pub fn of(device: BorrowedFd<'_>, number: u64) -> Option<Storage> {
        let partition = partition(number);
        let (disk, start) = partition.unwrap_or((number, 0));
        let backing = match major(disk) {
            LOOP_MAJOR => sys::backing_file(device),
            _ => None,
        };
        let Some(backing) = backing else {
            return partition.map(|_| Storage::on_disk(disk, start));
        };
        let start = start.saturating_add(backing.offset);
        Some(match backing.rdevice {
            0 => Storage {
                id: FileId {
                    device: backing.device,
                    inode: backing.inode,
                },
                start,
            },
            number => {
                let (disk, before) = self::partition(number).unwrap_or((number, 0));
                Storage::on_disk(disk, start.saturating_add(before))
            }
        })
    }

    fn on_disk(disk: u64, start: u64) -> Storage {
        let id = FileId {
            device: disk,
            inode: 0,
        };
        Storage { id, start }
    }
}

/// Returns the disk of a partition, and the offset of the partition there.
fn partition(number: u64) -> Option<(u64, u64)> {
    let folder = format!("/sys/dev/block/{}:{}", major(number), minor(number));
    let read = |name| std::fs::read_to_string(format!("{folder}/{name}")).ok();
    // Only a partition has it.
    let start = sectors(&read("start")?)?;
    Some((device(&read("../dev")?)?, start))
}

/// Returns the bytes of a number of sectors. Without its newline, the number is truncated.
fn sectors(text: &str) -> Option<u64> {
    let number: u64 = text.strip_suffix('\n')?.parse().ok()?;
    number.checked_mul(SECTOR)
}

/// Returns the device number of `8:16`.
fn device(text: &str) -> Option<u64> {
    let (major, minor) = text.strip_suffix('\n')?.split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sysfs_lists() {
        assert_eq!(sectors("2048\n"), Some(1 << 20));
        assert_eq!(device("259:70000\n"), Some(makedev(259, 70_000)));
        for text in ["2048", "\n", "x\n", "", "18446744073709551615\n"] {
            assert_eq!(sectors(text), None, "{text}");
        }
        for text in ["8:1", "8\n", ":\n", "8:x\n", ""] {
            assert_eq!(device(text), None, "{text}");
        }
        assert_eq!(partition(makedev(0, 0)), None);
    }
}
