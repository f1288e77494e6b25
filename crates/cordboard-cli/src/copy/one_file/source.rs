//! Which files can be a source.

use std::path::Path;

use cordboard::{Errno, Side, Size};
use rustix::fs::{FileType, Stat};

use crate::copy::job::Job;
use crate::copy::refusals::not_copyable;
use crate::files::kind;
use crate::problem::Problem;

/// Devices without an end: full, random, urandom, zero
/// (Documentation/admin-guide/devices.txt).
const ENDLESS: [(u32, u32); 4] = [(1, 5), (1, 7), (1, 8), (1, 9)];

impl Job {
    /// Refuses a source that is neither a file nor a device that can be copied.
    /// A device that is an operand is read, as by `cp`; one in a tree is not.
    pub fn accepts(&self, path: &Path, stat: &Stat) -> Result<(), Problem> {
        let shown = path.to_string_lossy();
        let refused = |text| Problem::refused(shown.as_ref(), Side::Source, Errno::EINVAL, text);
        let device = (
            rustix::fs::major(stat.st_rdev),
            rustix::fs::minor(stat.st_rdev),
        );
        match kind(stat) {
            FileType::BlockDevice | FileType::CharacterDevice if self.recursive => {
                Err(not_copyable(path, kind(stat), true))
            }
            FileType::BlockDevice => Ok(()),
            FileType::CharacterDevice if self.staging.verify => {
                let text = "is a character device, and cannot be read a second time";
                Err(refused(text).help("omit --verify"))
            }
            FileType::CharacterDevice
                if self.request.size == Size::Eof && ENDLESS.contains(&device) =>
            {
                Err(refused("has no end").help("to copy a part of it, use --size N"))
            }
            FileType::CharacterDevice => Ok(()),
            other => Err(not_copyable(path, other, self.recursive)),
        }
    }
}
