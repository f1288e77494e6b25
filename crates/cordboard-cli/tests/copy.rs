//! `cordboard copy`: bytes, counts, modes, trees, and what it refuses.
#![allow(missing_docs)]

mod common;

use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use common::*;

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn fifo(path: &Path) {
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

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
fn many_into_a_directory_and_the_totals() {
    let dir = dir();
    let a = file(&dir, "a", &bytes(1000));
    let b = file(&dir, "b", &bytes(2000));
    let into = dir.path().join("into");
    std::fs::create_dir(&into).unwrap();
    let run = run(cordboard().args(["copy", "--json"]).args([&a, &b, &into]));
    assert_eq!(run.ok().json()["written"], 3000);
    assert_eq!(read(into.join("a")), bytes(1000));
    assert_eq!(read(into.join("b")), bytes(2000));
}

#[test]
fn many_go_on_after_one_that_fails() {
    let dir = dir();
    let a = file(&dir, "a", b"a");
    let z = file(&dir, "z", b"zz");
    let into = dir.path().join("into");
    std::fs::create_dir(&into).unwrap();
    let run = run(cordboard().args(["copy", "--json"]).args([
        &a,
        &dir.path().join("missing"),
        &z,
        &into,
    ]));
    run.fails(
        1,
        &["missing: No such file or directory (ENOENT) opening the source"],
    );
    let json = run.json();
    assert_eq!(json["written"], 3);
    assert_eq!(json["ended"], "error");
    assert_eq!(json["failed"], "source");
    assert_eq!(json["errno"], "ENOENT");
    assert_eq!(read(into.join("z")), b"zz");
}

#[test]
fn two_of_one_name_into_a_directory() {
    let dir = dir();
    std::fs::create_dir(dir.path().join("x")).unwrap();
    std::fs::create_dir(dir.path().join("into")).unwrap();
    let a = file(&dir, "f", b"first");
    let b = file(&dir, "x/f", b"second");
    let into = dir.path().join("into");
    run(cordboard().arg("copy").args([&a, &b, &into])).fails(1, &["just copied"]);
    assert_eq!(read(into.join("f")), b"first");
}

#[test]
fn two_trees_of_one_name_become_one() {
    let dir = dir();
    for tree in ["x/t/sub", "y/t/sub", "into"] {
        std::fs::create_dir_all(dir.path().join(tree)).unwrap();
    }
    file(&dir, "x/t/sub/both", b"first");
    file(&dir, "x/t/x", b"x");
    file(&dir, "y/t/sub/both", b"second");
    file(&dir, "y/t/y", b"y");
    let at = |name: &str| dir.path().join(name);
    for (from, to) in [("t", "into/t"), ("t/.", "into")] {
        let sources = [at("x").join(from), at("y").join(from)];
        let run = run(cordboard()
            .args(["copy", "-r"])
            .args(sources)
            .arg(at("into")));
        run.fails(1, &["both: just copied"]);
        assert_eq!(read(at(to).join("sub/both")), b"first");
        assert_eq!(read(at(to).join("x")), b"x");
        assert_eq!(read(at(to).join("y")), b"y");
    }
}

#[test]
fn nothing_is_written_through_a_symlink_that_was_just_copied() {
    let dir = dir();
    for name in ["x/t", "y/t", "x/d", "y/d", "into", "elsewhere"] {
        std::fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    let at = |name: &str| dir.path().join(name);
    file(&dir, "important", b"precious");
    file(&dir, "y/t/f", b"another's");
    file(&dir, "y/d/f", b"f");
    symlink(at("important"), at("x/t/f")).unwrap();
    symlink("first", at("x/t/l")).unwrap();
    symlink("second", at("y/t/l")).unwrap();
    let run_ = run(cordboard()
        .args(["copy", "-r", "--json"])
        .args(["x/t", "y/t", "into"].map(at)));
    assert_eq!(run_.code(), 1, "{}", run_.stderr());
    for name in ["f", "l"] {
        let says = format!("into/t/{name}: just copied: it is not overwritten by ");
        assert!(run_.stderr().contains(&says), "{}", run_.stderr());
    }
    assert_eq!(run_.json()["written"], 0);
    assert_eq!(read(at("important")), b"precious");
    let link = |name| std::fs::read_link(at(name)).unwrap();
    assert_eq!(link("into/t/f"), at("important"));
    assert_eq!(link("into/t/l"), Path::new("first"));
    // Nor is a directory, or an operand, put where one leads.
    symlink(at("elsewhere"), at("x/t/d")).unwrap();
    for (name, source) in [("d", "y/d"), ("f", "y/t/f")] {
        std::fs::remove_dir_all(at("into")).unwrap();
        std::fs::create_dir(at("into")).unwrap();
        let run = run(cordboard()
            .args(["copy", "-r"])
            .args(["x/t/.", source, "into"].map(at)));
        run.fails(1, &[&format!("into/{name}: just copied")]);
        assert!(!at("elsewhere/f").exists());
        assert_eq!(read(at("important")), b"precious");
    }
    // One that was there before is followed, as ever.
    std::fs::remove_dir_all(at("into")).unwrap();
    std::fs::create_dir_all(at("into/t")).unwrap();
    symlink(at("important"), at("into/t/f")).unwrap();
    run(cordboard()
        .args(["copy", "-r"])
        .args(["y/t", "y/d", "into"].map(at)))
    .ok();
    assert_eq!(read(at("important")), b"another's");
}

#[test]
fn a_symlink_does_not_lead_a_tree_elsewhere() {
    let dir = dir();
    for name in ["tree/sub", "into", "elsewhere"] {
        std::fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    file(&dir, "tree/sub/f", b"f");
    let at = |name: &str| dir.path().join(name);
    symlink(at("elsewhere"), at("into/sub")).unwrap();
    let copy = |to| {
        run(cordboard()
            .args(["copy", "-r"])
            .args([at("tree/."), at(to)]))
    };
    copy("into").fails(1, &["sub: it is there and no directory"]);
    assert!(!at("elsewhere/f").exists());
    // The one that was named is meant.
    symlink(at("elsewhere"), at("top")).unwrap();
    copy("top").ok();
    assert_eq!(read(at("elsewhere/sub/f")), b"f");
}

#[test]
fn many_into_what_is_no_directory() {
    let dir = dir();
    let a = file(&dir, "a", b"a");
    let b = file(&dir, "b", b"b");
    let c = file(&dir, "c", b"c");
    run(cordboard().arg("copy").args([&a, &b, &c])).fails(1, &["mkdir"]);
    assert_eq!(read(&c), b"c");
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
fn special_files_are_refused_and_never_waited_for() {
    let dir = dir();
    fifo(&dir.path().join("fifo"));
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    for name in ["fifo", "socket", "/dev/zero"] {
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
fn a_tree_with_links_and_special_files() {
    let dir = dir();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("a/b/empty")).unwrap();
    std::fs::write(tree.join("top"), b"top").unwrap();
    std::fs::write(tree.join("a/b/deep"), bytes(50_000)).unwrap();
    symlink("../top", tree.join("a/link")).unwrap();
    symlink("nowhere", tree.join("a/dangling")).unwrap();
    chmod(&tree.join("a/b"), 0o500);
    let copy = dir.path().join("copy");
    let run_ = run(cordboard()
        .args(["copy", "-r", "--json"])
        .args([&tree, &copy]));
    assert_eq!(run_.ok().json()["written"], 50_003);
    assert_eq!(read(copy.join("top")), b"top");
    assert_eq!(read(copy.join("a/b/deep")), bytes(50_000));
    assert!(copy.join("a/b/empty").is_dir());
    assert_eq!(mode(&copy.join("a/b")), 0o500);
    assert_eq!(
        std::fs::read_link(copy.join("a/link")).unwrap(),
        Path::new("../top")
    );
    assert_eq!(
        std::fs::read_link(copy.join("a/dangling")).unwrap(),
        Path::new("nowhere")
    );
    chmod(&tree.join("a/b"), 0o700);
    chmod(&copy.join("a/b"), 0o700);
    // A second time onto the first: the same again, the links replaced.
    std::fs::remove_dir_all(tree.join("a/b/empty")).unwrap();
    fifo(&tree.join("a/fifo"));
    let into = run(cordboard()
        .args(["copy", "-r"])
        .args([&tree.join("."), &copy]));
    into.fails(1, &["a/fifo", "it is a FIFO"]);
    assert_eq!(read(copy.join("a/b/deep")), bytes(50_000));
    assert!(!copy.join("a/fifo").exists());
    assert!(!copy.join("tree").exists());
    // Into an existing directory by name.
    std::fs::remove_file(tree.join("a/fifo")).unwrap();
    run(cordboard().args(["copy", "-R"]).args([&tree, &copy])).ok();
    assert_eq!(read(copy.join("tree/a/b/deep")), bytes(50_000));
}

#[test]
fn a_directory_is_not_copied_into_itself() {
    let dir = dir();
    let a = dir.path().join("a");
    std::fs::create_dir_all(a.join("b")).unwrap();
    std::fs::write(a.join("f"), b"f").unwrap();
    for sink in [a.clone(), a.join("b"), a.join("new")] {
        run(cordboard().args(["copy", "-r"]).args([&a, &sink])).fails(1, &["into itself"]);
    }
    assert_eq!(std::fs::read_dir(&a).unwrap().count(), 2);
    assert_eq!(std::fs::read_dir(a.join("b")).unwrap().count(), 0);
}

#[test]
fn a_tree_onto_itself_destroys_nothing() {
    let dir = dir();
    let a = dir.path().join("a");
    std::fs::create_dir(&a).unwrap();
    std::fs::write(a.join("f"), b"contents").unwrap();
    // Its contents into the place where they are.
    run(cordboard().args(["copy", "-r"]).args([&a.join("."), &a])).fails(1, &["into itself"]);
    assert_eq!(read(a.join("f")), b"contents");
}

#[test]
fn what_is_of_another_type_in_the_way() {
    let dir = dir();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("x")).unwrap();
    symlink("x", tree.join("y")).unwrap();
    let copy = dir.path().join("copy");
    std::fs::create_dir_all(copy.join("y")).unwrap();
    std::fs::write(copy.join("x"), b"a file").unwrap();
    let run = run(cordboard()
        .args(["copy", "-r"])
        .args([&tree.join("."), &copy]));
    assert_eq!(run.code(), 1);
    let stderr = run.stderr();
    assert!(
        stderr.contains("no directory, and its source is one"),
        "{stderr}"
    );
    assert!(stderr.contains("no symlink"), "{stderr}");
    assert_eq!(read(copy.join("x")), b"a file");
}

#[test]
fn p_keeps_mode_times_and_attributes() {
    use rustix::fs::{Timespec, Timestamps, XattrFlags};
    let dir = dir();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let source = tree.join("f");
    std::fs::write(&source, bytes(9000)).unwrap();
    chmod(&source, 0o4751);
    let xattrs = rustix::fs::setxattr(&source, "user.cord", b"board", XattrFlags::empty()).is_ok();
    chmod(&tree, 0o2751);
    let past = |tv_sec, tv_nsec| Timestamps {
        last_access: Timespec { tv_sec, tv_nsec },
        last_modification: Timespec { tv_sec, tv_nsec },
    };
    for (path, sec, nsec) in [
        (&source, 1_000_000_000, 123_456_789),
        (&tree, 1_100_000_000, 1),
    ] {
        let flags = rustix::fs::AtFlags::empty();
        rustix::fs::utimensat(rustix::fs::CWD, path, &past(sec, nsec), flags).unwrap();
    }
    let copy = dir.path().join("copy");
    run(cordboard().args(["copy", "-rp"]).args([&tree, &copy])).ok();
    let new = copy.join("f").metadata().unwrap();
    assert_eq!(new.mode() & 0o7777, 0o4751);
    assert_eq!(
        (new.mtime(), new.mtime_nsec()),
        (1_000_000_000, 123_456_789)
    );
    let new = copy.metadata().unwrap();
    assert_eq!((new.mtime(), new.mtime_nsec()), (1_100_000_000, 1));
    assert_eq!(new.mode() & 0o7777, 0o2751);
    if xattrs {
        let mut value = [0; 16];
        let length = rustix::fs::getxattr(copy.join("f"), "user.cord", &mut value).unwrap();
        assert_eq!(&value[..length], b"board");
    } else {
        eprintln!("SKIPPED: no extended attributes here");
    }
    if root("keeping another's owner") {
        std::os::unix::fs::chown(&source, Some(1234), Some(4321)).unwrap();
        let one = dir.path().join("one");
        run(cordboard()
            .args(["copy", "-p", "--sync"])
            .args([&source, &one]))
        .ok();
        let new = one.metadata().unwrap();
        assert_eq!((new.uid(), new.gid()), (1234, 4321));
    }
}

/// Until a directory has its owner, it has only ours.
#[test]
fn p_shuts_directories_until_they_are_settled() {
    let dir = dir();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("f"), bytes(4 << 20)).unwrap();
    chmod(&tree, 0o777);
    let copy = dir.path().join("copy");
    let child = cordboard()
        .args(["copy", "-rp", "--route", "read/write", "--block", "1"])
        .args([&tree, &copy])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("a byte of the file", || {
        let made = copy.join("f").metadata().ok()?;
        (made.len() > 0).then_some(())
    });
    assert_eq!(mode(&copy), 0o700);
    signal(child.id(), rustix::process::Signal::INT);
    assert_eq!(end(child).code(), 130);
}

#[test]
fn without_p_the_special_bits_are_not_kept() {
    let dir = dir();
    let source = file(&dir, "s", b"x");
    chmod(&source, 0o4755);
    let sink = dir.path().join("d");
    run(cordboard().arg("copy").args([&source, &sink])).ok();
    assert_eq!(mode(&sink), 0o755);
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
        eprintln!("SKIPPED: no holes on this file system");
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
    .fails(2, &["one file"]);
}

#[test]
fn every_path_gives_the_same_file() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(300_000));
    for path in ["copy_file_range", "sendfile", "splice", "read/write"] {
        let sink = dir.path().join("d");
        let run = run(cordboard()
            .args(["copy", "--json", "--route", path])
            .args([&source, &sink]));
        assert_eq!(run.ok().json()["path"], serde_json::json!([path]));
        assert_eq!(read(&sink), bytes(300_000), "{path}");
    }
    let run = run(cordboard()
        .env("CORDBOARD_WITHOUT", "clone,copy_file_range,sendfile,splice")
        .args(["copy", "--json"])
        .args([&source, &dir.path().join("e")]));
    assert_eq!(run.ok().json()["path"], serde_json::json!(["read/write"]));
}

#[test]
fn the_page_cache_is_passed_by_on_request_and_not_otherwise() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(300_000));
    let sink = dir.path().join("d");
    let explain = |switch: [&str; 2]| {
        run(cordboard()
            .args(["explain", "--json"])
            .args(switch)
            .args([&source, &sink]))
    };
    let without = String::from_utf8(explain(["--without", "direct"]).ok().stdout().to_vec());
    let without: serde_json::Value = serde_json::from_str(&without.unwrap()).unwrap();
    let turned_off = serde_json::json!({"path": "direct", "why": "turned off"});
    let excluded = without["excluded"].as_array().unwrap();
    assert!(excluded.contains(&turned_off), "{without}");
    run(cordboard()
        .args(["copy", "--without", "direct"])
        .args([&source, &sink]))
    .ok();
    let forced = explain(["--route", "direct"]);
    if forced.code() != 0 {
        assert_eq!(forced.code(), 1, "{}", forced.stderr());
        eprintln!("SKIPPED: no direct I/O here: {}", forced.stderr());
        return;
    }
    let forced = run(cordboard()
        .args(["copy", "--json", "--route", "direct"])
        .args([&source, &sink]));
    assert_eq!(forced.ok().json()["path"], serde_json::json!(["direct"]));
    assert!(read(&sink) == bytes(300_000));
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
fn few_descriptors_are_enough_for_many_files() {
    let dir = dir();
    let into = dir.path().join("into");
    std::fs::create_dir(&into).unwrap();
    let sources: Vec<_> = (0..200)
        .map(|i| file(&dir, &format!("f{i}"), &bytes(20_000 + i)))
        .collect();
    let run = run(std::process::Command::new("sh")
        .args(["-c", r#"ulimit -n 16; exec "$@""#, "sh"])
        .args([env!("CARGO_BIN_EXE_cordboard"), "copy"])
        .args(&sources)
        .arg(&into));
    run.ok();
    for (i, source) in sources.iter().enumerate() {
        assert!(read(into.join(source.file_name().unwrap())) == bytes(20_000 + i));
    }
}

#[test]
fn a_directory_that_is_not_there() {
    let dir = dir();
    let source = file(&dir, "s", b"x");
    run(cordboard()
        .arg("copy")
        .arg(&source)
        .arg(format!("{}/new/", dir.path().display())))
    .fails(1, &["no such directory", "mkdir"]);
}

/// Deeper than there may be open files, than a path may be long, and than a
/// stack would take it.
#[test]
fn a_deep_tree() {
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
    const DEPTH: usize = 3000;
    let dir = dir();
    let down = |above: std::os::fd::BorrowedFd<'_>, name: &str| {
        openat(above, name, OFlags::DIRECTORY, Mode::empty()).unwrap()
    };
    let at = down(CWD, dir.path().to_str().unwrap());
    let mut here = at.try_clone().unwrap();
    for level in 0..=DEPTH {
        let name = if level == 0 { "t" } else { "d" };
        mkdirat(&here, name, Mode::from_raw_mode(0o700)).unwrap();
        here = down(here.as_fd(), name);
        // On the way back, after all that is below.
        if level % 100 == 0 {
            let flags = OFlags::CREATE | OFlags::WRONLY;
            let file = openat(&here, "z", flags, Mode::from_raw_mode(0o600)).unwrap();
            rustix::io::write(&file, level.to_string().as_bytes()).unwrap();
        }
    }
    let script = r#"ulimit -n 48; exec "$@""#;
    let run = run(Command::new("sh")
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_cordboard")])
        .args(["copy", "-r", "-p", "--json"])
        .args([dir.path().join("t"), dir.path().join("c")]));
    let written: usize = (0..=DEPTH).step_by(100).map(|n| n.to_string().len()).sum();
    assert_eq!(run.ok().json()["written"], written);
    let mut here = at.try_clone().unwrap();
    for level in 0..=DEPTH {
        here = down(here.as_fd(), if level == 0 { "c" } else { "d" });
        if level % 100 == 0 {
            let file = openat(&here, "z", OFlags::RDONLY, Mode::empty()).unwrap();
            let mut text = [0; 8];
            let n = rustix::io::read(&file, &mut text).unwrap();
            assert_eq!(text[..n], *level.to_string().as_bytes());
        }
    }
    // The standard library's way to remove a tree needs a descriptor a level.
    let removed = Command::new("rm").arg("-rf").arg(dir.path()).status();
    assert!(removed.unwrap().success());
}

/// A directory that nobody may enter is settled after all else is done.
#[test]
fn a_deep_tree_of_shut_directories() {
    let dir = dir();
    let mut paths = vec![dir.path().join("t")];
    for _ in 0..40 {
        paths.push(paths[paths.len() - 1].join("d"));
    }
    std::fs::create_dir_all(&paths[40]).unwrap();
    std::fs::write(paths[40].join("f"), b"f").unwrap();
    for path in paths.iter().rev().step_by(2) {
        chmod(path, 0o500);
    }
    let copy = dir.path().join("c");
    run(cordboard().args(["copy", "-r"]).args([&paths[0], &copy])).ok();
    let mut there = copy;
    for (level, path) in paths.iter().enumerate() {
        assert_eq!(mode(&there), mode(path), "{level}");
        there.push("d");
    }
    for path in &paths {
        chmod(path, 0o700);
    }
    let mut there = dir.path().join("c");
    while there.is_dir() {
        chmod(&there, 0o700);
        there.push("d");
    }
}

#[test]
fn a_file_is_not_emptied_for_a_request_that_is_refused() {
    let dir = dir();
    let source = file(&dir, "s", b"new");
    let sink = file(&dir, "d", b"old");
    for command in ["copy", "splice"] {
        run(cordboard()
            .args([command, "--route", "datagram"])
            .args([&source, &sink]))
        .fails(1, &["no path is left"]);
        assert_eq!(read(&sink), b"old");
    }
}

/// Not even root gives a file to an owner that its user namespace does not know.
#[test]
fn an_owner_that_is_not_known_here_is_let_go_of() {
    if !root("files of others") {
        return;
    }
    let within = ["--user", "--map-root-user"];
    let can = Command::new("unshare").args(within).arg("true").output();
    if !can.is_ok_and(|tried| tried.status.success()) {
        eprintln!("SKIPPED: owners that are not known need unshare(1) and user namespaces");
        return;
    }
    let dir = dir();
    let source = file(&dir, "s", b"theirs");
    let link = dir.path().join("l");
    symlink("s", &link).unwrap();
    for path in [&source, &link] {
        std::os::unix::fs::lchown(path, Some(1234), Some(1234)).unwrap();
    }
    // Giving it away has cleared the bits.
    chmod(&source, 0o4644);
    let to = dir.path().join("to");
    std::fs::create_dir(&to).unwrap();
    run(Command::new("unshare")
        .args(within)
        .arg(env!("CARGO_BIN_EXE_cordboard"))
        .args(["copy", "-r", "-p"])
        .args([&source, &link, &to]))
    .ok();
    assert_eq!(read(to.join("s")), b"theirs");
    for (name, mode) in [("s", 0o100_644), ("l", 0o120_777)] {
        let made = to.join(name).symlink_metadata().unwrap();
        assert_eq!((made.uid(), made.gid(), made.mode()), (0, 0, mode));
    }
}

/// A file of no bytes is complete as soon as it is there.
#[test]
fn an_empty_file_stays_where_its_attributes_cannot() {
    use rustix::fs::{XattrFlags, setxattr};
    let dir = dir();
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("SKIPPED: no file system in memory");
        return;
    };
    let source = file(&memory, "s", b"");
    // More than a block, which is all that ext4 has for them.
    let large = [7; 20_000];
    let set = |path: &Path| setxattr(path, "user.cord", &large, XattrFlags::empty());
    let sink = file(&dir, "d", b"");
    if set(&source).is_err() || set(&sink) != Err(rustix::io::Errno::NOSPC) {
        eprintln!("SKIPPED: no attribute that only one of two file systems takes");
        return;
    }
    std::fs::remove_file(&sink).unwrap();
    let run = run(cordboard()
        .args(["copy", "-p", "--json"])
        .args([&source, &sink]));
    run.fails(
        1,
        &["ENOSPC", "its contents are complete", "d holds 0 bytes"],
    );
    assert_eq!(run.json()["written"], 0);
    assert!(sink.exists());
}

#[test]
fn who_may_not_give_files_away_keeps_the_group() {
    if !root("files of others") {
        return;
    }
    let without = ["--groups", "1234", "--bounding-set=-chown"];
    let can = Command::new("setpriv").args(without).arg("true").output();
    if !can.is_ok_and(|tried| tried.status.success()) {
        eprintln!("SKIPPED: files that cannot be given away need setpriv");
        return;
    }
    let dir = dir();
    let source = file(&dir, "s", b"ours");
    std::os::unix::fs::chown(&source, Some(1000), Some(1234)).unwrap();
    chmod(&source, 0o4750);
    let link = dir.path().join("l");
    symlink("s", &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(1000), Some(1234)).unwrap();
    let to = dir.path().join("to");
    std::fs::create_dir(&to).unwrap();
    let mut command = Command::new("setpriv");
    command
        .args(without)
        .arg(env!("CARGO_BIN_EXE_cordboard"))
        .args(["copy", "-r", "-p"])
        .args([&source, &link, &to]);
    run(&mut command).ok();
    for (name, mode) in [("s", 0o100_750), ("l", 0o120_777)] {
        let made = to.join(name).symlink_metadata().unwrap();
        assert_eq!((made.uid(), made.gid(), made.mode()), (0, 1234, mode));
    }
}
