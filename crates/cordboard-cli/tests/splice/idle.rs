//! `--idle`: the end of a silent transfer.

use std::io::{Read, Write};
use std::process::Stdio;

use super::common::*;
use super::start;

#[test]
fn idle_ends_without_an_error() {
    let child = start(&["-", "-", "--idle", "0.05", "--json"]);
    // Its standard input stays open, and silent.
    let mut child = child;
    let stdin = child.stdin.take();
    let run = end(child);
    drop(stdin);
    assert_eq!(run.ok().json()["ended"], "idle");
}

/// A sink that is never read takes a part of what was read: the rest is lost,
/// which is reported as by any other end. Nothing follows it.
#[test]
fn idle_with_bytes_that_are_lost_is_a_failure() {
    let dir = dir();
    let next = file(&dir, "next", b"next");
    let data = bytes(200_000);
    for (first, (flag, lost)) in [
        (["splice", "-", "-"], ("--hash=crc32", "read")),
        (
            ["splice", "-", "-"],
            ("--zstd", "produced from what was read"),
        ),
        (
            ["cat", "-", next.to_str().unwrap()],
            ("--hash=crc32", "read"),
        ),
    ] {
        let (stdin, mut feed) = std::io::pipe().unwrap();
        let (mut reader, stdout) = std::io::pipe().unwrap();
        // Everything is there before the limit begins.
        rustix::pipe::fcntl_setpipe_size(&feed, 1 << 18).unwrap();
        feed.write_all(&data).unwrap();
        let mut command = cordboard();
        (command.args(first)).args([flag, "--json", "--idle", "0.05"]);
        command.stdin(stdin).stdout(stdout).stderr(Stdio::piped());
        let child = command.start();
        // The ends of the pipes that the child has now.
        drop(command);
        let run = end(child);
        let says = [
            "standard output: idle limit reached",
            "more bytes were",
            "are lost",
        ];
        let json = run.fails(1, &says).json();
        let all = format!("{} more bytes were {lost} and are lost", json["stranded"]);
        assert!(run.stderr().contains(&all), "{}", run.stderr());
        assert!(json["stranded"].as_u64() > Some(0), "{json}");
        let ended = [&json["ended"], &json["failed"], &json["errno"]];
        let expected = [
            &"idle".into(),
            &serde_json::Value::Null,
            &serde_json::Value::Null,
        ];
        assert_eq!(ended, expected, "{first:?}");
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        assert_eq!(json["written"], got.len());
        if flag != "--zstd" {
            assert!(data.starts_with(&got), "{first:?}");
        }
        drop(feed);
    }
}

/// A sink that is never read, and nothing is lost: the source still has the rest. A hash of a part of
/// it would be taken for that of the file.
#[test]
fn idle_with_bytes_left_in_the_source_is_a_failure() {
    let dir = dir();
    // More than both pipes hold.
    let data = bytes(4_000_000);
    let all = file(&dir, "all", &data);
    for from_file in [true, false] {
        let (stdin, mut feed) = std::io::pipe().unwrap();
        let (mut reader, sink) = std::io::pipe().unwrap();
        let fed = data.clone();
        let feeder = std::thread::spawn(move || feed.write_all(&fed).is_ok());
        let mut command = cordboard();
        let source = if from_file {
            all.to_str().unwrap()
        } else {
            "-"
        };
        let args = ["--json", "--route", "splice", "--idle", "0.05"];
        command.args(["splice", source, "-"]).args(args);
        if from_file {
            command.arg("--hash=crc32").args(["--route", "read/write"]);
        }
        command.stdin(stdin).stdout(sink).stderr(Stdio::piped());
        let child = command.start();
        drop(command);
        let run = end(child);
        let left = if from_file {
            "bytes of the source are left"
        } else {
            "the source has more"
        };
        let json = run.fails(1, &["idle limit reached, after", left]).json();
        assert_eq!(json["ended"], "idle");
        assert_eq!(json["stranded"], 0, "{json}");
        assert!(!run.stderr().contains("  all"), "{}", run.stderr());
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        assert_eq!(json["written"], got.len());
        assert!(data.starts_with(&got) && got.len() < data.len());
        assert!(
            !feeder.join().unwrap(),
            "the source was not read to its end"
        );
    }
}

/// The end of the frame is more than the pipe holds, and its reader starts once
/// the pipe is full.
#[test]
fn idle_leaves_a_complete_frame_to_a_reader_that_is_late() {
    let (stdin, mut feed) = std::io::pipe().unwrap();
    let (mut reader, stdout) = std::io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&feed, 1 << 18).unwrap();
    // A pipe is larger where pages are.
    let full = rustix::pipe::fcntl_setpipe_size(&stdout, 1 << 16).unwrap() as u64;
    let data = bytes(120_000);
    feed.write_all(&data).unwrap();
    let mut command = cordboard();
    command.args(["splice", "-", "-", "--zstd", "--json", "--idle", "2"]);
    command.stdin(stdin).stdout(stdout).stderr(Stdio::piped());
    let child = command.start();
    drop(command);
    until("a full pipe", || {
        (rustix::io::ioctl_fionread(&reader).unwrap() >= full).then_some(())
    });
    let mut got = Vec::new();
    reader.read_to_end(&mut got).unwrap();
    let json = end(child).ok().json();
    assert_eq!(
        (&json["ended"], &json["read"], &json["stranded"]),
        (&"idle".into(), &120_000.into(), &0.into())
    );
    let dir = dir();
    let packed = file(&dir, "p", &got);
    let unpacked = run(cordboard().args(["cat", "--unzstd"]).arg(packed));
    assert!(unpacked.ok().stdout() == data);
    drop(feed);
}

#[test]
fn idle_within_a_frame_is_a_failure() {
    let dir = dir();
    let plain = file(&dir, "s", &bytes(1000));
    let packed = run(cordboard().args(["cat", "--zstd"]).arg(plain));
    let frame = packed.ok().stdout();
    let (stdin, mut feed) = std::io::pipe().unwrap();
    feed.write_all(&frame[..frame.len() - 1]).unwrap();
    let mut command = cordboard();
    command.args(["splice", "-", "-", "--unzstd", "--json", "--idle", "0.05"]);
    let run = run(command.stdin(stdin));
    let json = run
        .fails(1, &["standard input: ", "truncated after"])
        .json();
    let ended = (&json["ended"], &json["failed"], &json["errno"]);
    assert_eq!(
        ended,
        (&"error".into(), &"source".into(), &"EBADMSG".into())
    );
    drop(feed);
}
