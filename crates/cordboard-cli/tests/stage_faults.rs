//! The messages if the bytes are not what a stage accepts, or are lost.
#![allow(missing_docs)]

mod common;

use std::process::{Command, Stdio};

use common::*;

#[test]
fn what_is_no_zstd_data_says_so() {
    let dir = dir();
    let plain = file(&dir, "plain", b"nothing of the kind");
    let sink = dir.path().join("d");
    let args = ["copy", "--json", "--unzstd"];
    let failed = run(cordboard().args(args).args([&plain, &sink]));
    failed.fails(1, &["plain: not zstd data", "d was not created"]);
    let json = failed.json();
    assert_eq!(
        (&json["failed"], &json["errno"]),
        (&"source".into(), &"EBADMSG".into())
    );
    assert!(
        json["stages"][0]["fault"]
            .as_str()
            .unwrap()
            .contains("not zstd data")
    );
    let packed = run(cordboard()
        .args(["cat", "--zstd"])
        .arg(file(&dir, "s", &bytes(300_000))));
    let packed = packed.ok().stdout();
    let cut = file(&dir, "cut", &packed[..packed.len() - 100]);
    let failed = run(cordboard().args(args).args([&cut, &sink]));
    failed.fails(
        1,
        &["truncated after", "decoded before the fault were written"],
    );
    let written = failed.json()["written"].as_u64().unwrap();
    assert_eq!(written, read(&sink).len() as u64);
    assert!(written > 0 && read(&sink) == bytes(300_000)[..written as usize]);
}

#[test]
fn a_frame_that_the_size_cuts_off() {
    let dir = dir();
    let packed = run(cordboard()
        .args(["cat", "--zstd"])
        .arg(file(&dir, "s", &bytes(3000))));
    let packed = file(&dir, "p", packed.ok().stdout());
    let length = read(&packed).len();
    let sink = dir.path().join("d");
    let unpack = |command: &str, size: usize| {
        run(cordboard()
            .args([command, "--unzstd", "--size", &size.to_string()])
            .arg(&packed)
            .args((command != "cat").then_some(&sink)))
    };
    for command in ["splice", "copy", "cat"] {
        let cut = unpack(command, length - 1);
        cut.fails(1, &["truncated after", "; --size counts compressed bytes"]);
        unpack(command, length).ok();
    }
    // The size is not the reason for the truncation.
    std::fs::write(&packed, &read(&packed)[..length - 2]).unwrap();
    for size in [length - 2, length] {
        let cut = unpack("splice", size);
        cut.fails(
            1,
            &["truncated after", "decoded before the fault were written"],
        );
        assert!(!cut.stderr().contains("--size"));
    }
}

/// The lost bytes are not those read: 27 bytes become a million.
#[test]
fn what_was_made_and_is_lost() {
    let dir = dir();
    let source = file(&dir, "s", &[0; 1_000_000]);
    let packed = run(cordboard().args(["cat", "--zstd"]).arg(&source));
    let packed = file(&dir, "p", packed.ok().stdout());
    let lost = |command: &str| {
        run(cordboard()
            .args(["splice", "--json", command])
            .arg(&packed)
            .arg("/dev/full"))
    };
    let run = lost("--unzstd");
    run.fails(
        1,
        &["more bytes were produced from what was read and are lost"],
    );
    assert!(run.json()["stranded"].as_u64() > run.json()["read"].as_u64());
    // explain creates nothing.
    let mut child = cordboard()
        .args(["splice", "--hash=crc32", "-", "/dev/full"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .start();
    feed(&mut child, b"123456789");
    end(child).fails(1, &["(9 more bytes were read and are lost)"]);
}

/// Neither the source nor the sink is the cause, and the bytes are good.
#[test]
fn a_stage_without_memory() {
    let dir = dir();
    let plain = file(&dir, "s", &bytes(3_000_000));
    let packed = run(cordboard().args(["cat", "--zstd"]).arg(&plain));
    let packed = file(&dir, "p", packed.ok().stdout());
    let sink = dir.path().join("d");
    for (stage, source) in [("zstd", &plain), ("unzstd", &packed)] {
        let mut told = 0;
        // Less is too little for the program itself.
        for kib in (6 << 10..64 << 10).step_by(256) {
            let copy = run(Command::new("prlimit")
                .arg(format!("--as={}", kib << 10))
                .arg(env!("CARGO_BIN_EXE_cordboard"))
                .args(["copy", "--json", &format!("--{stage}")])
                .args([source, &sink]));
            if copy.code() == 0 {
                break;
            }
            // The memory of a stage is allocated before anything is read.
            let none = format!("(ENOMEM) preparing --{stage}; ");
            if copy.stderr().contains(&none) {
                let json = copy.json();
                assert_eq!(json["failed"], serde_json::Value::Null);
                assert_eq!(
                    (&json["errno"], &json["read"]),
                    (&"ENOMEM".into(), &0.into())
                );
                assert_eq!(copy.code(), 1);
                told += 1;
            }
            if copy.code() != 1 || !copy.stderr().contains("\"stages\":[{") {
                continue;
            }
            let json = copy.json();
            let Some(fault) = json["stages"][0]["fault"].as_str() else {
                continue;
            };
            assert!(
                fault.ends_with("Cannot allocate memory (ENOMEM)"),
                "{fault}"
            );
            assert_eq!(json["errno"], "ENOMEM");
            assert_eq!(json["failed"], serde_json::Value::Null);
            assert_eq!(json["read"], 0, "the source has it again");
            let stderr = copy.stderr();
            assert!(!stderr.contains("at the source"), "{stderr}");
            assert!(!stderr.contains("not zstd data"), "{stderr}");
            told += 1;
        }
        assert!(told > 0, "{stage}");
    }
}

/// Returns an existing file, and what a command with `--unzstd` did to it.
fn onto_existing(command: &str, options: &[&str], source: &std::path::Path) -> (Run, Vec<u8>) {
    let dir = dir();
    let sink = file(&dir, "d", b"kept");
    let run = run(cordboard()
        .args([command, "--unzstd", "--json"])
        .args(options)
        .args([source, &sink]));
    let contents = read(&sink);
    (run, contents)
}

/// The first header of the data is checked before an existing sink is emptied.
#[test]
fn what_cannot_be_decoded_leaves_the_contents_of_the_sink() {
    let dir = dir();
    let padded = |header: &[u8]| [header, &[0; 40]].concat();
    // RFC 8878, 3.1.1.1: a window of 2^31 bytes, and a dictionary.
    let long = padded(&[0x28, 0xb5, 0x2f, 0xfd, 0, (31 - 10) << 3]);
    let dictionary = padded(&[0x28, 0xb5, 0x2f, 0xfd, 1, 7 << 3, 5]);
    for (contents, says) in [
        (&b"nothing of the kind"[..], "s: not zstd data"),
        (b"", "s: empty input, where zstd data is expected"),
        (b"\x28\xb5", "s: zstd data truncated after 2 bytes"),
        (&long, "s: the window of the zstd data exceeds the limit"),
        (&dictionary, "s: the zstd data needs its dictionary"),
    ] {
        let source = file(&dir, "s", contents);
        for command in ["copy", "splice"] {
            let (run, left) = onto_existing(command, &["--hash", "crc32"], &source);
            run.fails(1, &[says, "; ", "d was not changed"]);
            assert_eq!(left, b"kept", "{command}: {says}");
            let json = run.json();
            let failed = (&json["failed"], &json["errno"], &json["read"]);
            let expected = (&"source".into(), &"EBADMSG".into(), &0.into());
            assert_eq!(failed, expected, "{json}");
            assert!(json["stages"][0]["fault"].is_string(), "{json}");
        }
    }
    // Of a tree, each file.
    let [tree, into] = ["tree", "into"].map(|name| dir.path().join(name));
    for name in ["tree/s", "into/s"] {
        std::fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
        file(&dir, name, b"kept");
    }
    let run_ = run(cordboard()
        .args(["copy", "-r", "--unzstd"])
        .args([tree.join("."), into.clone()]));
    run_.fails(1, &["not zstd data", "into/s was not changed"]);
    assert_eq!(read(into.join("s")), b"kept");
}

/// The check neither takes bytes of the source, nor reads more than is requested.
#[test]
fn the_check_of_compressed_data_keeps_the_range() {
    let dir = dir();
    let packed = run(cordboard()
        .args(["cat", "--zstd"])
        .arg(file(&dir, "c", &bytes(3000))));
    let packed = packed.ok().stdout().to_vec();
    let source = file(&dir, "s", &[b"before", &packed[..], b"behind"].concat());
    let size = packed.len().to_string();
    for command in ["copy", "splice"] {
        let range = ["--offset", "6", "--size", &size];
        let (run, left) = onto_existing(command, &range, &source);
        run.ok();
        assert!(left == bytes(3000), "{command}");
        let (run, left) = onto_existing(command, &["--offset", "6", "--size", "9"], &source);
        run.fails(
            1,
            &["truncated after 9 bytes", "; --size counts compressed"],
        );
        assert_eq!(left, b"kept", "{command}");
        // No byte is requested: no frame is expected.
        let (run, left) = onto_existing(command, &["--size", "0"], &source);
        run.ok();
        assert_eq!(left, b"", "{command}");
    }
    // Standard input is read from its position, which the check does not move.
    let sink = file(&dir, "d", b"old");
    let mut input = std::fs::File::open(&source).unwrap();
    std::io::Seek::seek(&mut input, std::io::SeekFrom::Start(6)).unwrap();
    run(cordboard()
        .args(["splice", "--unzstd", "--size", &size, "-"])
        .arg(&sink)
        .stdin(input))
    .ok();
    assert!(read(&sink) == bytes(3000));
}
