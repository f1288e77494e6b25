//! What is printed, and readers that are missing.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};

use rustix::io::ioctl_fionbio;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::common::*;

#[test]
fn control_characters_in_a_name_do_not_reach_the_terminal() {
    let run = call(["cat", "/no/\u{1b}[2Jsuch\nthing"]);
    run.fails(1, &["/no/\\u{1b}[2Jsuch\\nthing"]);
}

#[test]
fn the_report_has_its_fields_in_order() {
    let run = call(["splice", "--json", "--size", "3", "/dev/zero", "/dev/null"]);
    let line = run.ok().stderr();
    let start =
        r#"{"read":3,"written":3,"stranded":0,"ended":"size","failed":null,"errno":null,"path":[""#;
    assert!(line.starts_with(start), "{line}");
    assert!(
        line.contains(r#""],"declined":["#) && line.contains(r#"],"seconds":0"#),
        "{line}"
    );
    assert!(line.ends_with("}\n"));
}

#[test]
fn standard_error_without_a_reader() {
    let full = || {
        let file = std::fs::File::options().write(true).open("/dev/full");
        file.unwrap()
    };
    for (args, code) in [
        (&["explain", "/nowhere", "-"][..], 1),
        (&["man", "/nowhere"], 2),
        (&["splice", "--json", "/nowhere", "-"], 1),
    ] {
        let child = cordboard().args(args).stderr(full()).start();
        assert_eq!(end(child).code(), code, "{args:?}");
    }
    // Its address is not read either, nor that it still waits.
    let child = cordboard()
        .args(["splice", "tcp-listen:127.0.0.1:0", "/dev/null"])
        .stderr(full())
        .start();
    until("its handlers", || handles(child.id(), 10).then_some(()));
    until("sleep", || sleeping(child.id()).then_some(()));
    signal(child.id(), rustix::process::Signal::USR1);
    signal(child.id(), rustix::process::Signal::INT);
    assert_eq!(end(child).code(), 130);
}

/// The reasons against each path are in the report too.
#[test]
fn a_path_that_does_not_take_the_pair_is_told() {
    let dir = dir();
    let source = file(&dir, "source", b"abcd");
    let run = run(cordboard()
        .arg("splice")
        .arg(&source)
        .args(["-", "--route", "clone", "--json"]));
    assert_eq!(run.code(), 1);
    assert_eq!(run.json()["declined"][0]["path"], "clone");
}

/// A result requested by an option that could not be written is a failure,
/// whatever happened to the bytes. Progress and the summary are not results.
#[test]
fn what_was_asked_for_and_could_not_be_written() {
    let dir = dir();
    let source = file(&dir, "source", b"abcd");
    let pipe = || {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        Stdio::from(writer)
    };
    let full = || {
        let file = std::fs::File::options().write(true).open("/dev/full");
        Stdio::from(file.unwrap())
    };
    let ends: [&dyn Fn() -> Stdio; 2] = [&pipe, &full];
    for (option, code) in [
        ("--hash=crc32", 1),
        ("--json", 1),
        ("--progress=always", 0),
        ("--sync", 0),
    ] {
        for command in ["splice", "copy", "cat"] {
            if (command, option) == ("cat", "--sync") {
                continue;
            }
            for stderr in ends {
                let sink = dir.path().join("sink");
                let child = cordboard()
                    .args([command, option])
                    .arg(&source)
                    .args((command != "cat").then_some(&sink))
                    .stdout(Stdio::piped())
                    .stderr(stderr())
                    .start();
                let run = end(child);
                assert_eq!(run.code(), code, "{command} {option}");
                match command {
                    "cat" => assert_eq!(run.stdout(), b"abcd"),
                    _ => assert_eq!(read(&sink), b"abcd"),
                }
            }
        }
    }
    // Its parent has closed it.
    let closed = run(std::process::Command::new("sh")
        .args(["-c", r#"exec "$0" cat --json "$1" 2>&-"#])
        .args([env!("CARGO_BIN_EXE_cordboard").as_ref(), source.as_os_str()]));
    assert_eq!((closed.code(), closed.stdout()), (1, &b"abcd"[..]));
}

/// A file size limit (`RLIMIT_FSIZE`) is an error of that file, and no signal
/// ends the command.
#[test]
fn what_was_asked_for_goes_to_a_file_that_may_not_grow() {
    let dir = dir();
    let source = file(&dir, "s", b"abc");
    let full = file(&dir, "full", &bytes(4096));
    let out = || File::options().append(true).open(&full).unwrap();
    let limited = |args: &[&str]| {
        let mut shell = std::process::Command::new("sh");
        let script = r#"ulimit -f 1; exec "$@""#;
        shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_cordboard")]);
        shell.args(args);
        shell
    };
    let sink = dir.path().join("d");
    let names = [&source, &sink].map(|path| path.to_str().unwrap());
    let mut copy = limited(&["copy", "--json", names[0], names[1]]);
    assert_eq!(end(copy.stderr(out()).start()).code(), 1);
    assert_eq!(read(&sink), b"abc");
    let mut man = limited(&["man", "copy"]);
    let man = man.stdout(out()).stderr(Stdio::piped()).start();
    end(man).fails(1, &["standard output: File too large (EFBIG)"]);
    assert_eq!(read(&full).len(), 4096);
}

/// A descriptor that is open for reading only, or was closed, takes nothing:
/// the result is lost, and EBADF is not ignored.
#[test]
fn what_was_asked_for_goes_to_a_descriptor_that_takes_nothing() {
    let dir = dir();
    let source = file(&dir, "source", b"abcd");
    let path = source.to_str().unwrap();
    let sink = dir.path().join("sink");
    for option in ["--json", "--hash=blake3"] {
        let mut copy = cordboard();
        copy.args(["copy", option]).args([&source, &sink]);
        let child = copy.stderr(File::open(&source).unwrap()).start();
        assert_eq!(end(child).code(), 1, "{option}");
        assert_eq!(read(&sink), b"abcd");
    }
    let cases: [&[&str]; 6] = [
        &["explain", path, "/dev/null"],
        &["explain", "--json", path, "/dev/null"],
        &["man", "splice"],
        &["completions", "bash"],
        &["--help"],
        &["--version"],
    ];
    for args in cases {
        let mut whole = cordboard();
        whole.args(args).stderr(Stdio::piped());
        let child = whole.stdout(File::open(&source).unwrap()).start();
        end(child).fails(1, &["standard output: ", "(EBADF)"]);
        let closed = run(std::process::Command::new("sh")
            .args(["-c", r#"exec "$0" "$@" >&-"#])
            .arg(env!("CARGO_BIN_EXE_cordboard"))
            .args(args));
        closed.fails(1, &["standard output: ", "(EBADF)"]);
    }
}

/// A pipe that returns EAGAIN: its read end, its write end, and the bytes in
/// it.
fn full_pipe() -> (OwnedFd, OwnedFd, usize) {
    let (reader, writer) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap();
    let mut there = 0;
    while let Ok(n) = rustix::io::write(&writer, &[b'.'; 4096]) {
        there += n;
    }
    (reader, writer, there)
}

/// Waits until it is blocked, or has ended.
fn waits(child: &mut Child) {
    until("its wait", || {
        let ended = child.try_wait().unwrap().is_some();
        (ended || sleeping(child.id())).then_some(())
    });
}

/// The bytes in a pipe behind those that were in it before.
fn behind(reader: OwnedFd, there: usize) -> String {
    ioctl_fionbio(&reader, false).unwrap();
    let mut all = Vec::new();
    File::from(reader).read_to_end(&mut all).unwrap();
    String::from_utf8(all.split_off(there)).unwrap()
}

#[test]
fn a_standard_error_without_room_is_waited_for() {
    let dir = dir();
    let source = file(&dir, "source", b"abcd");
    for (command, code, lines) in [
        ("splice", 0, 2),
        ("copy", 0, 2),
        ("cat", 0, 2),
        ("man", 2, 1),
        ("--bogus", 2, 5),
    ] {
        let (reader, writer, there) = full_pipe();
        let sink = dir.path().join("sink");
        let mut whole = cordboard();
        whole.arg(command).stdout(Stdio::null()).stderr(writer);
        let moves = !["man", "--bogus"].contains(&command);
        if moves {
            whole.args(["--json", "--hash=crc32"]);
        }
        whole.arg(&source);
        whole.args(["splice", "copy"].contains(&command).then_some(&sink));
        let mut child = whole.start();
        // The ends that this process holds.
        drop(whole);
        waits(&mut child);
        let said = behind(reader, there);
        assert_eq!(end(child).code(), code, "{command}: {said}");
        assert_eq!(said.lines().count(), lines, "{command}: {said}");
        let ended = said.contains(r#""written":4,"stranded":0,"ended":"eof""#);
        assert_eq!(ended, moves, "{command}: {said}");
    }
}

#[test]
fn a_standard_output_without_room_is_waited_for() {
    let cases: [&[&str]; 5] = [
        &["man", "splice"],
        &["--help"],
        &["help", "copy"],
        &["copy", "-h"],
        &["--version"],
    ];
    for words in cases {
        let (reader, writer, there) = full_pipe();
        let mut whole = cordboard();
        whole.args(words).stdout(writer);
        let mut child = whole.stderr(Stdio::piped()).start();
        drop(whole);
        waits(&mut child);
        let said = behind(reader, there);
        end(child).ok();
        assert_eq!(said.as_bytes(), call(words).stdout(), "{words:?}");
    }
}

#[test]
fn two_signals_end_the_wait_for_standard_error() {
    let dir = dir();
    let source = file(&dir, "source", b"abcd");
    let (_reader, writer, _) = full_pipe();
    let mut child = cordboard()
        .args(["cat", "--json"])
        .arg(&source)
        .stdout(Stdio::null())
        .stderr(writer)
        .start();
    until("its handlers", || {
        let ended = child.try_wait().unwrap().is_some();
        (ended || handles(child.id(), 15)).then_some(())
    });
    waits(&mut child);
    // One that follows the first immediately counts as the same.
    let status = until("its end", || {
        signal(child.id(), rustix::process::Signal::TERM);
        child.try_wait().unwrap()
    });
    assert_eq!(status.code(), Some(143));
}

/// The library's text names a call of its interface, which is of no help here.
#[test]
fn the_remedy_for_too_few_descriptors_is_one_of_the_shell() {
    let dir = dir();
    let source = file(&dir, "s", b"source");
    let sinks = ["a", "b"].map(|name| file(&dir, name, b"old"));
    let messages: Vec<String> = (6..12)
        .map(|limit| {
            let mut shell = std::process::Command::new("sh");
            let script = r#"exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit -n "$0"; exec "$@""#;
            shell.args(["-c", script, &limit.to_string()]);
            shell.args([env!("CARGO_BIN_EXE_cordboard"), "splice"]);
            let run = run(shell.arg(&source).args(&sinks));
            if run.code() != 0 {
                // The sinks are emptied only once the transfer can be started.
                let kept = sinks.each_ref().map(read);
                assert_eq!(kept, [b"old", b"old"], "{limit}: {}", run.stderr());
            }
            run.stderr()
        })
        .collect();
    let all = messages.concat();
    let says = "no descriptor is available for the transfer: Too many open files (EMFILE); \
                raise the limit of open files (ulimit -n)\n";
    assert!(all.contains(says), "{all}");
}
