//! Operands that cannot be opened, or not for this use.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::common::*;

/// Command, exit status, text of the line, side and errno of the report.
type Case<'a> = (&'a [&'a str], i32, &'a [&'a str], &'a str, &'a str);

#[test]
fn one_line_and_one_report_each() {
    const LARGEST: &str = "9223372036854775807";
    let dir = dir();
    let there = file(&dir, "there", b"some bytes");
    let there = there.to_str().unwrap();
    let folder = dir.path().to_str().unwrap();
    let in_file = format!("{there}/x");
    let in_nothing = format!("{folder}/no/x");
    let no_folder = format!("{folder}/no/");
    let file_as_folder = format!("{there}/");
    let long = format!("unix-listen:{}", "x".repeat(200));
    let gone = format!("unix:{folder}/gone");
    let new = format!("{folder}/new");
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
            &["splice", there, &no_folder],
            1,
            &["no/: directory does not exist", "mkdir"],
            "sink",
            "ENOTDIR",
        ),
        (
            &["copy", there, &no_folder],
            1,
            &["no/: directory does not exist", "mkdir"],
            "sink",
            "ENOTDIR",
        ),
        (
            &["splice", there, &file_as_folder],
            1,
            &["there/: is not a directory", "overwrite"],
            "sink",
            "ENOTDIR",
        ),
        (
            &["copy", there, &file_as_folder],
            1,
            &["there/: is not a directory", "overwrite"],
            "sink",
            "ENOTDIR",
        ),
        (
            &["splice", "/proc/self/mem", "-"],
            1,
            &[
                "(EIO) at the source, after 0 bytes",
                "no data at this offset",
            ],
            "source",
            "EIO",
        ),
        (
            &["splice", there, "/proc/self/mem"],
            1,
            &[
                "(EIO) at the sink, after 0 bytes",
                "does not accept this write",
            ],
            "sink",
            "EIO",
        ),
        (
            &["copy", there, "file:"],
            2,
            &["a path is required"],
            "sink",
            "EINVAL",
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
            &["(ENOENT) connecting to the source", "listener"],
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
            &["(EADDRNOTAVAIL)", "not an address of this machine"],
            "sink",
            "EADDRNOTAVAIL",
        ),
        // Wrong usage that only the operands reveal.
        (
            &["splice", "tpc:host:1", "-"],
            2,
            &["tpc:host:1: unknown scheme tpc:", "tcp:", "file:PATH"],
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
        // The offset is valid, but the bytes at it are not.
        (
            &["splice", "--sink-offset", LARGEST, there, &new],
            1,
            &["new: Invalid argument (EINVAL) at the sink", "2^63-1"],
            "sink",
            "EINVAL",
        ),
        (
            &[
                "splice",
                "--buffer",
                "64K",
                "--sink-offset",
                LARGEST,
                there,
                &new,
            ],
            1,
            &["new: Invalid argument (EINVAL) at the sink", "2^63-1"],
            "sink",
            "EINVAL",
        ),
        (
            &[
                "splice",
                "--fan-in",
                "turn",
                "--sink-offset",
                LARGEST,
                there,
                "/dev/null",
                &new,
            ],
            1,
            &["new: Invalid argument (EINVAL) at the sink", "2^63-1"],
            "sink",
            "EINVAL",
        ),
        (
            &["copy", "--sink-offset", LARGEST, there, &new],
            1,
            &["new: Invalid argument (EINVAL) at the sink", "2^63-1"],
            "sink",
            "EINVAL",
        ),
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
        .start();
    end(child).fails(1, &["cannot seek", "--offset"]);
    assert!(!sink.exists());
}

/// The kernel grants no lease while another descriptor of it is open.
#[test]
fn a_new_file_that_another_may_have_open_is_left_and_told_of() {
    for stop in [false, true] {
        let dir = dir();
        let sink = dir.path().join("d");
        let mut child = cordboard()
            .args(["splice", "--unzstd", "-"])
            .arg(&sink)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .start();
        let _reads = until("the sink", || std::fs::File::open(&sink).ok());
        let left = "d was not removed, as another process may have it open";
        match stop {
            false => {
                feed(&mut child, b"nothing of the kind");
                end(child).fails(1, &["not zstd data", left, "EAGAIN"]);
            }
            true => {
                signal(child.id(), rustix::process::Signal::INT);
                let run = end(child);
                assert_eq!(run.code(), 130);
                assert!(run.stderr().contains(left), "{}", run.stderr());
            }
        }
        assert_eq!(read(&sink), b"");
    }
}

#[test]
fn files_that_may_not_be_read_or_written() {
    if !root("to become another user") {
        return;
    }
    let dir = dir();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let secret = file(&dir, "secret", b"secret");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let open = file(&dir, "open", b"open");
    // The binary may be in a directory without access for others.
    let binary = dir.path().join("cordboard");
    install(env!("CARGO_BIN_EXE_cordboard"), &binary);
    let as_nobody = |args: &[&std::path::Path]| {
        let mut command = Command::new(&binary);
        command.args(["copy", "--json"]).args(args);
        command.uid(65534).gid(65534).stderr(Stdio::piped());
        end(command.start())
    };
    let run_ = as_nobody(&[&secret, "/dev/null".as_ref()]);
    run_.fails(
        1,
        &[
            "secret: Permission denied (EACCES) opening the source",
            "read permission",
        ],
    );
    // The file may be read, but its directory may not be searched.
    let closed = dir.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    let within = file(&dir, "closed/within", b"open");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o444)).unwrap();
    let run_ = as_nobody(&[&within, "/dev/null".as_ref()]);
    run_.fails(
        1,
        &["within: Permission denied (EACCES)", "search permission"],
    );
    let run_ = as_nobody(&[&open, &secret]);
    run_.fails(
        1,
        &[
            "secret: Permission denied (EACCES) opening the sink",
            "write permission",
        ],
    );
    let run_ = as_nobody(&[&open, &dir.path().join("new")]);
    run_.fails(1, &["EACCES", "directory"]);
    assert_eq!(run_.json()["failed"], "sink");
    assert_eq!(read(&secret), b"secret");
    // The sink has the mode of the source, and cannot be opened again: the side
    // is unknown, and none is reported.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::write(&open, bytes(1 << 20)).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o444)).unwrap();
    let direct = ["--route", "direct"].map(std::path::Path::new);
    let run_ = as_nobody(&[direct[0], direct[1], &open, &dir.path().join("new")]);
    if run_.json()["errno"] != "EACCES" {
        testkit::skip::here(format!("no direct I/O here: {}", run_.stderr()));
        return;
    }
    let says =
        "new: no usable data path is left: direct: Permission denied (EACCES), after 0 bytes";
    run_.fails(1, &[says, "see --route and --without"]);
    let stderr = run_.stderr();
    assert!(
        run_.json()["failed"].is_null() && !stderr.contains("at the"),
        "{stderr}"
    );
}

#[test]
fn a_program_that_runs_is_not_written_over() {
    let dir = dir();
    let program = dir.path().join("sleep");
    install("/bin/sleep", &program);
    let source = file(&dir, "s", b"x");
    let _child = Command::new(&program).arg("60").start();
    let run = run(cordboard().arg("copy").args([&source, &program]));
    run.fails(
        1,
        &[
            "Text file busy (ETXTBSY)",
            "running program",
            "mv",
            "swap file",
        ],
    );
}

/// An inherited file that is not open for appending would be overwritten from
/// its position, despite `--append`.
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
            .start();
        let run = end(child);
        assert_eq!(run.code(), code);
        assert_eq!(std::fs::read_to_string(&sink).unwrap(), content);
        if !append {
            assert_eq!(run.json()["errno"], "EINVAL");
            let says = "standard output: is not open for appending (EINVAL); use >>FILE";
            run.fails(1, &[says]);
        }
    }
}

/// As a service may inherit it, whose supervisor accepts no connections (inetd's `wait`).
#[test]
fn a_listening_socket_carries_no_bytes() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let inherited = || Stdio::from(std::os::fd::OwnedFd::from(listener.try_clone().unwrap()));
    for (operands, side) in [
        (["fd:0", "/dev/null"], "source"),
        (["/dev/zero", "fd:0"], "sink"),
        (["-", "/dev/null"], "source"),
    ] {
        let mut command = cordboard();
        command.arg("splice").args(operands).arg("--json");
        let run = run(command.stdin(inherited()));
        let says = format!("the {side} is a listening socket: accept a connection first");
        run.fails(1, &[&says]);
        let json = run.json();
        assert_eq!(json["failed"], side, "{operands:?}");
        assert_eq!(json["errno"], "EINVAL", "{operands:?}");
        assert_eq!(json["written"], 0, "{operands:?}");
    }
}

/// It would be written from its first byte on.
#[test]
fn a_device_has_no_end_to_add_to() {
    let dir = dir();
    let source = file(&dir, "source", b"abcd");
    let disk = file(&dir, "disk", &[b'-'; 1 << 20]);
    let Some(attached) = mounted::Attached::new(&disk) else {
        return;
    };
    let device = attached.device();
    let mut runs = Vec::new();
    for command in ["splice", "copy"] {
        runs.push(run(cordboard()
            .args([command, "--append", "--json"])
            .arg(&source)
            .arg(device)));
    }
    let open = std::fs::File::options().append(true).open(device).unwrap();
    let child = cordboard()
        .args(["splice", "--append", "--json"])
        .arg(&source)
        .arg("-")
        .stdout(open)
        .stderr(Stdio::piped())
        .start();
    runs.push(end(child));
    // What was written to the device is in the file then.
    drop(attached);
    for run in runs {
        run.fails(1, &["block device", "cannot be appended to", "--append"]);
        assert_eq!(run.json()["errno"], "EINVAL");
    }
    assert!(read(&disk) == [b'-'; 1 << 20]);
}
