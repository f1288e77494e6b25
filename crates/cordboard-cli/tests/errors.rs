//! Bad input: one clear line, the right exit status, the right count, nothing
//! hung.
#![allow(missing_docs)]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use common::*;

/// Command, exit status, what the line says, side and errno of the report.
type Case<'a> = (&'a [&'a str], i32, &'a [&'a str], &'a str, &'a str);

#[test]
fn one_line_and_one_report_each() {
    let dir = dir();
    let there = file(&dir, "there", b"some bytes");
    let there = there.to_str().unwrap();
    let folder = dir.path().to_str().unwrap();
    let in_file = format!("{there}/x");
    let in_nothing = format!("{folder}/no/x");
    let long = format!("unix:{}", "x".repeat(200));
    let gone = format!("unix:{folder}/gone");
    let cases: &[Case] = &[
        (
            &["splice", "/no/such", "-"],
            1,
            &["/no/such: No such file or directory (ENOENT)", "source"],
            "source",
            "ENOENT",
        ),
        (
            &["splice", there, &in_nothing],
            1,
            &["ENOENT", "sink", "mkdir"],
            "sink",
            "ENOENT",
        ),
        (
            &["splice", there, &in_file],
            1,
            &["Not a directory (ENOTDIR)", "sink"],
            "sink",
            "ENOTDIR",
        ),
        (
            &["splice", folder, "-"],
            1,
            &["source is a directory"],
            "source",
            "EISDIR",
        ),
        (
            &["splice", there, folder],
            1,
            &["Is a directory (EISDIR)", "sink"],
            "sink",
            "EISDIR",
        ),
        (
            &["splice", there, "/dev/full"],
            1,
            &[
                "/dev/full: No space left on device (ENOSPC) at the sink, after 0 bytes",
                "free",
            ],
            "sink",
            "ENOSPC",
        ),
        (
            &["copy", there, "/dev/full"],
            1,
            &["/dev/full: No space left on device (ENOSPC)"],
            "sink",
            "ENOSPC",
        ),
        (
            &["copy", "/no/such", "/dev/null"],
            1,
            &["/no/such: No such file", "spelling"],
            "source",
            "ENOENT",
        ),
        (
            &["copy", there, &in_nothing],
            1,
            &["ENOENT", "sink"],
            "sink",
            "ENOENT",
        ),
        (
            &["cat", "/no/such"],
            1,
            &["/no/such: No such file"],
            "source",
            "ENOENT",
        ),
        (
            &["splice", &long, "-"],
            1,
            &["name too long (ENAMETOOLONG)", "107"],
            "source",
            "ENAMETOOLONG",
        ),
        (
            &["splice", &gone, "-"],
            1,
            &["(ENOENT) connecting the source", "listener"],
            "source",
            "ENOENT",
        ),
        (
            &["splice", "fd:999", "-"],
            1,
            &["fd:999: Bad file descriptor (EBADF)"],
            "source",
            "EBADF",
        ),
        (
            &["splice", there, "tcp-listen:192.0.2.1:9"],
            1,
            &["(EADDRNOTAVAIL)", "no address of this machine"],
            "sink",
            "EADDRNOTAVAIL",
        ),
        // Wrong usage that only the operands show.
        (
            &["splice", "tpc:host:1", "-"],
            2,
            &["tpc:host:1: `tpc:` is no scheme", "tcp:", "file:PATH"],
            "source",
            "EINVAL",
        ),
        (
            &["splice", "tcp:host:0", "-"],
            2,
            &["1 to 65535"],
            "source",
            "EINVAL",
        ),
        (
            &["splice", "-", "tcp:::1:80"],
            2,
            &["brackets"],
            "sink",
            "EINVAL",
        ),
        (&["splice", "", "-"], 2, &["empty"], "source", "EINVAL"),
    ];
    for (args, code, says, side, errno) in cases {
        let plain = call(*args);
        plain.fails(*code, says);
        assert!(
            plain.stderr().starts_with("cordboard: "),
            "{}",
            plain.stderr()
        );
        let with_json = run(cordboard().args(*args).arg("--json"));
        with_json.fails(*code, says);
        let json = with_json.json();
        assert_eq!(json["ended"], "error", "{args:?}");
        assert_eq!(json["failed"], *side, "{args:?}");
        assert_eq!(json["errno"], *errno, "{args:?}");
        assert_eq!(json["written"], 0, "{args:?}");
        assert_eq!(with_json.stderr().lines().count(), 2);
        assert!(plain.stdout().is_empty());
    }
    assert_eq!(read(there), b"some bytes");
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
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
        (&["splice", "-", "-", "--route", "sockmap"], "not built yet"),
        (&["cat", "--without", "sockmap"], "not built yet"),
        (&["splice", "-", "-", "--sparse", "maybe"], "maybe"),
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
        (&["splice", "-", "-", "-"], "unexpected"),
        (&["copy", "one"], "<DST>"),
        (&["copy"], "required"),
        (&["frobnicate"], "frobnicate"),
        (&["splice", "--frobnicate", "-", "-"], "--frobnicate"),
        (&["explain", "tpc:h:1", "-"], "no scheme"),
    ] {
        let run = call(args);
        assert_eq!(run.code(), 2, "{args:?}: {}", run.stderr());
        assert!(run.stderr().contains(says), "{args:?}: {}", run.stderr());
        assert!(run.stdout().is_empty());
    }
    let run = call::<&str>([]);
    assert_eq!(run.code(), 2);
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
        .fails(2, &[variable, "is no path"]);
        assert!(!sink.exists());
    }
}

#[test]
fn a_new_file_that_got_nothing_is_not_left_behind() {
    let dir = dir();
    let sink = dir.path().join("d");
    // Refused, and failed at the first byte.
    run(cordboard().args(["splice"]).args([dir.path(), &sink])).fails(1, &["directory"]);
    assert!(!sink.exists());
    let child = cordboard()
        .args(["splice", "--offset", "9", "-"])
        .arg(&sink)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    end(child).fails(1, &["cannot seek", "--offset"]);
    assert!(!sink.exists());
}

#[test]
fn a_refused_connection() {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let to = format!("tcp:{address}");
    let run = call(["splice", "-", &to, "--json"]);
    run.fails(
        1,
        &[
            "Connection refused (ECONNREFUSED) connecting the sink",
            "nobody listens",
        ],
    );
    assert_eq!(run.json()["errno"], "ECONNREFUSED");
}

#[test]
fn a_host_that_does_not_exist() {
    let run = call(["splice", "-", "tcp:no-such-host.invalid:80", "--json"]);
    run.fails(1, &["cannot find the host `no-such-host.invalid`"]);
    assert_eq!(run.json()["failed"], "sink");
}

#[test]
fn a_connection_that_is_reset() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let child = cordboard()
        .args(["splice", "/dev/zero", &format!("tcp:{address}"), "--json"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut [0; 1000]).unwrap();
    // What is unread makes the close a reset.
    drop(stream);
    let run = end(child);
    assert_eq!(run.code(), 1, "{}", run.stderr());
    let json = run.json();
    assert_eq!(json["failed"], "sink");
    assert!(
        ["ECONNRESET", "EPIPE"].contains(&json["errno"].as_str().unwrap()),
        "{json}"
    );
    assert!(json["written"].as_u64().unwrap() >= 1000);

    let mut child = cordboard()
        .args(["splice", &format!("tcp:{address}"), "-", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"x").unwrap();
    let mut byte = [0];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut byte)
        .unwrap();
    reset(stream);
    let run = end(child);
    run.fails(1, &["Connection reset by peer (ECONNRESET) at the source"]);
    assert_eq!(run.json()["failed"], "source");
}

/// Closes with a reset.
fn reset(stream: TcpStream) {
    let zero = Some(std::time::Duration::ZERO);
    rustix::net::sockopt::set_socket_linger(&stream, zero).unwrap();
}

#[test]
fn a_limit_on_the_size_of_files() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(100_000));
    for command in ["copy", "splice"] {
        let sink = dir.path().join(command);
        let script = r#"ulimit -f 32; exec "$@""#;
        // The shell counts in blocks of 512 or of 1024 bytes.
        let run = run(Command::new("sh")
            .args([
                "-c",
                script,
                "sh",
                env!("CARGO_BIN_EXE_cordboard"),
                command,
                "--json",
            ])
            .args([&source, &sink]));
        run.fails(1, &["File too large (EFBIG)", "ulimit -f"]);
        let json = run.json();
        assert_eq!(
            (&json["failed"], &json["errno"]),
            (&"sink".into(), &"EFBIG".into())
        );
        let length = sink.metadata().unwrap().len();
        assert!(length == 16384 || length == 32768, "{length}");
        assert_eq!(json["written"], length);
        assert!(read(&sink) == bytes(100_000)[..length as usize]);
        if command == "copy" {
            run.fails(1, &[&format!("holds {length} of 100000 bytes")]);
        }
    }
}

#[test]
fn a_failed_append_tells_what_this_copy_wrote() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(100_000));
    let sink = file(&dir, "d", b"before");
    let script = r#"ulimit -f 32; exec "$@""#;
    let run = run(Command::new("sh")
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_cordboard")])
        .args(["copy", "--append", "--json"])
        .args([&source, &sink]));
    let written = sink.metadata().unwrap().len() - 6;
    let got = format!("d got {written} of 100000 bytes, after the 6 it had");
    run.fails(1, &["File too large (EFBIG)", &got]);
    assert_eq!(run.json()["written"], written);
    assert!(read(&sink)[6..] == bytes(100_000)[..written as usize]);
}

#[test]
fn a_disk_that_is_full() {
    if !root("a file system of 1 MiB") {
        return;
    }
    let dir = dir();
    let source = file(&dir, "s", &bytes(3 << 20));
    let mount = dir.path().join("m");
    std::fs::create_dir(&mount).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "none"])
        .arg(&mount)
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no mount here");
        return;
    }
    let sink = mount.join("d");
    let run = run(cordboard().args(["copy", "--json"]).args([&source, &sink]));
    let length = sink.metadata().map_or(0, |m| m.len());
    let _ = Command::new("umount").arg(&mount).status();
    run.fails(
        1,
        &[
            "No space left on device (ENOSPC)",
            &format!("holds {length} of 3145728 bytes"),
        ],
    );
    assert_eq!(run.json()["written"], length);
    assert!(length > 0);
}

#[test]
fn files_that_may_not_be_read_or_written() {
    if !root("to become somebody else") {
        return;
    }
    let dir = dir();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let secret = file(&dir, "secret", b"secret");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let open = file(&dir, "open", b"open");
    // The binary may be where nobody else may look.
    let binary = dir.path().join("cordboard");
    std::fs::copy(env!("CARGO_BIN_EXE_cordboard"), &binary).unwrap();
    let nobody = |args: &[&std::path::Path]| {
        // A test that forks meanwhile may hold the new file open for writing.
        end(until("a start", || {
            Command::new(&binary)
                .args(["copy", "--json"])
                .args(args)
                .uid(65534)
                .gid(65534)
                .stderr(Stdio::piped())
                .spawn()
                .ok()
        }))
    };
    let run_ = nobody(&[&secret, "/dev/null".as_ref()]);
    run_.fails(
        1,
        &[
            "secret: Permission denied (EACCES) opening the source",
            "read permission",
        ],
    );
    let run_ = nobody(&[&open, &secret]);
    run_.fails(
        1,
        &[
            "secret: Permission denied (EACCES) opening the sink",
            "write permission",
        ],
    );
    let run_ = nobody(&[&open, &dir.path().join("new")]);
    run_.fails(1, &["EACCES", "directory"]);
    assert_eq!(run_.json()["failed"], "sink");
    assert_eq!(read(&secret), b"secret");
}

#[test]
fn a_program_that_runs_is_not_written_over() {
    let dir = dir();
    let program = dir.path().join("sleep");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let source = file(&dir, "s", b"x");
    // A test that forks meanwhile may hold the new file open for writing.
    let mut child = until("a start", || Command::new(&program).arg("60").spawn().ok());
    let run = run(cordboard().arg("copy").args([&source, &program]));
    child.kill().unwrap();
    child.wait().unwrap();
    run.fails(1, &["Text file busy (ETXTBSY)", "mv"]);
}

#[test]
fn control_characters_in_a_name_do_not_reach_the_terminal() {
    let run = call(["cat", "/no/\u{1b}[2Jsuch\nthing"]);
    run.fails(1, &["/no/\\u{1b}[2Jsuch\\nthing"]);
}

#[test]
fn a_peer_that_resets_before_it_has_acknowledged() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
    let address = listener.local_addr().unwrap();
    let dir = dir();
    let source = file(&dir, "s", &bytes(300_000));
    let child = cordboard()
        .args(["splice", "--json", source.to_str().unwrap()])
        .arg(format!("tcp:{address}"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut [0; 1000]).unwrap();
    // It sleeps in the transfer, or waits after it: lost is lost.
    until("sleep", || sleeping(child.id()).then_some(()));
    reset(stream);
    let run = end(child);
    run.fails(1, &["(ECONNRESET) at the sink"]);
    assert_eq!(run.json()["failed"], "sink");
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
fn nobody_reads_standard_error() {
    let full = || {
        let file = std::fs::File::options().write(true).open("/dev/full");
        file.unwrap()
    };
    for (args, code) in [
        (&["explain", "/nowhere", "-"][..], 1),
        (&["man", "/nowhere"], 2),
        (&["splice", "--json", "/nowhere", "-"], 1),
    ] {
        let child = cordboard().args(args).stderr(full()).spawn().unwrap();
        assert_eq!(end(child).code(), code, "{args:?}");
    }
    // Where it listens is not read either, nor that it still waits.
    let child = cordboard()
        .args(["splice", "tcp-listen:127.0.0.1:0", "/dev/null"])
        .stderr(full())
        .spawn()
        .unwrap();
    until("its handlers", || handles(child.id(), 10).then_some(()));
    until("sleep", || sleeping(child.id()).then_some(()));
    signal(child.id(), rustix::process::Signal::USR1);
    signal(child.id(), rustix::process::Signal::INT);
    assert_eq!(end(child).code(), 130);
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

/// A file that somebody else opened, and not for appending, would be written
/// over from its position on, whatever `--append` says.
#[test]
fn appending_cannot_be_had_of_a_file_that_was_opened_otherwise() {
    let dir = dir();
    let source = file(&dir, "source", b"abcd");
    let sink = file(&dir, "sink", b"0123456789");
    for (append, code, content) in [(false, 1, "0123456789"), (true, 0, "0123456789abcd")] {
        let out = std::fs::File::options()
            .write(true)
            .append(append)
            .open(&sink)
            .unwrap();
        let child = cordboard()
            .arg("splice")
            .arg(&source)
            .args(["-", "--append", "--json"])
            .stdout(out)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let run = end(child);
        assert_eq!(run.code(), code);
        assert_eq!(std::fs::read_to_string(&sink).unwrap(), content);
        if !append {
            assert_eq!(run.json()["errno"], "EINVAL");
        }
    }
}

/// What was against each path stands in the report too.
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
