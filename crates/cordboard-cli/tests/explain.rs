//! `cordboard explain`, which changes nothing.
#![allow(missing_docs)]

mod common;

use common::*;

fn text(run: &Run) -> String {
    String::from_utf8(run.ok().stdout().to_vec()).unwrap()
}

#[test]
fn the_kinds_the_facts_and_the_paths() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(5000));
    let sink = dir.path().join("new");
    let text_ = text(&run(cordboard().arg("explain").args([&source, &sink])));
    assert!(
        text_.contains("s: regular file, 5000 bytes (4.9 KiB)"),
        "{text_}"
    );
    assert!(text_.contains("new: regular file"), "{text_}");
    assert!(text_.contains("to be created"), "{text_}");
    assert!(text_.contains("\n  1. "), "{text_}");
    assert!(text_.contains("\nreason for the order: "), "{text_}");
    assert!(text_.contains("paths not attempted:\n"), "{text_}");
    // Nothing was created.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn one_path_has_no_order() {
    let explain = |more: &[&str]| {
        let mut command = cordboard();
        command.args(["explain", "/dev/zero", "/dev/null", "--route", "rw"]);
        text(&run(command.args(more)))
    };
    let lines = explain(&[]);
    assert!(lines.contains("\n  1. read/write: "), "{lines}");
    assert!(!lines.contains("reason for the order"), "{lines}");
    let json: serde_json::Value = serde_json::from_str(&explain(&["--json"])).unwrap();
    assert!(json["prior"].is_null(), "{json}");
}

#[test]
fn a_name_forges_no_line_and_sends_no_escape_sequence() {
    let dir = dir();
    let source = file(&dir, "s\nsink: \u{1b}[31m", b"source");
    let sink = dir.path().join("d\r\u{1b}]0;title\u{7}");
    let explain = |more: &[&str]| {
        let mut command = cordboard();
        text(&run(command
            .arg("explain")
            .args([&source, &sink])
            .args(more)))
    };
    let lines = explain(&[]);
    assert!(
        !lines.replace('\n', "").contains(char::is_control),
        "{lines:?}"
    );
    assert_eq!(lines.matches("\nsink: ").count(), 1, "{lines}");
    // JSON has escape sequences of its own.
    let json = explain(&["--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["source"]["name"], source.to_str().unwrap());
}

#[test]
fn the_page_has_every_member() {
    let dir = dir();
    let source = file(&dir, "s", b"source");
    let mut command = cordboard();
    command.args(["explain", "--json"]).arg(&source);
    let json = text(&run(command.arg("/dev/null")));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, page) = page
        .split_once("`cordboard explain SRC DST --json`")
        .unwrap();
    let inner = [&json["source"], &json["paths"][0], &json["excluded"][0]];
    for members in [&[&json], &inner[..]].concat() {
        for name in members.as_object().unwrap().keys() {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }
}

/// Only the access to the directory that the transfer needs is required here.
#[test]
fn a_file_that_may_be_written_where_none_may_be_made() {
    let sink = "/sys/kernel/mm/transparent_hugepage/enabled";
    if std::fs::File::options().write(true).open(sink).is_err() {
        return testkit::skip::here(format!("{sink} cannot be written"));
    }
    let dir = dir();
    let source = file(&dir, "s", b"source");
    let text = text(&run(cordboard().arg("explain").arg(&source).arg(sink)));
    assert!(text.contains("\n  1. read/write"), "{text}");
}

#[test]
fn the_hint_of_a_pair_without_a_path_names_another_remedy_than_explain() {
    let dir = dir();
    let source = file(&dir, "s", b"source");
    let refused = |command: &str| {
        let args = [command, "--route", "clone"];
        run(cordboard().args(args).arg(&source).arg("/dev/null"))
    };
    let says = "no usable data path for this pair: clone";
    refused("splice").fails(1, &[says, "see cordboard explain"]);
    let explained = refused("explain");
    explained.fails(
        1,
        &[says, "; allow another path: see --route and --without"],
    );
    assert!(!explained.stderr().contains("see cordboard"));
}

#[test]
fn the_paths_that_are_measured_are_named() {
    let dir = dir();
    let source = file(&dir, "s", b"source");
    let explain = |sink: &str, tune: &str| {
        let mut command = cordboard();
        command.env("CORDBOARD_TUNE", tune).arg("explain");
        text(&run(command.arg(&source).arg(sink)))
    };
    let measured = |goal: &str| {
        format!(
            "a long transfer measures these paths and uses {goal}: sendfile, splice, read/write\n"
        )
    };
    let fastest = measured("the fastest");
    assert!(explain("tcp:localhost:9", "on").contains(&fastest));
    let least = measured("the one that takes the least processor time");
    assert!(explain("tcp:localhost:9", "processor").contains(&least));
    assert!(!explain("tcp:localhost:9", "off").contains("measures"));
    assert!(!explain("/dev/null", "on").contains("measures"));
}

#[test]
fn a_sink_behind_a_symlink_is_where_that_points_to() {
    let dir = dir();
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        return testkit::skip::here("no /dev/shm");
    };
    let source = file(&dir, "s", &bytes(5000));
    let there = memory.path().join("there");
    std::fs::write(&there, b"old").unwrap();
    for target in [there, memory.path().join("not yet")] {
        let link = dir.path().join("link");
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(target, &link).unwrap();
        let text = text(&run(cordboard().arg("explain").args([&source, &link])));
        let sink = text.lines().find(|line| line.starts_with("sink:")).unwrap();
        assert!(sink.contains(" on tmpfs"), "{text}");
    }
}

#[test]
fn the_sink_keeps_its_contents_and_nothing_is_connected() {
    let dir = dir();
    let source = file(&dir, "s", b"source");
    let sink = file(&dir, "d", b"sink");
    let name = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    for (from, to, kind) in [
        (name(&source), name(&sink), "its contents to be replaced"),
        (
            name(&source),
            "tcp:127.0.0.1:9".into(),
            "TCP socket, not connected yet",
        ),
        ("udp-listen:127.0.0.1:9".into(), name(&sink), "UDP socket"),
        (name(&source), "unix:/no/such".into(), "UNIX stream socket"),
        (
            "unix-dgram:/no/such".into(),
            "-".into(),
            "UNIX datagram socket",
        ),
        (
            "unix-seqpacket-listen:/no/such".into(),
            "-".into(),
            "UNIX seqpacket socket",
        ),
        ("/dev/zero".into(), "/dev/null".into(), "character device"),
        ("-".into(), "-".into(), "standard output: pipe"),
    ] {
        let text = text(&call(["explain", &from, &to]));
        assert!(text.contains(kind), "{text}");
    }
    assert_eq!(read(&sink), b"sink");
}

#[test]
fn a_fifo_is_not_waited_for() {
    let dir = dir();
    let fifo = dir.path().join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let text = text(&call(["explain".as_ref(), fifo.as_os_str(), "-".as_ref()]));
    assert!(text.contains("a FIFO"), "{text}");
}

/// The other end would see that the terminal was opened and hung up.
#[test]
fn a_device_is_not_opened() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let name = name.to_str().unwrap();
    let not_opened = format!("{name}: terminal, not opened by explain");
    for (from, to) in [(name, "/dev/null"), ("/dev/zero", name)] {
        let text = text(&call(["explain", from, to]));
        assert!(text.contains(&not_opened), "{text}");
        assert!(text.contains("1. read/write"), "{text}");
    }
    let mut fds = [PollFd::new(&master, PollFlags::IN)];
    assert_eq!(poll(&mut fds, Some(&Timespec::default())), Ok(0));
}

/// No driver has this number: opening it is ENXIO.
#[test]
fn a_device_that_cannot_be_opened_is_still_explained() {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    if !root("a device file") {
        return;
    }
    let dir = dir();
    for (kind, shown) in [
        (FileType::BlockDevice, "block device"),
        (FileType::CharacterDevice, "character device"),
    ] {
        let path = dir.path().join(shown);
        let mode = Mode::from_raw_mode(0o600);
        if mknodat(CWD, &path, kind, mode, makedev(240, 77)).is_err() {
            testkit::skip::here("no device files here");
            return;
        }
        let source = file(&dir, "s", b"x");
        let text = text(&run(cordboard().arg("explain").args([&source, &path])));
        assert!(text.contains(&format!("{shown}: {shown}")), "{text}");
        assert!(text.contains("not opened by explain"), "{text}");
    }
}

#[test]
fn what_would_be_refused_is() {
    let dir = dir();
    let path = file(&dir, "f", b"x");
    run(cordboard().arg("explain").args([&path, &path])).fails(1, &["same file"]);
    call(["explain", "/no/such", "-"]).fails(1, &["ENOENT"]);
    run(cordboard()
        .args(["explain", "--append"])
        .args([&path, &path]))
    .fails(1, &["forever"]);
    let new = dir.path().join("new/");
    run(cordboard().arg("explain").args([&path, &new])).fails(1, &["directory does not exist"]);
}

/// As by splice, without opening it.
#[test]
fn a_block_device_is_not_appended_to() {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    let dir = dir();
    let (path, device) = (file(&dir, "f", b"x"), dir.path().join("device"));
    let mode = Mode::from_raw_mode(0o600);
    if mknodat(CWD, &device, FileType::BlockDevice, mode, makedev(240, 77)).is_err() {
        testkit::skip::here("no device files here");
        return;
    }
    let args = [path.as_os_str(), device.as_os_str(), "--append".as_ref()];
    let run = run(cordboard().arg("explain").args(args));
    run.fails(1, &["is a block device, which cannot be appended to"]);
}

/// The file is described as it would be after its creation.
#[test]
fn a_file_that_is_to_be_made_and_appended_to_is_one_that_appends() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(100_000));
    let [new, empty] = ["new", "empty"].map(|name| dir.path().join(name));
    std::fs::write(&empty, b"").unwrap();
    let explained = [new, empty].map(|sink| {
        let run = run(cordboard()
            .args(["explain", "--append", "--json"])
            .args([&source, &sink]));
        let json: serde_json::Value = serde_json::from_slice(run.ok().stdout()).unwrap();
        json
    });
    let [new, empty] = &explained;
    assert_eq!(new["sink"]["note"], "to be created");
    assert_eq!(new["sink"]["flags"], serde_json::json!(["appending"]));
    for key in ["paths", "excluded"] {
        assert_eq!(new[key], empty[key], "{key}");
    }
    assert_eq!(new["paths"][0]["why"], "appending needs a buffer");
}

#[test]
fn a_sink_that_is_written_in_place_is_as_long_as_it_was() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(100_000));
    let sink = file(&dir, "d", &bytes(200_000));
    let with = |options: &[&str]| {
        run(cordboard()
            .args(["explain", "--sink-offset", "4K"])
            .args(options)
            .args([&source, &sink]))
    };
    let shown = text(&with(&[]));
    assert!(shown.contains("to be written in place"), "{shown}");
    let why = "sendfile: sendfile writes at the sink's file position only";
    assert!(shown.contains(why), "{shown}");
    let json: serde_json::Value = serde_json::from_slice(with(&["--json"]).stdout()).unwrap();
    assert_eq!(json["sink"]["size"], 200_000);
    assert_eq!(read(&sink), bytes(200_000));
    let new = dir.path().join("new");
    let explain = ["explain", "--sink-offset", "4K"];
    run(cordboard().args(explain).args([&source, &new])).ok();
    assert!(!new.exists());
    // Within one file, the ranges decide.
    let both = |size| {
        run(cordboard()
            .args(explain)
            .args(["--size", size])
            .args([&sink, &sink]))
    };
    both("1K").ok();
    both("8K").fails(1, &["overlap"]);
}

#[test]
fn json() {
    let run = call([
        "explain",
        "--json",
        "--without",
        "splice",
        "/dev/zero",
        "/dev/null",
    ]);
    let json: serde_json::Value = serde_json::from_slice(run.ok().stdout()).unwrap();
    assert_eq!(json["source"]["kind"], "character device");
    assert_eq!(json["paths"][0]["path"], "read/write");
    assert!(
        json["excluded"]
            .as_array()
            .unwrap()
            .iter()
            .any(|e| e["path"] == "splice")
    );
}

#[test]
fn a_closed_standard_output_is_an_error() {
    for words in ["explain /dev/zero /dev/null", "completions bash", "man cat"] {
        let child = std::process::Command::new("sh")
            .args(["-c", &format!(r#""$0" {words} >&-"#)])
            .arg(env!("CARGO_BIN_EXE_cordboard"))
            .stderr(std::process::Stdio::piped())
            .start();
        end(child).fails(1, &["standard output: Bad file descriptor (EBADF)"]);
    }
}
