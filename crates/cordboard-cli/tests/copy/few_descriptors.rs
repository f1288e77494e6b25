//! The least number of descriptors: directories above are closed, and opened
//! again on the way back.

use std::path::Path;
use std::process::Command;

use testkit::needs::Need;

use crate::common::*;
use crate::{chmod, mode};

/// The three standard ones, one to wake a transfer, and of both sides the
/// directory and the file. Without eventfds, a pipe with two descriptors is
/// used.
pub fn least() -> usize {
    3 + 1 + 2 * 2 + usize::from(!Need::Eventfd.is_met())
}

/// The command with this number of descriptors, and none inherited.
pub fn with(limit: usize) -> Command {
    let mut shell = Command::new("sh");
    let script = r#"exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit -n "$0"; exec "$@""#;
    shell.args(["-c", script, &limit.to_string()]);
    shell.arg(env!("CARGO_BIN_EXE_cordboard")).arg("copy");
    shell
}

/// Makes a tree of this depth. On each level, a file precedes the subdirectory
/// in the listing, and a directory follows it.
fn tree(top: &Path, levels: usize) {
    let mut here = top.to_owned();
    for level in 0..levels {
        std::fs::create_dir_all(here.join("side")).unwrap();
        for name in ["a", "z", "side/f"] {
            std::fs::write(here.join(name), format!("{name} {level}")).unwrap();
        }
        std::os::unix::fs::symlink("a", here.join("link")).unwrap();
        // Bits that a usual umask does not remove.
        chmod(&here.join("side"), [0o500, 0o501, 0o504, 0o505][level % 4]);
        here.push("d");
    }
}

/// Compares both, and restores access to the directories.
#[track_caller]
fn same(tree: &Path, copy: &Path, levels: usize) {
    let (mut from, mut to) = (tree.to_owned(), copy.to_owned());
    for level in 0..levels {
        for name in ["a", "z", "side/f"] {
            assert!(
                read(from.join(name)) == read(to.join(name)),
                "{level} {name}"
            );
        }
        assert!(to.join("link").is_symlink(), "{level}");
        assert_eq!(mode(&from.join("side")), mode(&to.join("side")), "{level}");
        chmod(&to.join("side"), 0o700);
        from.push("d");
        to.push("d");
    }
    assert!(!to.exists());
}

#[test]
fn no_depth_takes_more_descriptors() {
    let (dir, least) = (dir(), least());
    for levels in [1, 8, 60] {
        let at = dir.path().join(format!("tree{levels}"));
        tree(&at, levels);
        let flags = [&["-r"][..], &["-rp"], &["-r", "--verify"]];
        for (number, flags) in flags.into_iter().enumerate() {
            let to = dir.path().join(format!("copy{levels}-{number}"));
            let copy = |limit| run(with(limit).args(flags).arg("--json").args([&at, &to]));
            let json = copy(least).ok().json();
            assert_eq!(json["ended"], "eof");
            same(&at, &to, levels);
            // Once more, over the existing copy.
            if number == 0 {
                let again = run(with(least).args(flags).args([&at.join("."), &to]));
                again.ok();
            }
        }
        // One less is too few, which is reported.
        let to = dir.path().join(format!("copy{levels}"));
        let run = run(with(least - 1).arg("-r").args([&at, &to]));
        assert_eq!(run.code(), 1);
        assert!(run.stderr().contains("(ulimit -n)"), "{}", run.stderr());
    }
}

/// Wherever descriptors run out, also with many files under way.
#[test]
fn any_number_of_descriptors_is_enough() {
    const LEVELS: usize = 24;
    let (dir, least) = (dir(), least());
    let at = dir.path().join("tree");
    tree(&at, LEVELS);
    // Enough for threads: the walk alone copies up to 64 files.
    for i in 0..100 {
        std::fs::write(at.join(format!("many{i}")), bytes(i)).unwrap();
    }
    // -p opens both sides of a symlink too.
    for (number, limit) in (least..40).chain((40..200).step_by(16)).enumerate() {
        let to = dir.path().join(format!("copy{limit}"));
        let flags = ["-r", "-rp"][number % 2];
        run(with(limit).args([flags, "-j64"]).args([&at, &to])).ok();
        same(&at, &to, LEVELS);
        for i in 0..100 {
            assert!(read(to.join(format!("many{i}"))) == bytes(i), "{limit} {i}");
        }
    }
}

/// Descriptors of the parent leave fewer than the limit permits.
#[test]
fn inherited_descriptors_are_not_counted_on() {
    use std::os::unix::process::CommandExt;
    const LEVELS: usize = 24;
    const INHERITED: i32 = 200;
    let (dir, least) = (dir(), least());
    let at = dir.path().join("tree");
    tree(&at, LEVELS);
    // Symlinks and files, all of which are under way at once.
    for i in 0..100 {
        std::fs::write(at.join(format!("many{i}")), bytes(i)).unwrap();
        let below = at.join(format!("d{i}"));
        std::fs::create_dir(&below).unwrap();
        std::os::unix::fs::symlink("f", below.join("l")).unwrap();
        std::fs::write(below.join("f"), bytes(60_000)).unwrap();
    }
    for more in (0..16).step_by(3) {
        let to = dir.path().join(format!("copy{more}"));
        let mut command = with(INHERITED as usize + least + more);
        let inherit = || {
            (10..10 + INHERITED).for_each(|number| testkit::child::copy_to(0, number, false));
            Ok(())
        };
        command.stdin(std::process::Stdio::null());
        // SAFETY: dup3(2) is async-signal-safe. The standard descriptors are in place, and
        // execve(2) closes the others.
        unsafe { command.pre_exec(inherit) };
        let run = run(command.args(["-rp", "-j64"]).args([&at, &to]));
        assert_eq!((run.code(), run.stderr()), (0, String::new()), "{more}");
        same(&at, &to, LEVELS);
    }
}
