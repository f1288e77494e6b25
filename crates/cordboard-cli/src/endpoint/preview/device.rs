//! Devices that are not opened: opening one may rewind a tape, raise a modem's
//! lines, start a watchdog, or have a disk's partitions read again (udev, when
//! a writer closes it). `stat(2)` and sysfs provide what is known without
//! opening.

use std::os::fd::OwnedFd;
use std::path::Path;

use cordboard::endpoint::Facts;
use cordboard::{Kind, Side};
use rustix::fs::{Access, FileType, Mode, OFlags, Stat, major, minor};
use rustix::io::Errno;

use crate::files::check_access;

/// `/dev/null`, `/dev/zero` and similar devices (Documentation/admin-guide/
/// devices.txt): opening them has no effect.
const MEMORY: u32 = 1;
/// The slaves of pseudoterminals, which sysfs does not list.
const PTS: std::ops::RangeInclusive<u32> = 136..=143;

/// Whether it is a device whose opening may have an effect.
pub fn opening_does_something(stat: &Stat) -> bool {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => true,
        FileType::CharacterDevice => major(stat.st_rdev) != MEMORY,
        _ => false,
    }
}

/// Opens an `O_PATH` descriptor (since Linux 2.6.39).
///
/// # Errors
///
/// Also those of opening the device itself, as far as they are known: `EACCES`, `EROFS`, `EPERM`.
pub fn name_only(path: &Path, side: Side) -> Result<OwnedFd, Errno> {
    let access = match side {
        Side::Source => Access::READ_OK,
        Side::Sink => Access::WRITE_OK,
    };
    check_access(path, access)?;
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// Sets the facts of such a descriptor to those of an open one. Whether a
/// character device can seek is unknown, and taken for no.
pub fn complete(facts: &mut Facts, number: u64, side: Side) {
    match side {
        Side::Source => facts.readable = true,
        Side::Sink => facts.writable = true,
    }
    match facts.kind {
        Kind::CharDevice if is_terminal(number) => facts.kind = Kind::Tty,
        Kind::BlockDevice => {
            facts.position = Some(0);
            facts.size = size(number);
        }
        _ => {}
    }
}

fn is_terminal(number: u64) -> bool {
    PTS.contains(&major(number))
        || std::fs::read_link(sysfs("char", number).join("subsystem"))
            .is_ok_and(|subsystem| subsystem.ends_with("tty"))
}

/// In bytes; sysfs has sectors of 512.
fn size(number: u64) -> Option<u64> {
    let text = std::fs::read_to_string(sysfs("block", number).join("size")).ok()?;
    // Without its newline the number is truncated.
    let sectors = text.strip_suffix('\n')?.trim();
    sectors.parse::<u64>().ok()?.checked_mul(512)
}

fn sysfs(kind: &str, number: u64) -> std::path::PathBuf {
    format!("/sys/dev/{kind}/{}:{}", major(number), minor(number)).into()
}
