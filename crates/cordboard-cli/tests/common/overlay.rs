//! A file system that shows the files of another under its own device number.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::can_mount;

/// An overlay, and the directory that it writes to, which has few inodes.
/// Unmounted when dropped.
pub struct Overlay {
    dir: tempfile::TempDir,
}

impl Overlay {
    pub fn mount() -> Option<Overlay> {
        if !can_mount() {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let overlay = Overlay { dir };
        let mount = |kind: &str, options: &str, at: &str| {
            let mut command = Command::new("mount");
            command.args(["-t", kind, "-o", options, kind, at]);
            let done = command.current_dir(overlay.at("")).status();
            done.is_ok_and(|status| status.success())
        };
        // A copy without an end fails when no inodes are left.
        let path = overlay.at("");
        let limits = "mode=755,size=256m,nr_inodes=2000";
        let mounted = mount("tmpfs", limits, path.to_str().unwrap()) && {
            for name in ["lower", "upper", "work", "merged"] {
                std::fs::create_dir(overlay.at(name)).unwrap();
            }
            mount(
                "overlay",
                "lowerdir=lower,upperdir=upper,workdir=work",
                "merged",
            )
        };
        if mounted {
            return Some(overlay);
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
        for name in ["merged", ""] {
            let mut umount = Command::new("umount");
            let _ = umount.arg(self.at(name)).stderr(Stdio::null()).status();
        }
    }
}
