//! Bind mounts: one file or directory has several names, and is on one device.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::common::*;

/// A directory with these files, each of which contains its own name. A name
/// with a slash at its end is that of a directory.
fn made(names: &[&str]) -> TempDir {
    let dir = dir();
    for name in names {
        let path = dir.path().join(name);
        let above = match name.ends_with('/') {
            true => path.as_path(),
            false => path.parent().unwrap(),
        };
        std::fs::create_dir_all(above).unwrap();
        if !name.ends_with('/') {
            std::fs::write(&path, name).unwrap();
        }
    }
    dir
}

/// The contents of everything below it. Those of a directory are empty.
fn all_in(dir: &TempDir) -> BTreeMap<String, String> {
    fn add(top: &Path, at: &Path, all: &mut BTreeMap<String, String>) {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(top).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                all.insert(name, String::new());
                add(top, &path, all);
            } else {
                all.insert(name, String::from_utf8(read(&path)).unwrap());
            }
        }
    }
    let mut all = BTreeMap::new();
    add(dir.path(), dir.path(), &mut all);
    all
}

/// Copies in a directory in which the first of each pair also appears as the
/// second, with procfs or without. `None` if nothing can be mounted.
fn copy(dir: &TempDir, bound: &[[&str; 2]], procfs: bool, arguments: &[&str]) -> Option<Run> {
    if !can_mount() {
        return None;
    }
    let script = r#"
        while [ "$1" != copy ]; do
            mount --bind "$1" "$2" || exit
            shift 2
        done
        [ "$0" = true ] || mount -t tmpfs -o size=4k none /proc || exit
        exec "$CORDBOARD" "$@""#;
    let mut shell = Command::new("unshare");
    shell.current_dir(dir.path());
    shell.env("CORDBOARD", env!("CARGO_BIN_EXE_cordboard"));
    shell.args(["--mount", "sh", "-c", script, &procfs.to_string()]);
    shell.args(bound.iter().flatten()).args(["copy", "-r"]);
    Some(run(shell.args(arguments)))
}

/// Files, bound pairs, arguments, words of each line, and what has other
/// contents afterwards than before.
type Case<'a> = (
    &'a [&'a str],
    &'a [[&'a str; 2]],
    &'a [&'a str],
    &'a [&'a str],
    &'a [(&'a str, &'a str)],
);

/// Whether one slot, several, and no procfs give the same results.
fn check(cases: &[Case<'_>]) {
    for (files, bound, arguments, says, changed) in cases {
        for (jobs, procfs) in [("-j1", true), ("-j4", true), ("-j4", false)] {
            let dir = made(files);
            let mut expected = all_in(&dir);
            for (name, contents) in *changed {
                expected.insert((*name).into(), (*contents).into());
            }
            let arguments = [&[jobs], *arguments].concat();
            let Some(run) = copy(&dir, bound, procfs, &arguments) else {
                return;
            };
            let context = format!("{bound:?} {arguments:?} {procfs} {}", run.stderr());
            assert_eq!(run.code(), i32::from(!says.is_empty()), "{context}");
            let stderr = run.stderr();
            let lines = stderr.lines().filter(|line| line.contains(": into"));
            assert_eq!(lines.count(), says.len(), "{context}");
            for words in *says {
                assert!(stderr.contains(words), "{words}: {context}");
            }
            assert_eq!(all_in(&dir), expected, "{context}");
        }
    }
}

/// By its names it is elsewhere.
#[test]
fn a_directory_is_not_copied_into_itself_by_another_name_of_it() {
    for (bound, source, sink) in [
        ("a", "a", "seen"),
        ("a", "a", "seen/b"),
        ("a", "a", "seen/new"),
        ("a", "seen", "a/b"),
        ("a", "a/.", "seen"),
        ("a/b", "a/b", "seen/c/new"),
        // Above the mount are other directories.
        ("a/b", "a/.", "seen"),
        ("a/b", "a", "seen/new"),
        ("a/b", "a", "seen/c"),
    ] {
        let dir = made(&["a/b/c/", "seen/", "a/f"]);
        let before = all_in(&dir);
        let Some(run) = copy(&dir, &[[bound, "seen"]], true, &[source, sink]) else {
            return;
        };
        run.fails(1, &[sink, "a directory cannot be copied into itself"]);
        assert_eq!(all_in(&dir), before, "{sink}");
    }
}

/// Without procfs, the new directory is found when it is to be copied: without
/// an end, if only the top were compared.
#[test]
fn what_is_being_copied_into_is_not_copied() {
    let dir = made(&["a/b/c/d/", "a/b/f", "a/e/f", "into/"]);
    let bound = [["a/b/c/d", "into"]];
    let Some(run) = copy(&dir, &bound, false, &["a", "into/new"]) else {
        return;
    };
    run.fails(1, &["a/b/c/d/new: is a directory that this copy writes to"]);
    assert_eq!(all_in(&dir)["a/b/c/d/new/e/f"], "a/e/f");
}

/// The name in the destination leads to another directory of the source, whose
/// files would be overwritten before or after they are copied.
#[test]
fn a_directory_of_the_source_is_not_copied_into() {
    let refused = |to: &str| format!("{to}: is also a directory of the source, into which");
    let [of, walked, above, deep, source, other] = [
        "into/a",
        "into/b",
        "into/m/src",
        "into/a/b",
        "into/z",
        "into/src/a",
    ]
    .map(refused);
    let own = "into/src: is ";
    let (contents, z) = (("into/b/f", "src/b/f"), ("into/z", "src/z"));
    check(&[
        (
            &[
                "src/a/f",
                "src/a/new",
                "src/b/f",
                "src/z",
                "into/a/",
                "into/b/f",
            ],
            &[["src/b", "into/a"]],
            &["src/.", "into"],
            &[&of],
            &[contents, z],
        ),
        // The current directory, and one above it.
        (
            &["src/b/f", "src/z", "into/b/"],
            &[["src/b", "into/b"]],
            &["src/.", "into"],
            &[&walked],
            &[z],
        ),
        (
            &["src/b/b/f", "src/b/f", "src/f", "src/z", "into/b/"],
            &[["src", "into/b"]],
            &["src/.", "into"],
            &[&walked],
            &[z, ("into/f", "src/f")],
        ),
        // Of another operand.
        (
            &["src/a/f", "src/z", "other/f", "into/src/a/"],
            &[["other", "into/src/a"]],
            &["src", "other", "into"],
            &[&other],
            &[
                ("into/src/z", "src/z"),
                ("into/other", ""),
                ("into/other/f", "other/f"),
            ],
        ),
        // The mount is in the source.
        (
            &["src/z/f", "src/x/", "into/z/f"],
            &[["into/z", "src/x"]],
            &["src/.", "into"],
            &[&source],
            &[("into/x", ""), ("into/x/f", "into/z/f")],
        ),
        // A directory above the source.
        (
            &["p/src/m/src/f", "p/src/f", "p/src/m/g", "into/m/"],
            &[["p", "into/m"]],
            &["p/src/.", "into"],
            &[&above],
            &[("into/f", "p/src/f"), ("p/g", "p/src/m/g")],
        ),
        // It would contain what is still to be copied.
        (
            &["a/b/c/d/", "a/b/f", "a/e/f", "into/a/b/"],
            &[["a/b/c/d", "into/a/b"]],
            &["a", "into"],
            &[&deep],
            &[("into/a/e", ""), ("into/a/e/f", "a/e/f")],
        ),
        // The mounted directory contains the target.
        (
            &["src/b/src/f", "src/f", "into/"],
            &[["src/b", "into"]],
            &["src", "into"],
            &[own],
            &[],
        ),
    ]);
}

#[test]
fn a_file_of_the_source_is_not_overwritten() {
    let says = "into/a/f: is also a file of the source, which";
    let same = "into/a/f: is the same file as the source, src";
    let new = [("into/a/new", "src/a/new"), ("into/z", "src/z")];
    let files = [
        "src/a/f",
        "src/a/new",
        "src/b/f",
        "src/z",
        "into/a/f",
        "into/b/",
    ];
    let bound = [["src/b/f", "into/a/f"]];
    let copied = [&new[..], &[("into/b/f", "src/b/f")]].concat();
    check(&[
        (&files, &bound, &["src/.", "into"], &[says], &copied),
        (
            &files,
            &[["src/a/f", "into/a/f"]],
            &["src/.", "into"],
            &[same],
            &copied,
        ),
        // The mount is in the source.
        (
            &files,
            &[["into/a/f", "src/b/f"]],
            &["src/.", "into"],
            &[says],
            &[&new[..], &[("into/b/f", "into/a/f")]].concat(),
        ),
    ]);
    let appended = [("into/a/new", "src/a/new"), ("into/z", "src/z")];
    check(&[(
        &files,
        &bound,
        &["--append", "src/.", "into"],
        &[says],
        &[&appended[..], &[("into/b/f", "src/b/f")]].concat(),
    )]);
}

/// The first would be replaced by the second.
#[test]
fn a_file_that_the_destination_contains_twice_is_written_once() {
    let text = "was just copied, and is not overwritten by";
    let files = [
        "src/a/f",
        "src/a/new",
        "src/b/f",
        "src/b/new",
        "src/z",
        "into/a/f",
        "into/b/f",
        "other/f",
    ];
    for (bound, at, names) in [
        (&[["into/b", "into/a"]][..], "into/b", &["f", "new"][..]),
        (
            &[["other", "into/a"], ["other", "into/b"]],
            "other",
            &["f", "new"],
        ),
        (&[["into/b/f", "into/a/f"]], "into/b", &["f"]),
    ] {
        for (jobs, procfs) in [("-j1", true), ("-j4", true), ("-j1", false)] {
            let dir = made(&files);
            let Some(run) = copy(&dir, bound, procfs, &[jobs, "src/.", "into"]) else {
                return;
            };
            let stderr = run.stderr();
            assert_eq!(run.code(), 1, "{stderr}");
            assert_eq!(stderr.matches(text).count(), names.len(), "{stderr}");
            let all = all_in(&dir);
            // The order of the names is that of the directory.
            let first = match all[&format!("{at}/f")].as_str() {
                "src/a/f" => "src/a",
                _ => "src/b",
            };
            for name in names {
                assert_eq!(all[&format!("{at}/{name}")], format!("{first}/{name}"));
            }
            assert_eq!(all["into/z"], "src/z");
        }
    }
}

#[test]
fn other_mounts_are_written_to() {
    let files = ["src/a/f", "src/b/f", "other/f", "into/a/f"];
    let copied = [("into/b", ""), ("into/b/f", "src/b/f")];
    let into = [&copied[..], &[("into/a/f", "src/a/f")]].concat();
    let other = [&copied[..], &[("other/f", "src/a/f")]].concat();
    check(&[
        (
            &files,
            &[["other", "into/a"]],
            &["src/.", "into"],
            &[],
            &other,
        ),
        // The source, by another mount.
        (
            &files,
            &[["src", "other"]],
            &["other/.", "into"],
            &[],
            &into,
        ),
        // Both are on other mounts of one file system.
        (
            &["top/src/a/f", "top/into/a/f", "src/", "into/"],
            &[["top/src", "src"], ["top/into", "into"]],
            &["src/.", "into"],
            &[],
            &[("top/into/a/f", "top/src/a/f")],
        ),
        // A mount hides the directory of the source.
        (
            &files,
            &[["src/b", "into/a"], ["other", "src/b"]],
            &["src/.", "into"],
            &[],
            &[
                ("into/b", ""),
                ("into/b/f", "other/f"),
                ("src/b/f", "src/a/f"),
            ],
        ),
        // No name of the source leads to it.
        (
            &["src/a/f", "into/a/f", "into/other/"],
            &[["src", "into/other"]],
            &["src/.", "into"],
            &[],
            &[("into/a/f", "src/a/f")],
        ),
    ]);
}
