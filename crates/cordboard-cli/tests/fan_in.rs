//! `cordboard splice SRC… DST --fan-in HOW`.
#![allow(missing_docs)]

mod common;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;

use common::*;
use serde_json::json;

/// Lines that begin with this letter.
fn lines(letter: char, count: usize) -> Vec<u8> {
    let line = |n: usize| format!("{letter}{n} {}\n", "-".repeat(n % 300));
    (0..count).map(line).collect::<String>().into_bytes()
}

fn spawn<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Owned {
    piped(cordboard().arg("splice").args(args))
}

#[test]
fn lines_of_files_and_standard_input_stay_whole() {
    let dir = dir();
    let (a, b) = (
        file(&dir, "a", &lines('a', 3000)),
        file(&dir, "b", &lines('b', 3000)),
    );
    let sink = dir.path().join("d");
    let mut child = spawn([
        a.as_os_str(),
        "-".as_ref(),
        b.as_os_str(),
        sink.as_os_str(),
        "--fan-in".as_ref(),
        "line".as_ref(),
        "--json".as_ref(),
    ]);
    feed(&mut child, &lines('c', 3000));
    let run = end(child);
    let account = run.ok().json();
    let got = read(&sink);
    for letter in ['a', 'b', 'c'] {
        let its = got.split_inclusive(|byte| *byte == b'\n');
        let its: Vec<&[u8]> = its.filter(|line| line[0] == letter as u8).collect();
        assert!(its.concat() == lines(letter, 3000), "{letter}");
    }
    assert_eq!(account["written"], got.len());
    assert_eq!(account["ended"], "eof");
    let sources = account["sources"].as_array().unwrap();
    assert_eq!(sources.len(), 3);
    assert_eq!(sources[1]["source"], "standard input");
    for source in sources {
        assert_eq!(
            (&source["written"], &source["stranded"]),
            (&json!(lines('a', 3000).len()), &json!(0))
        );
        assert_eq!(source["ended"], "eof");
    }
}

/// The paths in front of the one that was taken, with the reason.
#[test]
fn each_source_has_what_was_declined() {
    let dir = dir();
    let [a, b] = ["a", "b"].map(|name| file(&dir, name, b"old"));
    let mut command = cordboard();
    command.args(["splice", "--fan-in", "line", "--json"]);
    command.args(["--without", "splice"]);
    let account = run(command.args([&a, &b]).arg("/dev/null")).ok().json();
    let turned_off = json!({"path": "splice", "why": "turned off"});
    for source in account["sources"].as_array().unwrap() {
        let declined = source["declined"].as_array().unwrap();
        assert!(declined.contains(&turned_off), "{source}");
    }
}

#[test]
fn turns_have_the_size_that_was_given() {
    let dir = dir();
    let (a, b) = (file(&dir, "a", b"aaaaaaa"), file(&dir, "b", b"bbb"));
    let args = [a.as_os_str(), b.as_os_str(), "-".as_ref()];
    let rest = ["--fan-in", "turn", "--turn", "2"].map(OsStr::new);
    let run = call([&["splice".as_ref()], &args[..], &rest[..]].concat());
    assert_eq!(run.ok().stdout(), b"aabbaabaaa");
}

#[test]
fn a_source_that_fails_ends_the_command_or_is_detached() {
    let dir = dir();
    let a = file(&dir, "a", &lines('a', 1000));
    for (policy, ended) in [("end", "failed"), ("detach", "detached")] {
        let sink = dir.path().join(policy);
        // The memory of a process at address 0: EIO.
        let run = call([
            "splice".as_ref(),
            "/proc/self/mem".as_ref(),
            a.as_os_str(),
            sink.as_os_str(),
            "--fan-in".as_ref(),
            "line".as_ref(),
            "--on-failure".as_ref(),
            policy.as_ref(),
            "--json".as_ref(),
        ]);
        run.fails(1, &["/proc/self/mem", "EIO", "source"]);
        let account = run.json();
        assert_eq!(account["sources"][0]["ended"], ended);
        assert_eq!(account["sources"][0]["errno"], "EIO");
        if policy == "detach" {
            assert!(read(&sink) == lines('a', 1000));
            assert_eq!(account["sources"][1]["ended"], "eof");
        }
    }
}

#[test]
fn a_full_sink_is_named_and_the_account_is_exact() {
    let dir = dir();
    let (a, b) = (file(&dir, "a", &bytes(50_000)), file(&dir, "b", &bytes(7)));
    let args = [a.as_os_str(), b.as_os_str(), "/dev/full".as_ref()];
    let rest = ["--fan-in", "turn", "--json"].map(OsStr::new);
    let run = call([&["splice".as_ref()], &args[..], &rest[..]].concat());
    run.fails(1, &["/dev/full", "ENOSPC", "lost"]);
    let account = run.json();
    assert_eq!(
        (&account["failed"], &account["errno"]),
        (&json!("sink"), &json!("ENOSPC"))
    );
    for source in account["sources"].as_array().unwrap() {
        assert_eq!(source["written"], 0);
        assert_eq!(source["read"], source["stranded"]);
    }
}

#[test]
fn a_signal_ends_the_command_with_the_account() {
    let dir = dir();
    let sink = dir.path().join("d");
    let mut child = spawn([
        OsStr::new("-"),
        "/dev/zero".as_ref(),
        sink.as_os_str(),
        "--size".as_ref(),
        "1M".as_ref(),
        "--fan-in".as_ref(),
        "turn".as_ref(),
        "--json".as_ref(),
    ]);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"hello").unwrap();
    let size = (1 << 20) + 5;
    until("all bytes", || {
        let metadata = fs::metadata(&sink).ok();
        metadata.filter(|metadata| metadata.len() == size)
    });
    signal(child.id(), rustix::process::Signal::TERM);
    let run = end(child);
    drop(stdin);
    assert_eq!(run.code(), 143, "{}", run.stderr());
    let account = run.json();
    assert_eq!(account["ended"], "cancelled");
    assert_eq!(account["written"], size);
    assert_eq!(account["sources"][0]["ended"], "stopped");
    assert_eq!(account["sources"][1]["ended"], "size");
}

#[test]
fn mixtures_are_refused_with_what_helps() {
    let dir = dir();
    let (a, b) = (file(&dir, "a", b"a"), file(&dir, "b", b"b"));
    let sink = dir.path().join("d");
    let with = |sources: &[&OsStr], flags: &[&str]| {
        let flags: Vec<&OsStr> = flags.iter().map(OsStr::new).collect();
        call([&["splice".as_ref()], sources, &flags].concat())
    };
    let (a, b, d) = (a.as_os_str(), b.as_os_str(), sink.as_os_str());
    let line = ["--fan-in", "line"];
    let plus = |flags: &[&'static str]| [&line[..], flags].concat();
    with(&[a, b, d], &plus(&["--on-slow", "drop"])).fails(2, &["--on-slow", "--on-failure"]);
    with(&[a, b, d], &plus(&["--turn", "5"])).fails(2, &["--turn", "--fan-in turn"]);
    with(&[a, b, d], &plus(&["--zstd"])).fails(2, &["--zstd", "single SRC"]);
    with(&[a, b, d], &plus(&["--offset", "1"])).fails(2, &["--offset", "single SRC"]);
    for flags in [["--turn", "5"], ["--on-failure", "end"]] {
        with(&[a, b, d], &flags).fails(2, &[flags[0], "--fan-in"]);
        with(&[a, d], &flags).fails(2, &[flags[0], "--fan-in"]);
    }
    assert!(!sink.exists());
    with(&[a, a, d], &line).fails(1, &["two sources are the same"]);
    with(&[a, b, a], &line).fails(1, &["same file"]);
    with(&[a, b, d], &["--fan-in", "datagram"]).fails(1, &["no message boundaries"]);
    assert!(!sink.exists());
    assert_eq!(fs::read(a).unwrap(), b"a");
}

#[test]
fn the_sink_has_one_offset() {
    let dir = dir();
    let (a, b) = (file(&dir, "a", b"a\n"), file(&dir, "b", b"b\n"));
    let sink = file(&dir, "d", b"0123456789");
    let offset = ["splice", "--fan-in", "line", "--sink-offset", "3"];
    let run_ = run(cordboard().args(offset).args([&a, &b, &sink]));
    run_.ok();
    let got = fs::read(&sink).unwrap();
    assert!(got == b"012a\nb\n789" || got == b"012b\na\n789", "{got:?}");
    // Standard output is a pipe.
    let refused = run(cordboard().args(offset).args([&a, &b]).arg("-"));
    refused.fails(1, &["cannot seek", "omit --sink-offset"]);
    let itself = run(cordboard().args(offset).args([&a, &sink, &sink]));
    itself.fails(1, &["same file"]);
    assert_eq!(fs::read(&sink).unwrap(), got);
}

#[test]
fn a_fifo_without_a_writer_delays_no_other_source() {
    let dir = dir();
    let path = |name: &str| dir.path().join(name);
    fifo(&path("f"));
    fifo(&path("g"));
    let (file, sink) = (file(&dir, "s", &lines('s', 1000)), path("d"));
    let child = spawn([
        path("f").as_os_str(),
        path("g").as_os_str(),
        file.as_os_str(),
        sink.as_os_str(),
        "--fan-in".as_ref(),
        "line".as_ref(),
        "--json".as_ref(),
    ]);
    let size = |bytes: usize| {
        move |path: &Path| {
            let metadata = fs::metadata(path).ok();
            metadata.filter(|metadata| metadata.len() == bytes as u64)
        }
    };
    let first = lines('s', 1000).len();
    until("the lines of the file", || size(first)(&sink));
    // The command has the FIFO open, so this does not wait.
    let mut writer = fs::OpenOptions::new().write(true).open(path("g")).unwrap();
    writer.write_all(b"late\n").unwrap();
    until("the line of a FIFO", || size(first + 5)(&sink));
    drop(writer);
    // A writer that writes nothing.
    drop(fs::OpenOptions::new().write(true).open(path("f")).unwrap());
    let run = end(child);
    let account = run.ok().json();
    let written = |source: usize| account["sources"][source]["written"].clone();
    assert_eq!([written(0), written(1)], [json!(0), json!(5)]);
    assert_eq!(read(&sink), [&lines('s', 1000)[..], b"late\n"].concat());
}

/// As with one source.
#[test]
fn a_file_that_stays_empty_is_removed_after_a_failure() {
    let dir = dir();
    let sink = dir.path().join("d");
    // Address 0 is never mapped.
    let mut args: Vec<&OsStr> = ["/proc/self/mem"; 2].map(OsStr::new).into();
    args.extend([sink.as_os_str(), "--fan-in".as_ref(), "turn".as_ref()]);
    end(spawn(args)).fails(1, &["EIO"]);
    assert!(!sink.exists());
}

#[test]
fn a_signal_ends_the_wait_for_writers() {
    let dir = dir();
    let (f, g, sink) = (
        dir.path().join("f"),
        dir.path().join("g"),
        dir.path().join("d"),
    );
    fifo(&f);
    fifo(&g);
    let child = spawn([
        f.as_os_str(),
        g.as_os_str(),
        sink.as_os_str(),
        "--fan-in".as_ref(),
        "turn".as_ref(),
    ]);
    until("the sink", || sink.exists().then_some(()));
    signal(child.id(), rustix::process::Signal::TERM);
    end(child).fails(143, &["0 bytes read"]);
}

/// Little memory: the command fails with `ENOMEM`, or succeeds. It does not abort for lack
/// of a record's memory. A limit that leaves nothing at all makes any program abort.
#[test]
fn a_lack_of_memory_is_an_error() {
    let dir = dir();
    // Records of the longest length.
    let line = [vec![b'-'; (1 << 20) - 1], vec![b'\n']].concat();
    let data = line.repeat(3);
    let (a, b) = (file(&dir, "a", &data), file(&dir, "b", &data));
    let mut failed = 0;
    for kilobytes in (16_000..40_000).step_by(1000) {
        let run = run(std::process::Command::new("sh")
            .args([
                "-c",
                "ulimit -v \"$0\"; exec \"$@\"",
                &kilobytes.to_string(),
            ])
            .arg(env!("CARGO_BIN_EXE_cordboard"))
            .args([OsStr::new("splice"), a.as_os_str(), b.as_os_str()])
            .args(["/dev/null", "--fan-in", "line"]));
        let text = run.stderr();
        let sizes = text.split("memory allocation of ").skip(1);
        let sizes = sizes.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok());
        let largest = sizes.max().unwrap_or(0);
        assert!(largest < 64 << 10, "{kilobytes}: {text}");
        if run.code() == 1 {
            assert_ne!(run.stderr(), "", "{kilobytes}: the error is reported");
            failed += u32::from(run.stderr().contains("ENOMEM"));
        }
    }
    if failed == 0 {
        testkit::skip::here("no limit of memory leaves too little for a record only");
    }
}

#[test]
fn a_sink_keeps_its_contents_if_no_descriptor_is_left() {
    let dir = dir();
    let sources = ["a", "b"].map(|name| file(&dir, name, b"source"));
    let sink = file(&dir, "sink", b"old");
    let mut refused = 0;
    for limit in 6..14 {
        let mut shell = std::process::Command::new("sh");
        let script = r#"exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit -n "$0"; exec "$@""#;
        shell.args(["-c", script, &limit.to_string()]);
        shell.args([
            env!("CARGO_BIN_EXE_cordboard"),
            "splice",
            "--fan-in",
            "turn",
        ]);
        let run = run(shell.args(&sources).arg(&sink));
        if run.code() != 0 {
            refused += usize::from(run.stderr().contains("for the transfer"));
            assert_eq!(read(&sink), b"old", "{limit}: {}", run.stderr());
        }
    }
    assert_ne!(refused, 0);
}

/// Both ports are known before either has a connection, and the second peer may come first.
#[test]
fn a_source_that_listens_delays_no_other_one() {
    let mut child = spawn([
        "tcp-listen:127.0.0.1:0",
        "tcp-listen:127.0.0.1:0",
        "-",
        "--fan-in",
        "line",
    ]);
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut listening = || {
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let (_, address) = line.trim().rsplit_once(' ').expect(&line);
        address.to_owned()
    };
    let addresses = [listening(), listening()];
    for (address, line) in addresses.iter().rev().zip([b"two\n", b"one\n"]) {
        let mut peer = TcpStream::connect(address).unwrap();
        peer.write_all(line).unwrap();
    }
    let run = end(child);
    let mut lines: Vec<&[u8]> = run
        .ok()
        .stdout()
        .split_inclusive(|byte| *byte == b'\n')
        .collect();
    lines.sort_unstable();
    assert_eq!(lines, [b"one\n", b"two\n"]);
}
