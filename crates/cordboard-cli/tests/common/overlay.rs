//! A file system that shows another one's files under a device number of its own.

use std::path::PathBuf;
use std::process::Command;

use super::root;

/// An overlay, and the directory that it writes to; gone with this value.
pub struct Overlay {
    dir: tempfile::TempDir,
}

impl Overlay {
    pub fn mount() -> Option<Overlay> {
        if !root("mounting an overlay") {
            return None;
        }
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        for name in ["lower", "upper", "work", "merged"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let options = "lowerdir=lower,upperdir=upper,workdir=work";
        let done = Command::new("mount")
            .args(["-t", "overlay", "-o", options, "overlay", "merged"])
            .current_dir(dir.path())
            .status();
        if done.is_ok_and(|status| status.success()) {
            return Some(Overlay { dir });
        }
        testkit::skip::here("no overlay can be mounted here");
        None
    }

    /// `upper/NAME` and `merged/NAME` are one file.
    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.at("merged")).status();
    }
}
