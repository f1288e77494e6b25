//! File systems in memory, mounted for one test.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

/// A file system in a file in memory, gone with this value.
pub struct Mount {
    pub dir: tempfile::TempDir,
}

impl Mount {
    pub fn run(command: &str, args: &[&str]) -> bool {
        let done = Command::new(command).args(args).output();
        done.is_ok_and(|output| output.status.success())
    }

    pub fn new(kind: &str, size: u64) -> Option<Mount> {
        if !super::root() {
            eprintln!("SKIPPED: mounting {kind} takes root");
            return None;
        }
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let (image, at) = (dir.path().join("image"), dir.path().join("at"));
        std::fs::create_dir(&at).unwrap();
        let (image, at) = (image.to_str().unwrap(), at.to_str().unwrap());
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
            eprintln!("SKIPPED: {kind} cannot be made and mounted here");
            return None;
        }
        Some(Mount { dir })
    }

    /// What is on the medium at this moment, mounted beside it: what the page
    /// cache has not written is not there, as after a loss of power.
    pub fn snapshot(&self) -> Mount {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let (image, at) = (dir.path().join("image"), dir.path().join("at"));
        std::fs::create_dir(&at).unwrap();
        let (image, at) = (image.to_str().unwrap(), at.to_str().unwrap());
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
