//! Which path carries a file, as far as flags determine it.

use testkit::needs::Need;

use crate::common::*;

#[test]
fn every_path_gives_the_same_file() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(300_000));
    for (path, need) in [
        ("copy_file_range", Some(Need::CopyFileRange)),
        ("sendfile", Some(Need::Sendfile)),
        ("splice", Some(Need::Splice)),
        ("read/write", None),
    ] {
        let name = "every_path_gives_the_same_file";
        if need.is_some_and(|need| testkit::needs::missing(name, &[need])) {
            continue;
        }
        let sink = dir.path().join("d");
        // A new sink, and an existing one.
        for _ in 0..2 {
            let run = run(cordboard()
                .args(["copy", "--json", "--route", path])
                .args([&source, &sink]));
            assert_eq!(run.ok().json()["path"], serde_json::json!([path]));
            assert_eq!(read(&sink), bytes(300_000), "{path}");
        }
        std::fs::remove_file(&sink).unwrap();
    }
    let run = run(cordboard()
        .env("CORDBOARD_WITHOUT", "clone,copy_file_range,sendfile,splice")
        .args(["copy", "--json"])
        .args([&source, &dir.path().join("e")]));
    assert_eq!(run.ok().json()["path"], serde_json::json!(["read/write"]));
}

#[test]
fn the_page_cache_is_passed_by_on_request_and_not_otherwise() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(300_000));
    let sink = dir.path().join("d");
    let explain = |switch: [&str; 2]| {
        run(cordboard()
            .args(["explain", "--json"])
            .args(switch)
            .args([&source, &sink]))
    };
    let without = String::from_utf8(explain(["--without", "direct"]).ok().stdout().to_vec());
    let without: serde_json::Value = serde_json::from_str(&without.unwrap()).unwrap();
    let turned_off = serde_json::json!({"path": "direct", "why": "turned off"});
    let excluded = without["excluded"].as_array().unwrap();
    assert!(excluded.contains(&turned_off), "{without}");
    run(cordboard()
        .args(["copy", "--without", "direct"])
        .args([&source, &sink]))
    .ok();
    let forced = explain(["--route", "direct"]);
    if forced.code() != 0 {
        assert_eq!(forced.code(), 1, "{}", forced.stderr());
        testkit::skip::here(format!("no direct I/O here: {}", forced.stderr()));
        return;
    }
    let forced = run(cordboard()
        .args(["copy", "--json", "--route", "direct"])
        .args([&source, &sink]));
    assert_eq!(forced.ok().json()["path"], serde_json::json!(["direct"]));
    assert!(read(&sink) == bytes(300_000));
}

#[test]
fn a_file_is_not_emptied_for_a_request_that_is_refused() {
    let dir = dir();
    let source = file(&dir, "s", b"new");
    let sink = file(&dir, "d", b"old");
    for command in ["copy", "splice"] {
        run(cordboard()
            .args([command, "--route", "datagram"])
            .args([&source, &sink]))
        .fails(1, &["no usable data path"]);
        assert_eq!(read(&sink), b"old");
    }
}

/// A refusal that is known beforehand: the sink is not created, not even for a
/// moment.
#[test]
fn a_pair_that_no_path_takes_makes_nothing() {
    let (dir, source) = (dir(), dir());
    let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") else {
        return testkit::skip::here("no file system in memory");
    };
    let from = file(&source, "from", b"contents");
    let second = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1);
    for (flags, into) in [
        (&["--append", "--route", "splice"][..], &dir),
        (&["--append", "--route", "copy-file-range"], &dir),
        (&["--route", "clone"], &elsewhere),
    ] {
        let directory = std::fs::File::open(into.path()).unwrap();
        directory.set_modified(second).unwrap();
        let sink = into.path().join("to");
        let run = run(cordboard()
            .args(["copy", "--json"])
            .args(flags)
            .args([&from, &sink]));
        run.fails(
            1,
            &["no usable data path for this pair", "to was not created"],
        );
        let declined = run.json()["declined"].as_array().map(Vec::len);
        assert!(
            declined.is_some_and(|declined| declined > 0),
            "{}",
            run.stderr()
        );
        // Creating and removing a file changes the time.
        let modified = directory.metadata().unwrap().modified().unwrap();
        assert_eq!(modified, second, "{flags:?}");
    }
}
