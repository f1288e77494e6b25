//! One file that two file systems show.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::common::*;

/// An overlay, and the directory that it writes to; gone with this value.
struct Overlay {
    dir: tempfile::TempDir,
}

impl Overlay {
    fn mount() -> Option<Overlay> {
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

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.at("merged")).status();
    }
}

fn times(file: &Path) -> (i64, i64) {
    let stat = file.metadata().unwrap();
    (stat.mtime(), stat.mtime_nsec())
}

#[test]
fn a_file_is_not_copied_onto_itself_by_another_device_number() {
    let Some(overlay) = Overlay::mount() else {
        return;
    };
    let contents = bytes(100_000);
    let [merged, upper] = ["merged/f", "upper/f"].map(|name| overlay.at(name));
    std::fs::write(&merged, &contents).unwrap();
    let [seen, below] = [&merged, &upper].map(|file| file.metadata().unwrap().dev());
    assert_ne!(seen, below, "no alias");
    let before = times(&upper);
    for (from, to) in [(&merged, &upper), (&upper, &merged)] {
        for command in ["copy", "splice"] {
            let run = run(cordboard().arg(command).args([from, to]));
            assert_eq!(run.code(), 1, "{command}: {}", run.stderr());
            let says = "it is the same file as the source";
            assert!(run.stderr().contains(says), "{}", run.stderr());
            assert!(read(&merged) == contents, "{command}");
            assert_eq!(times(&upper), before, "{command}");
        }
    }
    let run = run(cordboard()
        .args(["copy", "--append"])
        .args([&merged, &upper]));
    assert_eq!(run.code(), 1, "{}", run.stderr());
    assert!(read(&merged) == contents);
}

/// As alike as the two are others that are not one: they are copied.
#[test]
fn files_that_are_only_alike_are_copied() {
    let Some(overlay) = Overlay::mount() else {
        return;
    };
    let dir = dir();
    let (from, to) = (file(&dir, "from", &bytes(5000)), overlay.at("upper/to"));
    std::fs::write(&to, [7; 5000]).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    for name in [&from, &to] {
        let open = std::fs::File::options().write(true).open(name).unwrap();
        open.set_modified(time).unwrap();
    }
    run(cordboard().arg("copy").args([&from, &to])).ok();
    assert!(read(&to) == bytes(5000));
}

/// A limit refuses the byte that would show that the two are one: the source is
/// found to be empty once the sink was emptied.
#[test]
fn a_source_that_was_emptied_with_the_sink_is_told_of() {
    let Some(overlay) = Overlay::mount() else {
        return;
    };
    let [merged, upper] = ["merged/f", "upper/f"].map(|name| overlay.at(name));
    for command in ["copy", "splice"] {
        // As long as a file may be.
        let limit = ["-c", "ulimit -f 1; exec \"$@\"", "sh"];
        std::fs::write(&merged, bytes(512)).unwrap();
        let program = cordboard();
        let mut limited = Command::new("sh");
        limited.args(limit).arg(program.get_program());
        let run = run(limited.arg(command).args([&merged, &upper]));
        assert_eq!(run.code(), 1, "{command}: {}", run.stderr());
        let says = "its contents were lost as";
        assert!(run.stderr().contains(says), "{}", run.stderr());
    }
}
