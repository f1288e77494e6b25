//! Mounts and loop devices of one test, which are undone when they are dropped, also by a
//! panic.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A file system that is mounted on this directory.
pub struct Mounted(PathBuf);

impl Mounted {
    /// Mounts by mount(8) with these arguments and the directory, which it makes. `None`:
    /// the test is skipped.
    pub fn new<S: AsRef<OsStr>>(args: &[S], at: &Path) -> Option<Mounted> {
        if !super::can_mount() {
            return None;
        }
        std::fs::create_dir(at).unwrap();
        let done = Command::new("mount").args(args).arg(at).output();
        if done.is_ok_and(|done| done.status.success()) {
            return Some(Mounted(at.to_owned()));
        }
        testkit::skip::here("mount(8) failed");
        None
    }

    /// Mounts a tmpfs with these options.
    pub fn tmpfs(options: &str, at: &Path) -> Option<Mounted> {
        Mounted::new(&["-t", "tmpfs", "-o", options, "none"], at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A descriptor of a child that another test starts may keep it busy.
        let mut umount = Command::new("umount");
        umount.arg("-l").arg(&self.0).stderr(Stdio::null());
        let _ = umount.status();
    }
}

/// A loop device over a file.
pub struct Attached(String);

impl Attached {
    /// Attaches a device by losetup(8). `None`: the test is skipped.
    pub fn new(image: &Path) -> Option<Attached> {
        let mut losetup = Command::new("losetup");
        let made = losetup.args(["--find", "--show"]).arg(image).output();
        let Some(made) = made.ok().filter(|made| made.status.success()) else {
            testkit::skip::here("no losetup(8), or no loop device here");
            return None;
        };
        let device = String::from_utf8(made.stdout).unwrap();
        Some(Attached(device.trim().to_owned()))
    }

    /// Its path.
    pub fn device(&self) -> &str {
        &self.0
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}
