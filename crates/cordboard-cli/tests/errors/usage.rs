//! Wrong usage, by flags or operands.

use std::ffi::OsStr;
use std::path::Path;

use crate::common::*;

/// The command of a server that listens at a free port.
fn server(root: &Path) -> std::process::Command {
    let mut command = cordboard();
    command.args(["serve", "ftp", "--listen", "127.0.0.1:0", "--root"]);
    command.arg(root);
    command
}

#[test]
fn wrong_usage() {
    for (args, says) in [
        (&["splice", "-", "-", "--size", "12Q"][..], "12Q"),
        (&["splice", "-", "-", "--size", "-1"], "-1"),
        (&["splice", "-", "-", "--size", "99999999T"], "2^63-1"),
        (&["splice", "-", "-", "--block", "0"], "at least one byte"),
        (&["splice", "-", "-", "--idle", "soon"], "number of seconds"),
        (&["splice", "-", "-", "--idle", "0"], "number of seconds"),
        (&["splice", "-", "-", "--route", "teleport"], "teleport"),
        (
            &["splice", "-", "-", "--route", "sockmap"],
            "not implemented yet",
        ),
        (&["cat", "--without", "sockmap"], "not implemented yet"),
        (&["splice", "-", "-", "--sparse", "maybe"], "maybe"),
        (&["splice", "-", "-", "--sparse", "lines"], "lines"),
        (&["splice", "-", "-", "--progress", "maybe"], "maybe"),
        (
            &[
                "splice",
                "-",
                "-",
                "--route",
                "splice",
                "--without",
                "splice",
            ],
            "leave no path",
        ),
        (&["splice", "-"], "DST"),
        (&["explain", "-", "-", "-"], "unexpected"),
        (&["copy", "one"], "<DST>"),
        (&["copy"], "required"),
        (&["frobnicate"], "frobnicate"),
        (&["splice", "--frobnicate", "-", "-"], "--frobnicate"),
        (&["explain", "tpc:h:1", "-"], "unknown scheme"),
    ] {
        let run = call(args);
        assert_eq!(run.code(), 2, "{args:?}: {}", run.stderr());
        assert!(run.stderr().contains(says), "{args:?}: {}", run.stderr());
        assert!(run.stdout().is_empty());
    }
    let run = call::<&str>([]);
    assert_eq!(run.code(), 2);
}

/// An alias has options of its own, and a script adds those of its user. The last value counts.
#[test]
fn an_option_may_be_given_twice() {
    let dir = dir();
    let source = file(&dir, "s", b"0123456789");
    let sink = dir.path().join("d");
    for args in [
        &["copy", "-p", "--recursive", "-rp", "--sync", "--sync"][..],
        &[
            "copy",
            "--size",
            "3",
            "--size=10",
            "--rate=1",
            "--rate",
            "1M",
        ],
        &["splice", "--json", "--size", "3", "--json", "--size=10"],
    ] {
        let _ = std::fs::remove_file(&sink);
        run(cordboard().args(args).args([&source, &sink])).ok();
        assert_eq!(read(&sink), b"0123456789", "{args:?}");
    }
    // Another command than the three that are parsed first.
    let explain = [
        "explain", "--json", "--json", "--size=1", "--size=2", "-", "-",
    ];
    call(explain).ok();
    // Hashes and paths are lists.
    let hashes = ["cat", "--hash=crc32", "--hash=xxh3", "--hash=crc32"];
    let run = run(cordboard().args(hashes).arg(&source));
    assert_eq!(run.ok().stderr().lines().count(), 2, "{}", run.stderr());
    let both = ["copy", "--rate=1", "--rate=1", "--schedule=4,70", "a", "b"];
    let both = call(both);
    assert_eq!(both.code(), 2);
    assert!(
        both.stderr().contains("cannot be used with"),
        "{}",
        both.stderr()
    );
}

#[test]
fn a_level_that_is_taken_for_an_operand_has_a_hint() {
    let dir = dir();
    let [a, b] = ["a", "b"].map(|name| file(&dir, name, b"kept"));
    let copy = |operands: [&OsStr; 4]| run(cordboard().arg("copy").args(operands));
    let [a_, b_, zstd] = [a.as_os_str(), b.as_os_str(), "--zstd".as_ref()];
    let in_all_places = |level: &str, hint: &str| {
        let level: &OsStr = level.as_ref();
        copy([zstd, level, a_, b_]).fails(1, &["b: is not a directory", hint]);
        copy([a_, zstd, level, b_]).fails(1, &["b: is not a directory", hint]);
        copy([a_, b_, zstd, level]).fails(1, &[": is not a directory", hint]);
    };
    in_all_places("19", "; for a level, use --zstd=19");
    in_all_places("23", "; create it first (mkdir)");
    assert_eq!(read(&b), b"kept");
}

/// A negative number is the value of its option, which states what it takes. It is not taken for
/// an unknown option.
#[test]
fn negative_numbers_are_refused_as_values() {
    let splice = ["splice", "-", "-"];
    for (command, option, says) in [
        (&splice[..], "--size", "a size is a number"),
        (&splice, "--offset", "a size is a number"),
        (&splice, "--sink-offset", "a size is a number"),
        (&splice, "--block", "a size is a number"),
        (&splice, "--buffer", "a size is a number"),
        (&splice, "--rate", "a size is a number"),
        (&splice, "--schedule", "4,70"),
        (&splice, "--idle", "number of seconds"),
        (&["copy", "a", "b"], "--jobs", "number of files"),
        (
            &["serve", "ftp", "--root", "."],
            "--grace",
            "number of seconds",
        ),
        (
            &["serve", "ftp", "--root", "."],
            "--clients",
            "between 1 and",
        ),
        (&["cue", "socket"], "rate", "a size is a number"),
        (&["cue", "socket"], "schedule", "4,70"),
    ] {
        for value in ["-1", "-1,5"] {
            let done = call(command.iter().copied().chain([option, value]));
            let text = done.stderr();
            assert_eq!(done.code(), 2, "{option} {value}: {text}");
            let is_value = text.contains(&format!("invalid value '{value}'"));
            assert!(is_value && text.contains(says), "{option} {value}: {text}");
        }
    }
    // A known option is not the value of an operand.
    for args in [
        &["schedule", "--json", "4,70"][..],
        &["schedule", "4", "--json", "70"],
        &["schedule", "4", "70", "--json"],
        &["rate", "--json", "1"],
    ] {
        let done = call(["cue", "/no/such"].iter().chain(args));
        done.fails(1, &["/no/such", "ENOENT"]);
    }
    call(["cue", "/no/such", "rate", "--help"]).ok();
}

/// What is appended is written without holes.
#[test]
fn holes_cannot_be_had_of_what_appends() {
    let dir = dir();
    let source = file(&dir, "s", &[0; 1 << 20]);
    let (there, new) = (file(&dir, "there", b"old"), dir.path().join("new"));
    for command in ["splice", "copy", "explain"] {
        for sink in [&there, &new] {
            run(cordboard()
                .args([command, "--append", "--sparse", "always"])
                .args([&source, sink]))
            .fails(2, &["--append", "--sparse always"]);
        }
    }
    // Opened by the shell.
    for command in ["splice", "explain"] {
        let out = std::fs::File::options().append(true).open(&there).unwrap();
        let child = cordboard()
            .args([command, "--sparse", "always"])
            .args([source.as_os_str(), "-".as_ref()])
            .stdout(out)
            .stderr(std::process::Stdio::piped())
            .start();
        end(child).fails(1, &["standard output: is open for appending"]);
    }
    assert_eq!(read(&there), b"old");
    assert!(!new.exists());
}

#[test]
fn one_sink_has_one_offset() {
    let dir = dir();
    let (source, sink) = (file(&dir, "s", b"new"), file(&dir, "d", b"old"));
    let other = dir.path().join("new");
    for command in ["splice", "copy", "explain"] {
        let with = |options: &[&str]| {
            let options = [&["--sink-offset", "1"], options].concat();
            run(cordboard()
                .arg(command)
                .args(options)
                .args([&source, &sink]))
        };
        with(&["--append"]).fails(2, &["--append", "--sink-offset", "omit one"]);
    }
    let with = |options: &[&str]| {
        let options = [options, &["--sink-offset", "1"]].concat();
        run(cordboard().args(options).args([&source, &sink, &other]))
    };
    with(&["splice"]).fails(2, &["--sink-offset needs a single DST"]);
    with(&["copy"]).fails(2, &["--sink-offset", "a single file"]);
    run(cordboard()
        .args(["copy", "-r", "--sink-offset", "1"])
        .args([&source, &sink]))
    .fails(2, &["--sink-offset", "a single file"]);
    let cat = call(["cat", "--sink-offset", "1"]);
    assert_eq!(cat.code(), 2, "{}", cat.stderr());
    assert_eq!(read(&sink), b"old");
    assert!(!other.exists());
}

#[test]
fn a_bad_word_in_the_environment_makes_no_file() {
    let dir = dir();
    let source = file(&dir, "s", b"x");
    let sink = dir.path().join("d");
    for variable in ["CORDBOARD_ROUTE", "CORDBOARD_WITHOUT"] {
        for command in ["splice", "copy"] {
            run(cordboard()
                .env(variable, "teleport")
                .arg(command)
                .args([&source, &sink]))
            .fails(2, &[variable, "teleport"]);
            assert!(!sink.exists());
        }
        let no_text = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"splice,\xff");
        run(cordboard()
            .env(variable, no_text)
            .arg("copy")
            .args([&source, &sink]))
        .fails(2, &[variable, "is not a data path"]);
        assert!(!sink.exists());
    }
    for command in ["splice", "copy", "explain"] {
        for variable in ["CORDBOARD_TUNE", "CORDBOARD_ENGINE"] {
            run(cordboard()
                .env(variable, "teleport")
                .arg(command)
                .args([&source, &sink]))
            .fails(2, &[&format!("cordboard: {variable}"), "teleport"]);
            assert!(!sink.exists());
        }
    }
    for variable in ["ROUTE", "WITHOUT", "TUNE", "ENGINE"] {
        let variable = format!("CORDBOARD_{variable}");
        let refused = run(server(dir.path()).env(&variable, "teleport"));
        refused.fails(2, &[&format!("cordboard: {variable}"), "teleport"]);
    }
}

#[test]
fn switches_that_leave_no_path_are_wrong_usage() {
    let dir = dir();
    let source = file(&dir, "s", b"x");
    let sink = dir.path().join("d");
    let all: Vec<&str> = (cordboard::DataPath::ALL.iter())
        .map(|path| path.name())
        .collect();
    let (one, all) = ("read/write", all.join(","));
    let variables = "CORDBOARD_ROUTE and CORDBOARD_WITHOUT leave no path";
    let (option, variable) = (
        "--route and CORDBOARD_WITHOUT",
        "CORDBOARD_ROUTE and --without",
    );
    for command in ["splice", "copy", "explain"] {
        for (variables, options, says) in [
            (
                &[("CORDBOARD_ROUTE", one), ("CORDBOARD_WITHOUT", one)][..],
                &[][..],
                variables,
            ),
            (
                &[("CORDBOARD_WITHOUT", &all)],
                &[],
                "CORDBOARD_WITHOUT leaves no path",
            ),
            (&[("CORDBOARD_WITHOUT", one)], &["--route", one], option),
            (&[("CORDBOARD_ROUTE", one)], &["--without", one], variable),
            (&[], &["--without", &all], "--without leaves no path"),
        ] {
            run(cordboard()
                .envs(variables.iter().copied())
                .arg(command)
                .args(options)
                .args([&source, &sink]))
            .fails(2, &[says, "allow read/write, which takes every pair"]);
            assert!(!sink.exists());
        }
    }
    let served = run(server(dir.path()).env("CORDBOARD_WITHOUT", &all));
    served.fails(2, &["CORDBOARD_WITHOUT leaves no path"]);
}

#[test]
fn a_bad_engine_is_wrong_usage_everywhere() {
    let dir = dir();
    let source = file(&dir, "s", b"x");
    let (tree, sink) = (dir.path().join("tree"), dir.path().join("d"));
    std::fs::create_dir(&tree).unwrap();
    for (args, from) in [
        (&["splice"][..], &source),
        (&["copy"], &source),
        (&["copy", "-r"], &tree),
        (&["explain"], &source),
    ] {
        run(cordboard()
            .env("CORDBOARD_ENGINE", "steam")
            .args(args)
            .args([from, &sink]))
        .fails(2, &["CORDBOARD_ENGINE", "steam", "io_uring"]);
        assert!(!sink.exists(), "{args:?}");
    }
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    for word in ["--help", "--version"] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let mut command = cordboard();
        command.arg(word).stdout(full.unwrap());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{word}: {said}");
        assert!(said.contains("standard output"), "{word}: {said}");
    }
}

#[test]
fn wrong_usage_has_a_report_where_one_was_asked_for() {
    for args in [
        &["splice", "--json", "--size", "x", "-", "-"][..],
        &["copy", "one", "--json"],
        &["cat", "--frobnicate", "--json"],
    ] {
        let run = call(args);
        assert_eq!(run.code(), 2, "{args:?}");
        assert_eq!(run.json()["ended"], "error", "{args:?}");
        assert_eq!(run.json()["errno"], "EINVAL", "{args:?}");
    }
    for args in [
        &["cat", "--frobnicate"][..],
        &["cat", "--frobnicate", "--", "--json"],
    ] {
        assert!(!call(args).stderr().contains("\"ended\""), "{args:?}");
    }
    assert!(call(["copy", "--json", "--help"]).ok().stderr().is_empty());
}

#[test]
fn the_help_names_every_path_and_every_kind_of_endpoint() {
    let help = call(["splice", "--help"]);
    let help = String::from_utf8_lossy(help.ok().stdout()).into_owned();
    for path in cordboard::DataPath::ALL {
        assert!(help.contains(path.name()), "--route lacks {path}");
    }
    let unknown = call(["splice", "sctp:x", "-"]).stderr();
    let (_, known) = unknown.split_once("known schemes: ").unwrap();
    let (known, _) = known.split_once(';').unwrap();
    let names: Vec<_> = known.split(", ").collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert!(help.contains(&format!(" {name}")), "the help lacks {name}");
    }
}
