//! Files and disks without space.

use std::process::Command;

use crate::common::*;

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
    let got = format!("d got {written} of 100000 bytes after the 6 it had");
    run.fails(1, &["File too large (EFBIG)", &got]);
    assert_eq!(run.json()["written"], written);
    assert!(read(&sink)[6..] == bytes(100_000)[..written as usize]);
}

/// Of a part of a file, the total is the size of the part.
#[test]
fn a_failed_part_tells_of_that_part() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(100_000));
    for (offset, size, of) in [(0, 90_000, 90_000), (30_000, 90_000, 70_000)] {
        let sink = dir.path().join(format!("d{offset}"));
        let script = r#"ulimit -f 32; exec "$@""#;
        let run = run(Command::new("sh")
            .args(["-c", script, "sh", env!("CARGO_BIN_EXE_cordboard"), "copy"])
            .args(["--size", &size.to_string()])
            .args(["--offset", &offset.to_string()])
            .args([&source, &sink]));
        let length = sink.metadata().unwrap().len();
        run.fails(1, &[&format!("holds {length} of {of} bytes")]);
    }
}

#[test]
fn a_disk_that_is_full() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(3 << 20));
    let mount = dir.path().join("m");
    let Some(_mounted) = mounted::Mounted::tmpfs("size=1m", &mount) else {
        return;
    };
    let sink = mount.join("d");
    let run = run(cordboard().args(["copy", "--json"]).args([&source, &sink]));
    let length = sink.metadata().map_or(0, |m| m.len());
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
