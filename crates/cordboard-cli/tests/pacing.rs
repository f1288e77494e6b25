//! `--rate` and `--schedule`.

mod common;

use std::path::Path;

use common::{Run, call, cordboard, dir, run};
use testkit::needs::{self, Need};

fn write(folder: &Path, name: &str, bytes: usize) -> String {
    let path = folder.join(name);
    std::fs::write(&path, testkit::pattern::bytes(3, bytes)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// No more than the rate permits for the reported time.
fn keeps(run: &Run, rate: f64) {
    let json = run.json();
    let (read, seconds) = (
        json["read"].as_f64().unwrap(),
        json["seconds"].as_f64().unwrap(),
    );
    // The report has whole milliseconds.
    assert!(read <= rate * (seconds + 0.001), "{json}");
}

#[test]
fn the_path_is_the_same_at_a_rate() {
    let folder = tempfile::tempdir().unwrap();
    let from = write(folder.path(), "from", 200_000);
    for (route, need) in [
        ("copy_file_range", Some(Need::CopyFileRange)),
        ("sendfile", Some(Need::Sendfile)),
        ("splice", Some(Need::Splice)),
        ("read/write", None),
    ] {
        if need.is_some_and(|need| needs::missing("the_path_is_the_same_at_a_rate", &[need])) {
            continue;
        }
        let to = folder.path().join(route.replace('/', "-"));
        let run = call([
            "splice",
            &from,
            to.to_str().unwrap(),
            "--rate",
            "1MB",
            "--route",
            route,
            "--json",
        ]);
        assert_eq!(run.code(), 0, "{}", run.stderr());
        assert_eq!(run.json()["path"], serde_json::json!([route]));
        assert_eq!(std::fs::read(&to).unwrap(), std::fs::read(&from).unwrap());
        keeps(&run, 1e6);
    }
}

/// All files of a command share the rate, also those that are copied side by side.
#[test]
fn all_files_share_the_rate() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    for n in 0..20 {
        write(&tree, &n.to_string(), 10_000);
    }
    let to = folder.path().join("to");
    let run = run(cordboard()
        .args(["copy", "-r", "--jobs", "4", "--rate", "1MB", "--json"])
        .arg(&tree)
        .arg(&to));
    assert_eq!(run.code(), 0, "{}", run.stderr());
    assert_eq!(run.json()["written"], 200_000);
    keeps(&run, 1e6);
    let files: Vec<String> = (0..20)
        .map(|n| tree.join(n.to_string()).to_str().unwrap().to_owned())
        .collect();
    let args = ["cat", "--rate", "1MB", "--json"].map(str::to_owned);
    let run = call(args.into_iter().chain(files));
    assert_eq!(run.json()["written"], 200_000);
    keeps(&run, 1e6);
}

/// So do large files, which the engine copies: from 4 MiB, or from 64 KiB if they are
/// compressed.
#[test]
fn large_files_share_the_rate() {
    let folder = tempfile::tempdir().unwrap();
    for (size, rate, more) in [(5 << 20, 50e6, None), (150_000, 1e6, Some("--zstd"))] {
        let tree = folder.path().join(size.to_string());
        std::fs::create_dir(&tree).unwrap();
        for name in ["a", "b"] {
            write(&tree, name, size);
        }
        let run = run(cordboard()
            .args(["copy", "-r", "--jobs", "4", "--json"])
            .args(["--rate", &rate.to_string()])
            .args(more)
            .arg(&tree)
            .arg(folder.path().join("to")));
        assert_eq!(run.code(), 0, "{}", run.stderr());
        assert_eq!(run.json()["read"], 2 * size);
        keeps(&run, rate);
        std::fs::remove_dir_all(folder.path().join("to")).unwrap();
    }
}

/// 10 blocks of 1000 bytes: two bursts of four and one of two, with two rests.
#[test]
fn blocks_come_between_rests() {
    let folder = tempfile::tempdir().unwrap();
    let from = write(folder.path(), "from", 10_000);
    let run = call([
        "splice",
        &from,
        "/dev/null",
        "--block",
        "1000",
        "--schedule",
        "4,50",
        "--json",
    ]);
    assert_eq!(run.code(), 0, "{}", run.stderr());
    let json = run.json();
    assert_eq!(json["written"], 10_000);
    assert!(json["seconds"].as_f64().unwrap() >= 0.1, "{json}");
}

/// The path is the same, and the rate is an upper bound of an automatic schedule.
#[test]
fn an_automatic_schedule_keeps_to_the_rate() {
    let folder = dir();
    let source = write(folder.path(), "source", 300_000);
    for aim in ["throughput", "background", "share=2"] {
        let sink = folder.path().join("sink");
        let run = call([
            "copy",
            &source,
            sink.to_str().unwrap(),
            "--auto",
            aim,
            "--rate",
            "1MB",
            "--json",
        ]);
        assert_eq!(run.code(), 0, "{}", run.stderr());
        keeps(&run, 1e6);
        let plain = call(["copy", &source, sink.to_str().unwrap(), "--json"]);
        assert_eq!(run.json()["path"], plain.json()["path"], "{aim}");
        assert_eq!(run.json()["written"], 300_000);
    }
}

#[test]
fn a_wrong_rate_is_wrong_usage() {
    for (flag, value, says) in [
        ("--rate", "0", "at least one byte a second"),
        ("--rate", "fast", "a size is a number of bytes"),
        ("--rate", "99999999999999999999", "2^63-1"),
        ("--schedule", "4", "for example 4,70"),
        ("--schedule", "0,70", "for example 4,70"),
        ("--schedule", "4,x", "for example 4,70"),
        ("--auto", "share=0", "a weight from 1"),
        ("--auto", "share=+1", "a weight from 1"),
        ("--auto", "fast", "throughput, background"),
    ] {
        let run = call(["splice", "/dev/null", "/dev/null", flag, value]);
        assert_eq!(run.code(), 2, "{value}");
        assert!(run.stderr().contains(says), "{value}: {}", run.stderr());
    }
    let run = call(["cat", "/dev/null", "--rate", "1M", "--schedule", "4,70"]);
    assert_eq!(run.code(), 2);
    assert!(
        run.stderr().contains("cannot be used with"),
        "{}",
        run.stderr()
    );
}
