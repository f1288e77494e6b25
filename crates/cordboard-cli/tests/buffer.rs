//! `cordboard splice SRC DST --buffer SIZE`.
#![allow(missing_docs)]

mod common;

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;

use common::*;
use rustix::process::Signal;
use serde_json::json;

fn spawn(args: &[&str]) -> Owned {
    piped(
        cordboard()
            .args(["splice", "-", "-"])
            .args(args)
            .arg("--json"),
    )
}

#[test]
fn a_burst_is_taken_before_the_reader_reads() {
    let dir = dir();
    let data = bytes(9_000_000);
    let place = dir.path().to_str().unwrap();
    for place in [&[][..], &["--buffer-file", place]] {
        let mut child = spawn(&[&["--buffer", "16M"], place].concat());
        // Returns although standard output is not read. Both pipes hold up to 2 MiB.
        feed(&mut child, &data);
        let mut got = Vec::new();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_to_end(&mut got).unwrap();
        assert!(got == data);
        let run = end(child);
        let account = run.ok().json();
        assert_eq!(account["written"], data.len());
        assert_eq!(account["ended"], "eof");
        let buffered = &account["buffered"];
        assert_eq!(buffered["size"], 16 << 20);
        assert!(buffered["most"].as_u64().unwrap() > 6_000_000, "{buffered}");
        assert!(
            buffered["stored"].as_u64().unwrap() > 4_000_000,
            "{buffered}"
        );
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_range_of_the_sink_is_written() {
    let dir = dir();
    let (new, old) = (bytes(3_000_000), vec![0xee; 5_000_000]);
    let (source, sink) = (file(&dir, "s", &new), file(&dir, "d", &old));
    let offset = ["splice", "--buffer", "1M", "--sink-offset", "1000001"];
    run(cordboard().args(offset).args([&source, &sink])).ok();
    let got = fs::read(&sink).unwrap();
    assert!(got[1_000_001..][..3_000_000] == new && got.len() == old.len());
    assert!(got[..1_000_001] == old[..1_000_001] && got[4_000_001..] == old[4_000_001..]);
    let refused = run(cordboard().args(offset).arg(&source).arg("-"));
    refused.fails(1, &["cannot seek", "omit --sink-offset"]);
}

/// The transfer from the source, and the one to the sink.
#[test]
fn the_paths_of_both_transfers_are_reported() {
    let moved = |args: &[&str]| {
        let (feed, source) = UnixDatagram::pair().unwrap();
        feed.send(&[7; 100]).unwrap();
        let args = [&["splice", "-", "-", "--size", "100", "--json"][..], args].concat();
        let mut command = cordboard();
        command.args(args).stdin(OwnedFd::from(source));
        run(&mut command).ok().json()
    };
    // The first one is datagram, unless a filter refuses it.
    let route = ["--route", "datagram,read/write"];
    let alone = moved(&route);
    let first = &alone["path"][0];
    for further in [["--buffer", "1M"], ["--fan-in", "turn"]] {
        let account = moved(&[route, further].concat());
        let paths = account["path"].as_array().unwrap();
        assert_eq!(&paths[0], first, "{account}");
        assert_eq!(paths.last(), Some(&json!("read/write")), "{account}");
        let declined = account["declined"].as_array().unwrap();
        for one in alone["declined"].as_array().unwrap() {
            assert!(declined.contains(one), "{one} {account}");
        }
        for one in account["by_path"].as_array().into_iter().flatten() {
            assert_eq!(one["bytes"], 100, "{account}");
        }
    }
}

#[test]
fn a_signal_prints_the_level_and_another_ends_it() {
    let mut child = spawn(&["--buffer", "16M", "--rate", "1"]);
    let data = bytes(5_000_000);
    let mut stdin = child.stdin.take().unwrap();
    // Returns although the rate permits hardly any bytes.
    stdin.write_all(&data).unwrap();
    signal(child.id(), Signal::USR1);
    let mut stderr = child.stderr.take().unwrap();
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let mut byte = [0];
        stderr.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    let line = String::from_utf8(line).unwrap();
    assert!(
        line.contains("buffer ") && line.contains("of 16 MiB"),
        "{line}"
    );
    signal(child.id(), Signal::TERM);
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    let run = end(child);
    assert_eq!(run.code(), 143);
    let account: serde_json::Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    assert_eq!(account["ended"], "cancelled");
    let count = |name: &str| account[name].as_u64().unwrap();
    assert_eq!(count("written"), run.stdout().len() as u64);
    assert_eq!(count("read"), count("written") + count("stranded"));
    assert!(run.stdout() == &data[..run.stdout().len()]);
}

#[test]
fn a_file_is_set_back_over_what_was_not_written() {
    let dir = dir();
    let data = bytes(3_000_000);
    let source = fs::File::open(file(&dir, "s", &data)).unwrap();
    let child = cordboard()
        .args(["splice", "-", "/dev/full", "--buffer", "1M", "--json"])
        .stdin(source.try_clone().unwrap())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .start();
    let run = end(child);
    run.fails(1, &["/dev/full", "ENOSPC", "after 0 bytes"]);
    let account = run.json();
    assert_eq!(
        (&account["read"], &account["stranded"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(rustix::fs::tell(&source).unwrap(), 0);
}

#[test]
fn a_limit_of_file_size_is_named_and_what_was_read_is_written() {
    // More bytes than the pipes hold, so that the reader is always behind.
    let data = bytes(60_000_000);
    let mut child = std::process::Command::new("sh")
        .args(["-c", "ulimit -f 100; exec \"$@\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_cordboard"))
        .args([
            "splice", "-", "-", "--buffer", "8M", "--rate", "20M", "--json",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let fed = data.clone();
    let feeder = std::thread::spawn(move || {
        // Fails once the command has ended.
        stdin.write_all(&fed).unwrap_err();
    });
    let mut got = Vec::new();
    stdout.read_to_end(&mut got).unwrap();
    let run = end(child);
    feeder.join().unwrap();
    run.fails(1, &["the buffer", "EFBIG", "ulimit -f"]);
    let account = run.json();
    assert_eq!(account["written"], got.len());
    assert_eq!(
        (&account["failed"], &account["stranded"]),
        (&json!(null), &json!(0))
    );
    assert!(got == data[..got.len()]);
}

#[test]
fn a_closed_standard_output_ends_it_as_sigpipe_does() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(3_000_000));
    let args = [source.as_os_str(), "-".as_ref()];
    for rest in [["--buffer", "1M"], ["--fan-in", "turn"]] {
        let run = run_unread(cordboard().arg("splice").args(args).args(rest));
        let signal = std::os::unix::process::ExitStatusExt::signal(&run.0.status);
        assert_eq!(signal, Some(libc::SIGPIPE), "{}", run.stderr());
        assert_eq!(run.stderr(), "");
    }
}

#[test]
fn the_two_ends_have_rates() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(100_000));
    let sink = dir.path().join("d");
    let args = ["splice".as_ref(), source.as_os_str(), sink.as_os_str()];
    let rest = [
        "--buffer",
        "1M",
        "--rate",
        "1M",
        "--intake-rate",
        "2M",
        "--json",
    ]
    .map(OsStr::new);
    let run = call([&args[..], &rest[..]].concat());
    let account = run.ok().json();
    assert!(read(&sink) == bytes(100_000));
    let most = account["buffered"]["most"].as_u64().unwrap();
    assert!(most > 0 && most <= 1 << 20);
}

#[test]
fn flags_that_do_not_fit_are_refused_with_what_helps() {
    let dir = dir();
    let source = file(&dir, "s", b"abc");
    let sink = dir.path().join("d");
    let (s, d) = (source.to_str().unwrap(), sink.to_str().unwrap());
    let with = |args: &[&str]| call([&["splice"], args].concat());
    let buffer = ["--buffer", "1M"];
    with(&[s, d, "--buffer-file", "."]).fails(2, &["--buffer-file", "--buffer SIZE"]);
    with(&[s, d, "--intake-rate", "5"]).fails(2, &["--intake-rate", "--buffer SIZE"]);
    with(&[s, d, d, "--intake-rate", "5"]).fails(2, &["--intake-rate", "--buffer SIZE"]);
    with(&[&[s, d, d], &buffer[..]].concat()).fails(2, &["--buffer", "single"]);
    with(&[&[s, s, d, "--fan-in", "line"], &buffer[..]].concat()).fails(2, &["single"]);
    with(&[&[s, d, "--zstd"], &buffer[..]].concat()).fails(2, &["--buffer", "--zstd"]);
    with(&[&[s, d, "--on-slow", "drop"], &buffer[..]].concat()).fails(2, &["several DST"]);
    let run = with(&[s, d, "--buffer", "0"]);
    assert_eq!(run.code(), 2);
    assert!(run.stderr().contains("at least one byte"));
    let none = dir.path().join("none");
    let place = ["--buffer-file", none.to_str().unwrap()];
    with(&[&[s, d], &buffer[..], &place].concat()).fails(1, &["none", "ENOENT", "mkdir"]);
    with(&[&[s, d], &buffer[..], &["--buffer-file", ""]].concat()).fails(2, &["--buffer-file DIR"]);
    let run = with(&[&[s, d], &buffer[..], &["--buffer-file", "/proc"]].concat());
    run.fails(1, &["/proc", "files can be created"]);
    // A file instead of a directory.
    let place = ["--buffer-file", s];
    with(&[&[s, d], &buffer[..], &place].concat()).fails(1, &["ENOTDIR", "directory"]);
    assert!(!sink.exists());
    with(&[&[s, s], &buffer[..]].concat()).fails(1, &["same file"]);
    assert_eq!(read(&source), b"abc");
}

#[test]
fn a_file_that_stays_empty_is_removed_after_a_failure() {
    let dir = dir();
    let sink = dir.path().join("d");
    // Address 0 is never mapped.
    let source = ["splice", "/proc/self/mem", "--buffer", "1M"];
    run(cordboard().args(source).arg(&sink)).fails(1, &["EIO"]);
    assert!(!sink.exists());
    let child = piped(
        cordboard()
            .args(["splice", "-", "--buffer", "1M"])
            .arg(&sink),
    );
    until("the sink", || sink.exists().then_some(()));
    signal(child.id(), Signal::INT);
    assert_eq!(end(child).code(), 130);
    assert!(!sink.exists());
}

#[test]
fn the_status_has_the_level() {
    let dir = dir();
    let socket = dir.path().join("cue");
    let mut child = spawn(&[
        "--buffer",
        "16M",
        "--rate",
        "1",
        "--control",
        socket.to_str().unwrap(),
    ]);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&bytes(2_000_000)).unwrap();
    let status = until("the level", || {
        let run = call([
            OsStr::new("cue"),
            socket.as_os_str(),
            "status".as_ref(),
            "--json".as_ref(),
        ]);
        let status: serde_json::Value = serde_json::from_slice(run.stdout()).ok()?;
        (status["read"].as_u64()? > 1_000_000).then_some(status)
    });
    assert!(status["written"].as_u64().unwrap() < 100_000, "{status}");
    let cancelled = call([OsStr::new("cue"), socket.as_os_str(), "cancel".as_ref()]);
    cancelled.ok();
    assert_eq!(end(child).code(), 143);
}

#[test]
fn a_sink_keeps_its_contents_if_the_buffer_cannot_be_created() {
    let dir = dir();
    let source = file(&dir, "source", b"source");
    let sink = file(&dir, "sink", b"old");
    let no_directory = dir.path().join("none");
    let run = run(cordboard()
        .args(["splice", "--buffer", "1M", "--buffer-file"])
        .arg(&no_directory)
        .args([&source, &sink]));
    run.fails(1, &["none", "ENOENT"]);
    assert_eq!(read(&sink), b"old");
}
