//! Little address space: the command uses less of it, or fails with `ENOMEM`.

use std::path::Path;
use std::process::Command;

use testkit::needs::Need;

use crate::common::*;

/// `cordboard copy` with this number of KiB of address space.
fn within(kib: usize) -> Command {
    let mut command = Command::new("prlimit");
    command.arg(format!("--as={}", kib << 10));
    command.args([env!("CARGO_BIN_EXE_cordboard"), "copy"]);
    command
}

/// The KiB that a plain copy needs. `None`: it cannot be limited here.
fn least(source: &Path, sink: &Path) -> Option<usize> {
    let least = (4 << 10..64 << 10).step_by(128).find(|kib| {
        let plain = run(within(*kib).args([source, sink]));
        plain.code() == 0
    });
    if least.is_none_or(|kib| kib == 4 << 10) {
        testkit::skip::here("no limit of address space here");
        return None;
    }
    least
}

#[test]
fn what_is_read_back_needs_no_large_buffer() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(5_000_001));
    let sink = dir.path().join("d");
    let Some(least) = least(&source, &sink) else {
        return;
    };
    let name = "what_is_read_back_needs_no_large_buffer";
    let routes: &[&str] = match testkit::needs::missing(name, &[Need::CopyFileRange]) {
        true => &["read/write"],
        false => &["read/write", "copy_file_range"],
    };
    const MOST: usize = 4 << 10;
    for more in (256..=MOST).step_by(256) {
        for route in routes {
            let mut command = within(least + more);
            command.args(["--verify", "--json", "--route", route]);
            let run = run(command.args([&source, &sink]));
            // Ended with an error, not by a signal. The most is enough for all.
            let done = match run.code() {
                0 => run.json()["verified"] == 5_000_001,
                _ => more < MOST && run.json()["errno"] == "ENOMEM",
            };
            assert!(done, "{least} + {more}, {route}: {:?}", run.0);
        }
    }
}

/// An encoder of level 19 takes about 90 MiB. No sink is emptied before its file has one.
#[test]
fn many_encoders_and_little_memory() {
    let dir = dir();
    let contents = |i: usize| bytes((256 << 10) + i);
    for name in ["s", "d"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    let (source, sink) = (dir.path().join("s/."), dir.path().join("d"));
    let one = file(&dir, "one", b"1");
    let Some(least) = least(&one, &dir.path().join("other")) else {
        return;
    };
    for i in 0..6 {
        file(&dir, &format!("s/{i}"), &contents(i));
        file(&dir, &format!("d/{i}"), b"old");
    }
    let packed = |more: usize| {
        let mut command = within(least + more);
        run(command
            .args(["-r", "-j", "4", "--zstd=19"])
            .args([&source, &sink]))
    };
    let none = packed(32 << 10);
    assert_eq!(none.code(), 1, "{:?}", none.0);
    for i in 0..6 {
        // C libraries differ in the text of an errno.
        let says = |line: &str| {
            line.contains(&format!("/{i}: ")) && line.contains("(ENOMEM) preparing --zstd")
        };
        assert!(none.stderr().lines().any(says), "{}", none.stderr());
        assert_eq!(read(sink.join(i.to_string())), b"old");
    }
    packed(150 << 10).ok();
    let unpacked = dir.path().join("u");
    call([
        "copy".as_ref(),
        "-r".as_ref(),
        "--unzstd".as_ref(),
        sink.as_os_str(),
        unpacked.as_os_str(),
    ])
    .ok();
    for i in 0..6 {
        assert!(read(unpacked.join(i.to_string())) == contents(i));
    }
}

/// Each transfer that begins has the memory for all of it: its sink is either written, or as
/// before.
#[test]
fn a_sink_is_emptied_only_if_there_is_memory_for_the_transfer() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(700_001));
    let sink = dir.path().join("d");
    let packed = dir.path().join("p");
    run(cordboard()
        .args(["copy", "--zstd"])
        .args([&source, &packed]))
    .ok();
    let Some(least) = least(&source, &sink) else {
        return;
    };
    let spliced = |kib: usize| {
        let mut command = Command::new("prlimit");
        command.arg(format!("--as={}", kib << 10));
        command.args([env!("CARGO_BIN_EXE_cordboard"), "splice"]);
        command
    };
    let by: [(&str, &dyn Fn(usize) -> Command); 2] = [("copy", &within), ("splice", &spliced)];
    for (stage, from) in [
        ("--zstd=1", &source),
        ("--unzstd", &packed),
        ("--hash=blake3", &source),
    ] {
        for (verb, limited) in &by {
            let done = |kib: usize| {
                std::fs::write(&sink, b"kept").unwrap();
                let run = run(limited(kib).arg(stage).args([from, &sink]));
                let is_done = run.code() == 0;
                let is_kept = read(&sink) == b"kept";
                assert_eq!(is_kept, !is_done, "{verb} {stage}, {kib} KiB: {:?}", run.0);
                is_done
            };
            // The step from which it succeeds, by halves, and then all near it.
            let (mut low, mut high) = (least - 256, least + (32 << 10));
            assert!(done(high), "{verb} {stage}");
            while high - low > 512 {
                let middle = usize::midpoint(low, high);
                match done(middle) {
                    true => high = middle,
                    false => low = middle,
                }
            }
            for kib in (low.saturating_sub(1024)..high).step_by(16) {
                done(kib);
            }
        }
    }
}

/// As many threads as fit.
#[test]
fn many_jobs_and_little_memory() {
    let dir = dir();
    let source = dir.path().join("s");
    std::fs::create_dir(&source).unwrap();
    for i in 0..100 {
        file(&dir, &format!("s/{i}"), &bytes(3000 + i));
    }
    // Those of the engine.
    for name in ["large", "larger"] {
        file(&dir, &format!("s/{name}"), &bytes(9 << 20));
    }
    let one = file(&dir, "one", b"1");
    let Some(least) = least(&one, &dir.path().join("d")) else {
        return;
    };
    // Stacks leave a remainder of up to the size of one, which varies.
    for more in (4 << 10..64 << 10).step_by(3840) {
        let sink = dir.path().join(format!("d{more}"));
        let mut command = within(least + more);
        let run = run(command.args(["-r", "-j", "32"]).args([&source, &sink]));
        assert_eq!(run.code(), 0, "{least} + {more}: {:?}", run.0);
        for i in 0..100 {
            assert!(read(sink.join(i.to_string())) == bytes(3000 + i));
        }
        assert_eq!(read(sink.join("larger")).len(), 9 << 20);
        std::fs::remove_dir_all(&sink).unwrap();
    }
}
