//! One file: its bytes, its count, and its target.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use crate::common::*;
use crate::{chmod, mode};

#[test]
fn one_file_has_the_bytes_the_mode_and_the_count() {
    let dir = dir();
    for (i, length) in [0, 1, 4095, 4096, 70_000, 3 << 20].into_iter().enumerate() {
        let source = file(&dir, &format!("s{i}"), &bytes(length));
        chmod(&source, 0o540);
        let sink = dir.path().join(format!("d{i}"));
        let run = call([source.as_os_str(), sink.as_os_str()].iter().fold(
            vec!["copy".as_ref(), "--json".as_ref()],
            |mut args, path| {
                args.push(*path);
                args
            },
        ));
        let json = run.ok().json();
        assert_eq!(read(&sink), bytes(length));
        assert_eq!(json["read"], length);
        assert_eq!(json["written"], length);
        assert_eq!(json["stranded"], 0);
        assert_eq!(json["ended"], "eof");
        assert!(json["failed"].is_null() && json["errno"].is_null());
        assert_eq!(mode(&sink), 0o540);
        assert_eq!(run.stderr().lines().count(), 1);
    }
}

#[test]
fn an_existing_file_is_replaced_in_place_and_keeps_its_mode() {
    let dir = dir();
    let source = file(&dir, "s", b"short");
    let sink = file(&dir, "d", &bytes(100_000));
    chmod(&sink, 0o600);
    let inode = sink.metadata().unwrap().ino();
    call(["copy".as_ref(), source.as_os_str(), sink.as_os_str()]).ok();
    assert_eq!(read(&sink), b"short");
    assert_eq!(mode(&sink), 0o600);
    assert_eq!(sink.metadata().unwrap().ino(), inode);
}

#[test]
fn the_source_is_never_destroyed() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(5000));
    let hard = dir.path().join("hard");
    std::fs::hard_link(&source, &hard).unwrap();
    let soft = dir.path().join("soft");
    symlink(&source, &soft).unwrap();
    let into = dir.path();
    for sink in [source.as_path(), &hard, &soft, into] {
        let run = run(cordboard()
            .args(["copy", "--json"])
            .args([source.as_path(), sink]));
        run.fails(1, &["same file as the source"]);
        assert_eq!(run.json()["failed"], "sink");
        assert_eq!(read(&source), bytes(5000), "{}", sink.display());
    }
}

#[test]
fn a_dangling_symlink_is_not_written_through() {
    let dir = dir();
    let source = file(&dir, "s", b"x");
    let link = dir.path().join("l");
    symlink(dir.path().join("nowhere"), &link).unwrap();
    run(cordboard().arg("copy").args([&source, &link])).fails(1, &["dangling symlink"]);
    assert!(!dir.path().join("nowhere").exists());
}

#[test]
fn special_files_are_refused_and_never_waited_for() {
    let dir = dir();
    fifo(&dir.path().join("fifo"));
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    for name in ["fifo", "socket"] {
        let sink = dir.path().join("out");
        let run = run(cordboard()
            .arg("copy")
            .args([&dir.path().join(name), &sink]));
        run.fails(1, &["cordboard splice"]);
        assert!(!sink.exists());
    }
}

#[test]
fn a_device_is_written_to() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(10_000));
    let run = run(cordboard()
        .args(["copy", "--json"])
        .args([source.as_path(), Path::new("/dev/null")]));
    assert_eq!(run.ok().json()["written"], 10_000);
}

#[test]
fn holes_stay_or_are_filled_or_made() {
    let dir = dir();
    let sparse = dir.path().join("sparse");
    let out = std::fs::File::create(&sparse).unwrap();
    out.set_len(16 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&out, b"data", 8 << 20).unwrap();
    let whole = read(&sparse);
    let blocks = |name: &str| dir.path().join(name).metadata().unwrap().blocks() * 512;
    if blocks("sparse") > 1 << 20 {
        testkit::skip::here("no holes on this file system");
        return;
    }
    for when in ["auto", "always", "never"] {
        let sink = dir.path().join(when);
        run(cordboard()
            .args(["copy", "--sparse", when])
            .args([&sparse, &sink]))
        .ok();
        assert!(read(&sink) == whole, "{when}: {} bytes", read(&sink).len());
    }
    assert!(blocks("auto") < 1 << 20);
    assert!(blocks("always") < 1 << 20);
    assert!(blocks("never") >= 16 << 20);
}

#[test]
fn a_part_of_a_file_and_the_end_of_another() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(10_000));
    let sink = file(&dir, "d", b"head");
    let run_ = run(cordboard()
        .args([
            "copy", "--append", "--offset", "1kB", "--size", "2K", "--json",
        ])
        .args([&source, &sink]));
    assert_eq!(run_.ok().json()["ended"], "size");
    assert_eq!(read(&sink), [b"head", &bytes(10_000)[1000..3048]].concat());
    run(cordboard()
        .args(["copy", "--size", "1"])
        .args([&source, &source, &sink]))
    .fails(2, &["a single file"]);
}

#[test]
fn a_directory_that_is_not_there() {
    let dir = dir();
    let source = file(&dir, "s", b"x");
    run(cordboard()
        .arg("copy")
        .arg(&source)
        .arg(format!("{}/new/", dir.path().display())))
    .fails(1, &["directory does not exist", "mkdir"]);
}

#[test]
fn a_directory_needs_r() {
    let dir = dir();
    std::fs::create_dir(dir.path().join("d")).unwrap();
    let run = run(cordboard()
        .arg("copy")
        .args([dir.path().join("d"), dir.path().join("e")]));
    run.fails(1, &["directory", "copy -r"]);
    assert!(!dir.path().join("e").exists());
}

#[test]
fn an_option_for_another_endpoint_is_pointed_out() {
    let dir = dir();
    run(cordboard()
        .args(["copy", "tcp:localhost:1"])
        .arg(dir.path().join("x")))
    .fails(1, &["cordboard splice"]);
}

#[test]
fn another_endpoint_is_no_name_for_a_new_file() {
    let dir = dir();
    let source = file(&dir, "s", b"x");
    let copy = |name: &str| {
        run(cordboard()
            .current_dir(dir.path())
            .args(["copy", "--json"])
            .arg(&source)
            .arg(name))
    };
    let names = ["tcp:localhost:9", "tcp:localhost", "unix:sk", "fd:3", "-"];
    for name in names {
        let run = copy(name);
        let out = format!("./{name} or file:{name}");
        run.fails(2, &[name, "cordboard splice", &out]);
        assert_eq!(run.json()["failed"], "sink");
        assert!(!dir.path().join(name).exists(), "{name}");
    }
    for name in names {
        copy(&format!("./{name}")).ok();
        // Now it exists.
        copy(name).ok();
        std::fs::remove_file(dir.path().join(name)).unwrap();
        copy(&format!("file:{name}")).ok();
        assert_eq!(read(dir.path().join(name)), b"x");
    }
    // Nor is a name in a directory, or one with another scheme.
    std::fs::create_dir(dir.path().join("unix:d")).unwrap();
    for name in ["unix:d/new", "a:b", "tpc:host:1", "tcp"] {
        copy(name).ok();
        assert_eq!(read(dir.path().join(name)), b"x");
    }
    let help = call(["copy", "--help"]);
    let help = String::from_utf8_lossy(help.ok().stdout()).into_owned();
    assert!(help.contains("./NAME or file:NAME"), "{help}");
}

/// The only operand is SRC, and DST is missing.
#[test]
fn an_operand_that_is_missing_is_told_of() {
    for (args, missing) in [
        (&["a"][..], &["<DST>"][..]),
        (&["a", "-p"], &["<DST>"]),
        (&["--", "-x"], &["<DST>"]),
        (&["-p"], &["<SRC>...", "<DST>"]),
    ] {
        let run = run(cordboard().arg("copy").args(args));
        let text = run.stderr();
        let list = text.lines().skip(1).take_while(|line| !line.is_empty());
        let told: Vec<&str> = list.map(str::trim).collect();
        assert_eq!(told, missing, "{args:?}");
        assert_eq!(run.code(), 2, "{args:?}");
    }
}

/// After `--` all words are operands. Before it, options may be anywhere.
#[test]
fn names_that_begin_with_a_dash_and_options_in_between() {
    let cases: [(&[&str], &[&str]); 9] = [
        (&["--", "a", "-x", "e/"], &["e/a", "e/-x"]),
        (&["--", "-x", "a", "e"], &["e/a", "e/-x"]),
        (&["--", "a", "-d"], &["-d"]),
        (&["--", "-x", "--json"], &["--json"]),
        (
            &["a", "--", "-x", "--json", "e"],
            &["e/a", "e/-x", "e/--json"],
        ),
        (&["--", "a", "--", "e"], &["e/a", "e/--"]),
        (&["a", "-p", "d"], &["d"]),
        (&["a", "-j", "1", "b", "--sync", "e"], &["e/a", "e/b"]),
        (&["a", "b", "e", "-p"], &["e/a", "e/b"]),
    ];
    for (args, made) in cases {
        let dir = dir();
        std::fs::create_dir(dir.path().join("e")).unwrap();
        for name in ["a", "b", "-x", "--"] {
            file(&dir, name, name.as_bytes());
        }
        if args.ends_with(&["--json", "e"]) {
            file(&dir, "--json", b"--json");
        }
        let copy = run(cordboard().current_dir(&dir).arg("copy").args(args));
        assert_eq!(copy.ok().stderr(), "", "{args:?}");
        for made in made {
            let from = match made.strip_prefix("e/") {
                Some(name) => name,
                None if args.contains(&"a") => "a",
                None => "-x",
            };
            assert_eq!(read(dir.path().join(made)), from.as_bytes(), "{args:?}");
        }
    }
    // The problem is reported all the same.
    for (args, says) in [
        (&["a", "-p", "b", "--bogus"][..], "--bogus"),
        (&["a", "-p"], "<DST>"),
        (&["--", "-x"], "<DST>"),
        (&["a", "-p", "b", "--jobs", "none"], "none"),
    ] {
        let copy = run(cordboard().arg("copy").args(args));
        let stderr = copy.stderr();
        assert_eq!(copy.code(), 2, "{args:?}: {stderr}");
        assert!(stderr.contains(says), "{args:?}: {stderr}");
        let usage = "Usage: cordboard copy [OPTIONS] <SRC>... <DST>";
        assert!(says != "--bogus" || stderr.contains(usage), "{stderr}");
    }
    for help in ["-h", "--help"] {
        let plain = call(["copy", help]);
        let late = call(["copy", "a", "-p", "b", help]);
        assert_eq!(late.ok().stdout(), plain.ok().stdout());
    }
}

/// As with cp: no file has that name, and the others are copied.
#[test]
fn an_empty_name_is_one_that_is_missing() {
    let dir = dir();
    let a = file(&dir, "a", b"a");
    let into = dir.path().join("into");
    for more in [&[][..], &["-r"]] {
        std::fs::create_dir(&into).unwrap();
        let empty = Path::new("");
        let mut copy = cordboard();
        copy.args(["copy", "--json"]).args(more);
        let run = run(copy.args([empty, &a, empty]).arg(&into));
        let missing = "cordboard: '': No such file or directory (ENOENT)";
        assert_eq!(run.stderr().matches(missing).count(), 2, "{}", run.stderr());
        assert_eq!(run.code(), 1);
        assert_eq!(run.json()["files"]["copied"], 1);
        assert_eq!(read(into.join("a")), b"a");
        std::fs::remove_dir_all(&into).unwrap();
    }
}
