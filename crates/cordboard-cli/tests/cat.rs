//! `cordboard cat`.
#![allow(missing_docs)]

mod common;

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use common::*;
use testkit::refuse::refuse;

const SIGPIPE: i32 = rustix::process::Signal::PIPE.as_raw();

#[test]
fn files_and_standard_input_in_order() {
    let dir = dir();
    let a = file(&dir, "a", &bytes(100_000));
    let b = file(&dir, "b", b"bee");
    let mut child = cordboard()
        .args(["cat", "--json"])
        .args([a.as_os_str(), "-".as_ref(), b.as_os_str()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start();
    feed(&mut child, b" between ");
    let run = end(child);
    assert_eq!(run.ok().json()["written"], 100_012);
    assert_eq!(
        run.stdout(),
        [&bytes(100_000)[..], b" between bee"].concat()
    );
}

/// As `(cordboard cat & cordboard cat &) >file` does.
#[test]
fn several_commands_write_to_one_file() {
    let dir = dir();
    let (path, size) = (dir.path().join("all"), 4 << 20);
    for _ in 0..4 {
        let all = std::fs::File::create(&path).unwrap();
        let children = [1, 2, 3].map(|byte| {
            let mut child = cordboard()
                .arg("cat")
                .stdin(Stdio::piped())
                .stdout(all.try_clone().unwrap())
                .start();
            let mut to = child.stdin.take().unwrap();
            let feeder = std::thread::spawn(move || to.write_all(&vec![byte; size]).unwrap());
            (child, feeder)
        });
        for (mut child, feeder) in children {
            feeder.join().unwrap();
            assert!(child.wait().unwrap().success());
        }
        let found = std::fs::read(&path).unwrap();
        let count = |byte| found.iter().filter(|b| **b == byte).count();
        assert_eq!([0, 1, 2, 3].map(count), [0, size, size, size]);
    }
}

#[test]
fn without_operands_standard_input() {
    let mut child = cordboard()
        .arg("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start();
    feed(&mut child, b"hello");
    assert_eq!(end(child).ok().stdout(), b"hello");
}

#[test]
fn goes_on_after_one_that_fails() {
    let dir = dir();
    let a = file(&dir, "a", b"a");
    let run = run(cordboard()
        .args(["cat", "--json"])
        .args([&dir.path().join("missing"), &a]));
    run.fails(1, &["missing: No such file or directory (ENOENT)"]);
    assert_eq!(run.stdout(), b"a");
    assert_eq!(run.json()["written"], 1);
    let run = call(["cat".as_ref(), dir.path().as_os_str(), a.as_os_str()]);
    run.fails(1, &["directory"]);
    assert_eq!(run.stdout(), b"a");
}

/// As with cat: no file has that name, and the others are written.
#[test]
fn an_empty_name_is_one_that_is_missing() {
    let dir = dir();
    let a = file(&dir, "a", b"a");
    for files in [&["".as_ref(), a.as_path()][..], &[&a, "".as_ref()]] {
        let run = run(cordboard().args(["cat", "--json"]).args(files));
        run.fails(1, &["'': No such file or directory (ENOENT)"]);
        assert_eq!(run.stdout(), b"a", "{files:?}");
        assert_eq!(run.json()["errno"], "ENOENT");
    }
}

#[test]
fn onto_its_own_end_is_refused() {
    let dir = dir();
    let path = file(&dir, "f", b"grow");
    let out = std::fs::File::options().append(true).open(&path).unwrap();
    let child = cordboard()
        .arg("cat")
        .arg(&path)
        .stdout(out)
        .stderr(Stdio::piped())
        .start();
    end(child).fails(1, &["forever"]);
    assert_eq!(read(&path), b"grow");
}

#[test]
fn parts() {
    let dir = dir();
    let a = file(&dir, "a", b"abcdef");
    let b = file(&dir, "b", b"ghi");
    let run_ = run(cordboard()
        .args(["cat", "--size", "8", "--json"])
        .args([&a, &b]));
    assert_eq!(run_.ok().stdout(), b"abcdefgh");
    assert_eq!(run_.json()["ended"], "size");
    let run_ = run(cordboard()
        .args(["cat", "--offset", "2", "--size", "3"])
        .arg(&a));
    assert_eq!(run_.ok().stdout(), b"cde");
    run(cordboard().args(["cat", "--offset", "2"]).args([&a, &b])).fails(2, &["--offset"]);
}

#[test]
fn made_up_files() {
    let run = call(["cat", "/proc/self/status"]);
    assert!(run.ok().stdout().starts_with(b"Name:\tcordboard"));
}

#[test]
fn a_closed_standard_output_is_an_error() {
    let dir = dir();
    let a = file(&dir, "a", b"a");
    let child = std::process::Command::new("sh")
        .args([
            "-c",
            r#""$0" cat "$1" >&-"#,
            env!("CARGO_BIN_EXE_cordboard"),
        ])
        .arg(&a)
        .stderr(Stdio::piped())
        .start();
    end(child).fails(1, &["standard output: Bad file descriptor (EBADF)"]);
    let child = std::process::Command::new("sh")
        .args(["-c", r#""$0" cat <&-"#, env!("CARGO_BIN_EXE_cordboard")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start();
    end(child).fails(1, &["standard input: Bad file descriptor (EBADF)"]);
}

#[test]
fn a_reader_that_has_gone() {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    drop(reader);
    let child = cordboard()
        .args(["cat", "--json", "/dev/zero", "/dev/zero"])
        .stdout(writer)
        .stderr(Stdio::piped())
        .start();
    let run = end(child);
    assert_eq!(run.0.status.signal(), Some(SIGPIPE));
    let json = run.json();
    assert_eq!(run.stderr().lines().count(), 1, "{}", run.stderr());
    assert_eq!(json["ended"], "error");
    assert_eq!(json["failed"], "sink");
    assert_eq!(json["errno"], "EPIPE");
    assert_eq!(json["written"], 0);
}

/// `yes | head` prints nothing on standard error, and neither does this
/// command.
#[test]
fn whoever_prints_dies_of_sigpipe_without_a_word() {
    let dir = dir();
    let missing = dir.path().join("missing");
    let commands: [&[&str]; 6] = [
        &["cat", "/dev/zero"],
        &["splice", "/dev/zero", "-"],
        &["splice", "/dev/zero", "fd:1", "--hash=crc32"],
        &["explain", "/dev/zero", "/dev/null"],
        &["--help"],
        &["man"],
    ];
    let without_a_reader = |command: &mut std::process::Command| {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        let child = command.stdout(writer).stderr(Stdio::piped());
        end(child.start())
    };
    for command in commands {
        let run = without_a_reader(cordboard().args(command));
        assert_eq!(run.0.status.signal(), Some(SIGPIPE), "{command:?}");
        assert_eq!(run.stderr(), "", "{command:?}");
    }
    // Standard output by name. It is opened while it has a reader.
    for command in [["copy", "/dev/stdout"], ["splice", "/proc/self/fd/1"]] {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut called = cordboard();
        called.args([command[0], "/dev/zero", command[1], "--size", "1G"]);
        let child = called.stdout(writer).stderr(Stdio::piped()).start();
        drop(called);
        reader.read_exact(&mut [0]).unwrap();
        drop(reader);
        let run = end(child);
        assert_eq!(run.0.status.signal(), Some(SIGPIPE), "{command:?}");
        assert_eq!(run.stderr(), "", "{command:?}");
    }
    // The earlier problem is reported.
    let run = without_a_reader(cordboard().arg("cat").arg(&missing).arg("/dev/zero"));
    assert_eq!(run.0.status.signal(), Some(SIGPIPE));
    assert_eq!(run.stderr().lines().count(), 1, "{}", run.stderr());
    // Like cat with the signal ignored or blocked.
    let script = r#"trap "" PIPE; exec "$@""#;
    let ignoring = ["-c", script, "sh", env!("CARGO_BIN_EXE_cordboard")];
    for command in &commands[..4] {
        let mut shell = std::process::Command::new("sh");
        let run = without_a_reader(shell.args(ignoring).args(*command));
        run.fails(1, &["Broken pipe (EPIPE)"]);
    }
    let run = without_a_reader(
        std::process::Command::new("env")
            .args(["--block-signal=PIPE", env!("CARGO_BIN_EXE_cordboard")])
            .args(commands[0]),
    );
    if run.code() != 125 {
        run.fails(1, &["standard output: Broken pipe (EPIPE)"]);
    }
    // The reader of a sink other than standard output is reported.
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    drop(reader);
    let mut shell = std::process::Command::new("sh");
    let script = r#"exec "$@" 3>&1 1>&2"#;
    let child = shell
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_cordboard")])
        .args(["splice", "/dev/zero", "fd:3"])
        .stdout(writer)
        .stderr(Stdio::piped());
    end(child.start()).fails(1, &["fd:3: Broken pipe (EPIPE)"]);
}

/// No byte of such a file is read, and everything else is done as for any file.
#[test]
fn a_size_of_nothing_or_that_is_used_up() {
    let dir = dir();
    let a = file(&dir, "a", b"four");
    let missing = dir.path().join("missing");
    let json = |run: &Run| {
        let mut json = run.json();
        json.as_object_mut().unwrap().remove("seconds");
        json
    };
    for flags in [&[][..], &["--hash", "crc32"], &["--zstd"], &["--unzstd"]] {
        let with = |verb: &str, more: &[&str]| {
            let mut command = cordboard();
            command.args([verb, "--json", "--size", "0"]).args(flags);
            run(command.arg(&a).args(more))
        };
        let (cat, splice) = (with("cat", &[]), with("splice", &["-"]));
        assert_eq!(cat.code(), splice.code(), "{flags:?}");
        assert_eq!(cat.stdout(), splice.stdout(), "{flags:?}");
        assert_eq!(json(&cat), json(&splice), "{flags:?}");
        let said = |run: &Run| run.stderr().lines().next().map(String::from);
        if flags.contains(&"--hash") {
            assert_eq!(json(&cat)["ended"], "size");
            assert!(said(&cat).unwrap().starts_with("00000000  "));
            assert_eq!(said(&cat), said(&splice));
        }
    }
    // A FIFO is not waited for.
    let silent = dir.path().join("fifo");
    fifo(&silent);
    let cut = run(cordboard().args(["cat", "--size", "3"]).args([&a, &silent]));
    assert_eq!(cut.ok().stdout(), b"fou");
    // A hash and a frame of each.
    let two = |flag: &[&str]| {
        let mut command = cordboard();
        command.args(["cat", "--json", "--size", "4"]).args(flag);
        run(command.args([&a, &a]))
    };
    let run_ = two(&["--hash", "crc32"]);
    assert_eq!(run_.ok().stdout(), b"four");
    let stderr = run_.stderr();
    let sums: Vec<&str> = stderr
        .lines()
        .map(|l| l.split("  ").next().unwrap())
        .collect();
    assert_eq!(sums[..2], ["90c1667d", "00000000"]);
    assert_eq!(
        (&json(&run_)["read"], &json(&run_)["ended"]),
        (&4.into(), &"size".into())
    );
    let packed = two(&["--zstd"]);
    let mut child = cordboard()
        .args(["splice", "--unzstd", "--json", "-", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start();
    feed(&mut child, packed.ok().stdout());
    assert_eq!(end(child).ok().stdout(), b"four");
    // A file that cannot be opened is reported.
    let of = |size: &str, files: &[&std::path::Path]| {
        run(cordboard()
            .args(["cat", "--json", "--size", size])
            .args(files))
    };
    for (size, files, text) in [
        ("0", &[missing.as_path()][..], &b""[..]),
        ("3", &[&a, &missing], b"fou"),
        ("3", &[&a, &missing, &a], b"fou"),
        ("3", &[&missing, &a], b"fou"),
    ] {
        let run = of(size, files);
        run.fails(1, &["missing: No such file or directory (ENOENT)"]);
        assert_eq!(run.stdout(), text);
        assert_eq!(json(&run)["errno"], "ENOENT");
    }
    let child = std::process::Command::new("sh")
        .args([
            "-c",
            r#""$0" cat --size 0 - <&-"#,
            env!("CARGO_BIN_EXE_cordboard"),
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start();
    end(child).fails(1, &["standard input: Bad file descriptor (EBADF)"]);
}

/// After a file that ended by the limit, the next file is not read.
#[test]
fn an_idle_limit_ends_it_whatever_would_follow() {
    let dir = dir();
    let next = file(&dir, "next", b"next");
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"first").unwrap();
    let mut command = cordboard();
    command.args(["cat", "--json", "--idle", "0.05", "-"]);
    let run = run(command.arg(&next).stdin(reader));
    assert_eq!(run.ok().stdout(), b"first");
    let json = run.json();
    assert_eq!(
        (&json["ended"], &json["written"]),
        (&"idle".into(), &5.into())
    );
    drop(writer);
}

/// A container can mount any text over the files that contain the limits of
/// pipes, and a read of them may be truncated.
#[test]
fn odd_limits_of_pipes() {
    if !can_mount() {
        return;
    }
    let dir = dir();
    // It fits into a pipe without a reader.
    let data = bytes(60_000);
    let source = file(&dir, "s", &data);
    let script = r#"mount --bind "$0" "$1" && shift && exec "$@""#;
    let whole = ["0\n", "1\n", "4095\n", "18446744073709551615\n"];
    let odd = [
        "",
        "\n",
        "1",
        "-1\n",
        "1 2\n",
        "none\n",
        "99999999999999999999999\n",
    ];
    for limit in ["pipe-max-size", "pipe-user-pages-soft"] {
        for text in whole.iter().chain(&odd) {
            let says = file(&dir, "limit", text.as_bytes());
            let mut child = Command::new("unshare")
                .args(["--mount", "sh", "-c", script])
                .arg(&says)
                .arg(format!("/proc/sys/fs/{limit}"))
                .arg(env!("CARGO_BIN_EXE_cordboard"))
                .args(["cat", "--json", "-"])
                .arg(&source)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .start();
            // A child that has ended explains why.
            let _ = child.stdin.take().unwrap().write_all(&data);
            let run = end(child);
            assert_eq!(run.code(), 0, "{limit}: {text:?}: {}", run.stderr());
            assert_eq!(run.json()["written"], 120_000, "{limit}: {text:?}");
            assert!(
                run.stdout() == [&data[..], &data].concat(),
                "{limit}: {text:?}"
            );
        }
    }
}

/// `uname(2)` fails only if a filter refuses it.
#[test]
fn a_release_that_nobody_tells() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(60_000));
    for errno in [libc::EPERM, libc::ENOSYS] {
        let child = apart(|| {
            refuse(&[libc::SYS_uname], errno);
            let mut command = cordboard();
            command.args(["cat", "--json"]).arg(&source);
            let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.start()
        });
        let run = end(child);
        assert_eq!(run.ok().json()["written"], 60_000);
        assert!(run.stdout() == bytes(60_000));
    }
}
