//! Free memory that a virtual machine keeps.
//!
//! The host of a virtual machine may take free pages back (free page reporting), and provide
//! them again at the next use. A run that fills new pages of the page cache then takes up to
//! ten times as long, depending on the pages that the previous run has freed.

use std::fs;
use std::path::{Path, PathBuf};

use super::env::memory_available;

/// The parameters of the kernel, with the values that permit the fewest reports. Linux has only
/// the order; the others are those of a kernel with changes.
const PARAMETERS: [(&str, &str); 4] = [
    ("page_reporting_order", "10"),
    ("free_bitmap_enable", "N"),
    ("max_waiting_mib", "1000000"),
    ("min_free_ms", "60000"),
];
/// Since Linux 5.14.
const DIRECTORY: &str = "/sys/module/page_reporting/parameters";

/// Free page reporting is switched off until this is dropped, if permitted.
#[derive(Debug)]
pub struct Kept {
    before: Vec<(PathBuf, String)>,
}

impl Kept {
    /// Switches free page reporting off, and uses most of the free memory once, so that the host
    /// provides it.
    pub fn new() -> Kept {
        let kept = Kept::at(Path::new(DIRECTORY));
        if !kept.before.is_empty() {
            let most = memory_available() / 4 * 3;
            let pages = vec![1_u8; usize::try_from(most).unwrap_or(0)];
            std::hint::black_box(&pages);
        }
        kept
    }

    fn at(directory: &Path) -> Kept {
        let changed = PARAMETERS.into_iter().filter_map(|(name, value)| {
            let path = directory.join(name);
            let before = fs::read_to_string(&path).ok()?.trim().to_owned();
            (before != value).then_some(())?;
            fs::write(&path, value).ok()?;
            Some((path, before))
        });
        Kept {
            before: changed.collect(),
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        for (path, value) in &self.before {
            let _ = fs::write(path, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_are_restored() {
        let directory = tempfile::tempdir().unwrap();
        let order = directory.path().join("page_reporting_order");
        fs::write(&order, "9\n").unwrap();
        let kept = Kept::at(directory.path());
        assert_eq!(fs::read_to_string(&order).unwrap(), "10");
        drop(kept);
        assert_eq!(fs::read_to_string(&order).unwrap(), "9");
    }

    #[test]
    fn a_kernel_without_the_parameters_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Kept::at(directory.path()).before.is_empty());
        assert_eq!(directory.path().read_dir().unwrap().count(), 0);
    }
}
