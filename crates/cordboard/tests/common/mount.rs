//! File systems in memory, mounted for one test.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use testkit::needs::Need;

/// A file system in a file in memory. Dropping it unmounts and removes it.
pub struct Mount {
    pub dir: tempfile::TempDir,
}

/// Makes a directory in memory, or elsewhere if there is no tmpfs.
fn in_memory() -> tempfile::TempDir {
    let dir = tempfile::tempdir_in("/dev/shm");
    dir.or_else(|_| tempfile::tempdir()).unwrap()
}

/// Makes a directory in memory. Returns it, the name of an image that is yet to be
/// made, and the directory to mount it on.
fn image_and_directory() -> (tempfile::TempDir, String, String) {
    let dir = in_memory();
    let name = |name| dir.path().join(name).to_str().unwrap().to_owned();
    let (image, at) = (name("image"), name("at"));
    std::fs::create_dir(&at).unwrap();
    (dir, image, at)
}

impl Mount {
    pub fn run(command: &str, args: &[&str]) -> bool {
        let done = Command::new(command).args(args).output();
        done.is_ok_and(|output| output.status.success())
    }

    pub fn new(kind: &str, size: u64) -> Option<Mount> {
        if let Some(why) = Need::Mounts.unmet() {
            testkit::skip::here(format!("{kind}: {why}"));
            return None;
        }
        let (dir, image, at) = image_and_directory();
        let (image, at) = (image.as_str(), at.as_str());
        let mounted = if kind == "tmpfs" {
            let options = format!("size={size}");
            Mount::run("mount", &["-t", "tmpfs", "-o", &options, "tmpfs", at])
        } else {
            File::create(image).unwrap().set_len(size).unwrap();
            let force = if kind == "ext4" { "-F" } else { "-f" };
            Mount::run(&format!("mkfs.{kind}"), &["-q", force, image])
                && Mount::run("mount", &["-o", "loop", image, at])
        };
        if !mounted {
            testkit::skip::here(format!("{kind} cannot be made and mounted here"));
            return None;
        }
        Some(Mount { dir })
    }

    /// Mounts a copy of the medium as it is at this moment: without the data that
    /// the page cache has not written back, as after a loss of power.
    pub fn snapshot(&self) -> Mount {
        let (dir, image, at) = image_and_directory();
        let (image, at) = (image.as_str(), at.as_str());
        let from = self.dir.path().join("image");
        let from = from.to_str().unwrap();
        assert!(Mount::run("cp", &["--sparse=always", from, image]));
        assert!(Mount::run("mount", &["-o", "loop", image, at]));
        Mount { dir }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("at")
    }

    pub fn file(&self, name: &str) -> File {
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(true);
        options.open(self.path().join(name)).unwrap()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        Mount::run("umount", &["-l", self.path().to_str().unwrap()]);
    }
}

/// A loop device on a file in memory. Dropping it detaches and removes it.
pub struct Loop {
    pub dir: tempfile::TempDir,
    pub device: String,
}

impl Loop {
    /// Attaches a device to the file that `image` makes at the path it is given.
    pub fn new(image: impl FnOnce(&std::path::Path)) -> Option<Loop> {
        if let Some(why) = testkit::loopdev::unavailable() {
            testkit::skip::here(why);
            return None;
        }
        let dir = in_memory();
        let name = dir.path().join("image");
        image(&name);
        let made = Command::new("losetup")
            .args(["--find", "--show", name.to_str().unwrap()])
            .output();
        let Some(made) = made.ok().filter(|made| made.status.success()) else {
            testkit::skip::here("no loop device is available here");
            return None;
        };
        let device = String::from_utf8(made.stdout).unwrap().trim().to_owned();
        Some(Loop { dir, device })
    }

    pub fn open(&self) -> File {
        let mut options = File::options();
        options.read(true).write(true).open(&self.device).unwrap()
    }

    /// Gives the device another size, in bytes.
    pub fn resize(&self, size: u64) {
        let image = File::options()
            .write(true)
            .open(self.dir.path().join("image"));
        image.unwrap().set_len(size).unwrap();
        assert!(Mount::run("losetup", &["--set-capacity", &self.device]));
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        Mount::run("losetup", &["-d", &self.device]);
    }
}
