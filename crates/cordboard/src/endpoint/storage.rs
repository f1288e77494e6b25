//! Block devices that are parts of other devices or files.

use std::os::fd::BorrowedFd;

use rustix::fs::{major, makedev, minor};

use super::file_id::FileId;
use crate::sys::{self, Backing};

/// The major number of loop devices (Documentation/admin-guide/devices.txt).
const LOOP_MAJOR: u32 = 7;
/// The major number of partitions beyond the minor numbers of their disk, as of loop devices
/// without `max_part`, and of some disks (`BLOCK_EXT_MAJOR`, linux/major.h).
const EXTENDED_MAJOR: u32 = 259;
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
    /// or its place is unknown. A device that maps others (device mapper, RAID) counts as a
    /// disk, as does a loop device behind another one.
    pub fn of(device: BorrowedFd<'_>, number: u64) -> Option<Storage> {
        let (id, start) = place(device, number, &[LOOP_MAJOR])?;
        Some(Storage { id, start: start? })
    }

    /// Returns the disk or the file that has the bytes of a block device, as [`Storage::of`]
    /// does, and also if the offset there is unknown: of a partition of a loop device without
    /// sysfs.
    pub fn container(device: BorrowedFd<'_>, number: u64) -> Option<FileId> {
        place(device, number, &[LOOP_MAJOR, EXTENDED_MAJOR]).map(|(id, _)| id)
    }
}

/// Returns the disk or the file of a device, and the offset there if it is known. `majors`: those
/// of devices that may be loop devices.
fn place(device: BorrowedFd<'_>, number: u64, majors: &[u32]) -> Option<(FileId, Option<u64>)> {
    let partition = partition(number);
    let disk = partition.map_or(number, |(disk, _)| disk);
    let backing = majors
        .contains(&major(disk))
        .then(|| sys::backing_file(device));
    place_of(number, partition, backing.flatten())
}

/// `partition`: its disk and its offset there, from sysfs. `backing`: what is behind the loop
/// device of which it is a part.
fn place_of(
    number: u64,
    partition: Option<(u64, u64)>,
    backing: Option<Backing>,
) -> Option<(FileId, Option<u64>)> {
    let Some(backing) = backing else {
        return partition.map(|(disk, start)| (of_disk(disk), Some(start)));
    };
    let start = match partition {
        Some((_, start)) => Some(start),
        None => is_whole(number, backing.number).then_some(0),
    };
    let start = start.map(|start| start.saturating_add(backing.offset));
    Some(match backing.rdevice {
        0 => {
            let id = FileId {
                device: backing.device,
                inode: backing.inode,
            };
            (id, start)
        }
        number => {
            let (disk, before) = self::partition(number).unwrap_or((number, 0));
            (
                of_disk(disk),
                start.map(|start| start.saturating_add(before)),
            )
        }
    })
}

/// Whether a device number is that of the whole loop device. The minor number of loop device 3 is
/// 3, or 3 times a power of two with the parameter `max_part` (`loop_add`, drivers/block/loop.c).
/// Those that follow are its partitions.
fn is_whole(number: u64, of: u32) -> bool {
    let minor = minor(number);
    let is_multiple = match of {
        0 => minor == 0,
        of => minor.is_multiple_of(of) && (minor / of).is_power_of_two(),
    };
    major(number) == LOOP_MAJOR && is_multiple
}

fn of_disk(device: u64) -> FileId {
    FileId { device, inode: 0 }
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

    const FILE: FileId = FileId {
        device: 1,
        inode: 2,
    };

    fn behind(number: u32) -> Option<Backing> {
        Some(Backing {
            device: FILE.device,
            inode: FILE.inode,
            rdevice: 0,
            offset: 512,
            number,
        })
    }

    #[test]
    fn a_partition_of_a_loop_device_has_a_file_without_sysfs() {
        let extended = makedev(EXTENDED_MAJOR, 1);
        assert_eq!(place_of(extended, None, behind(0)), Some((FILE, None)));
        let disk = makedev(LOOP_MAJOR, 0);
        let place = place_of(extended, Some((disk, 4096)), behind(0));
        assert_eq!(place, Some((FILE, Some(4096 + 512))));
        // Without and with `max_part`.
        for (minor, number) in [(0, 0), (3, 3), (24, 3), (16, 1)] {
            let place = place_of(makedev(LOOP_MAJOR, minor), None, behind(number));
            assert_eq!(place, Some((FILE, Some(512))), "{minor}");
        }
        for (minor, number) in [(1, 0), (15, 0), (25, 3), (31, 3), (17, 1)] {
            let place = place_of(makedev(LOOP_MAJOR, minor), None, behind(number));
            assert_eq!(place, Some((FILE, None)), "{minor}");
        }
    }

    #[test]
    fn a_partition_is_on_its_disk() {
        let (disk, part) = (makedev(8, 16), makedev(8, 17));
        assert_eq!(place_of(disk, None, None), None);
        let place = place_of(part, Some((disk, 512)), None);
        assert_eq!(place, Some((of_disk(disk), Some(512))));
    }
}
