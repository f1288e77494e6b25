//! `--hash`, `--zstd`, `--unzstd`, `--verify`.
#![allow(missing_docs)]

mod common;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use common::*;

/// Of "123456789", from the catalogues of the algorithms.
const NINE: &[u8] = b"123456789";
const CRC32: &str = "cbf43926";

/// Lines on standard error but the JSON one.
fn lines(run: &Run) -> Vec<String> {
    let stderr = run.stderr();
    let lines = stderr.lines().filter(|l| !l.starts_with('{'));
    lines.map(str::to_owned).collect()
}

#[test]
fn a_hash_is_printed_as_the_sum_tools_do() {
    let dir = dir();
    let source = file(&dir, "s", NINE);
    let sink = dir.path().join("d");
    let run = run(cordboard()
        .args([
            "copy",
            "--json",
            "--hash",
            "crc32",
            "--hash=blake3",
            "--hash=xxh3",
        ])
        .args(["--hash", "crc32"])
        .args([&source, &sink]));
    let json = run.ok().json();
    assert_eq!(read(&sink), NINE);
    let lines = lines(&run);
    assert_eq!(lines.len(), 3, "each once: {lines:?}");
    assert_eq!(lines[0], format!("{CRC32}  {}", source.display()));
    let (digest, _) = lines[1].split_once("  ").unwrap();
    assert_eq!(digest.len(), 64);
    assert_eq!(json["path"], serde_json::json!(["read/write"]));
    let stages = &json["stages"];
    assert_eq!(stages[0]["stage"], "crc32");
    assert_eq!(
        (&stages[0]["in"], &stages[0]["out"]),
        (&9.into(), &9.into())
    );
    assert_eq!(stages[0]["digest"], CRC32);
    assert_eq!(stages[1]["digest"], digest);
    assert_eq!(stages[2]["stage"], "xxh3");
    // Without a prefix, xxhsum(1) takes 16 digits for XXH64.
    let digest = stages[2]["digest"].as_str().unwrap();
    assert_eq!(digest.len(), 16);
    assert_eq!(lines[2], format!("XXH3_{digest}  {}", source.display()));
    assert!(stages[3].is_null());
}

#[test]
fn without_stages_there_are_none_in_the_line() {
    let dir = dir();
    let source = file(&dir, "s", NINE);
    let run = run(cordboard()
        .args(["copy", "--json"])
        .args([&source, &dir.path().join("d")]));
    let json = run.ok().json();
    assert!(json.get("stages").is_none() && json.get("verified").is_none());
}

/// The sum tools look for a file of the name in the line.
#[test]
fn the_scheme_of_a_file_is_not_in_its_line() {
    let dir = dir();
    file(&dir, "a", NINE);
    file(&dir, "-", NINE);
    for (operand, name) in [("file:a", "a"), ("a", "a"), ("file:-", "./-")] {
        for command in [
            &["cat", operand][..],
            &["splice", operand, "/dev/null"],
            &["copy", operand, "d"],
        ] {
            let mut hashed = cordboard();
            let hashed = hashed.args(command).args(["--hash", "crc32"]);
            let run = run(hashed.current_dir(dir.path()));
            assert_eq!(run.code(), 0, "{}", run.stderr());
            assert_eq!(lines(&run), [format!("{CRC32}  {name}")]);
        }
    }
}

#[test]
fn every_file_has_a_line_and_standard_input_is_a_dash() {
    let dir = dir();
    let a = file(&dir, "a", NINE);
    let b = file(&dir, "b", b"");
    let mut child = cordboard()
        .args(["cat", "--hash", "crc32"])
        .args([a.as_os_str(), "-".as_ref(), b.as_os_str()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start();
    feed(&mut child, NINE);
    let run = end(child);
    assert_eq!(run.ok().stdout(), [NINE, NINE].concat());
    let expected = [
        format!("{CRC32}  {}", a.display()),
        format!("{CRC32}  -"),
        format!("00000000  {}", b.display()),
    ];
    assert_eq!(lines(&run), expected);
}

/// As `b3sum(1)` and similar tools print them, so that they can check them.
#[test]
fn a_hash_of_a_file_of_any_name() {
    let dir = dir();
    let into = dir.path().join("into");
    std::fs::create_dir(&into).unwrap();
    let names: [(&[u8], &[u8]); 4] = [
        (b"two\nlines", b"\\cbf43926  two\\nlines\n"),
        (b"back\\slash", b"\\cbf43926  back\\\\slash\n"),
        (b"\xff\xfe", b"cbf43926  \xff\xfe\n"),
        (b"standard input", b"cbf43926  standard input\n"),
    ];
    for (name, line) in names {
        let name = OsStr::from_bytes(name);
        std::fs::write(dir.path().join(name), NINE).unwrap();
        for command in ["splice", "copy", "cat"] {
            let sink = (command != "cat").then_some("into/d");
            let run = run(cordboard()
                .current_dir(dir.path())
                .args([command, "--hash", "crc32"])
                .arg(name)
                .args(sink));
            assert!(run.ok().0.stderr == line, "{command}: {}", run.stderr());
        }
    }
    // Several at once.
    let run = run(cordboard()
        .current_dir(dir.path())
        .args(["copy", "--hash", "crc32"])
        .args(names.map(|(name, _)| OsStr::from_bytes(name)))
        .arg("into"));
    let all = names.map(|(_, line)| line).concat();
    assert!(run.ok().0.stderr == all, "{}", run.stderr());
}

#[test]
fn packed_and_unpacked_with_the_hash_of_the_contents() {
    let dir = dir();
    let content = [bytes(200_000), vec![0; 300_000]].concat();
    let source = file(&dir, "s", &content);
    let (packed, back) = (dir.path().join("s.zst"), dir.path().join("back"));
    for level in ["--zstd", "--zstd=1", "--zstd=-3", "--zstd=12"] {
        let there = run(cordboard()
            .args(["splice", "--json", level, "--hash", "xxh3"])
            .args([&source, &packed]));
        let there = (there.ok().json(), lines(&there));
        let here = run(cordboard()
            .args(["copy", "--json", "--unzstd", "--hash", "xxh3"])
            .args([&packed, &back]));
        let here = (here.ok().json(), lines(&here));
        assert!(read(&back) == content);
        assert_eq!(there.0["read"], 500_000);
        assert_eq!(there.0["written"], read(&packed).len());
        assert!(there.0["written"].as_u64().unwrap() < 250_000);
        assert_eq!(here.0["read"], there.0["written"]);
        assert_eq!(here.0["written"], 500_000);
        // The same digest; the names differ.
        assert_eq!(there.1[0][..21], here.1[0][..21]);
        assert_eq!(there.0["stages"][1]["stage"], "zstd");
    }
}

/// The line does not grow with the files; the hash of each precedes it.
#[test]
fn the_stages_of_many_files_are_summed() {
    let dir = dir();
    let into = dir.path().join("into");
    std::fs::create_dir(&into).unwrap();
    let sources: Vec<_> = (0..40)
        .map(|i| file(&dir, &format!("f{i}"), &bytes(1000 + i)))
        .collect();
    let read: usize = (0..40).map(|i| 1000 + i).sum();
    for (command, sink) in [("copy", Some(&into)), ("cat", None)] {
        let run = run(cordboard()
            .args([command, "--json", "--hash", "crc32", "--zstd"])
            .args(&sources)
            .args(sink));
        let json = run.ok().json();
        assert_eq!(
            json["stages"],
            serde_json::json!([
                {"stage": "crc32", "in": read, "out": read},
                {"stage": "zstd", "in": read, "out": json["written"]},
            ])
        );
        assert_eq!(lines(&run).len(), 40);
    }
    // A damaged file among others is the one reported.
    let packed = run(cordboard()
        .args(["cat", "--zstd"])
        .arg(file(&dir, "nine", NINE)));
    let packed = file(&dir, "packed", packed.ok().stdout());
    let run = run(cordboard().args(["copy", "--json", "--unzstd"]).args([
        &packed,
        &sources[0],
        &sources[1],
        &into,
    ]));
    assert_eq!(run.code(), 1);
    let json = run.json();
    let stages = json["stages"].as_array().unwrap();
    assert_eq!((stages.len(), &stages[0]["out"]), (1, &9.into()), "{json}");
    let fault = stages[0]["fault"].as_str().unwrap();
    assert!(fault.starts_with("not zstd data"), "{json}");
}

#[test]
fn many_files_become_frames_that_are_unpacked_as_one() {
    let dir = dir();
    let (a, b) = (file(&dir, "a", &bytes(70_000)), file(&dir, "b", NINE));
    let packed = run(cordboard().args(["cat", "--zstd"]).args([&a, &b]));
    let packed = file(&dir, "p", packed.ok().stdout());
    let back = run(cordboard().args(["cat", "--unzstd"]).arg(&packed));
    assert!(back.ok().stdout() == [&bytes(70_000)[..], NINE].concat());
}

#[test]
fn cat_takes_its_size_from_what_it_reads() {
    let dir = dir();
    let a = file(&dir, "a", &bytes(1000));
    let run = run(cordboard()
        .args(["cat", "--zstd", "--size=1500", "--json"])
        .args([&a, &a]));
    assert_eq!(run.ok().json()["read"], 1500);
    let packed = file(&dir, "p", run.stdout());
    let back = call(["cat".as_ref(), "--unzstd".as_ref(), packed.as_os_str()]);
    assert!(back.ok().stdout() == [bytes(1000), bytes(500)].concat());
    // With --unzstd, --size counts compressed bytes, and the help says so.
    let cut = call([
        "splice",
        "--json",
        "--unzstd",
        "--size=10",
        packed.to_str().unwrap(),
        "-",
    ]);
    assert_eq!(cut.json()["read"], 10);
    for command in ["splice", "copy", "cat"] {
        let help = String::from_utf8(call([command, "--help"]).ok().stdout().to_vec()).unwrap();
        assert!(help.contains("bytes of the source (K, M, G"), "{help}");
        assert!(
            help.contains("--size then counts compressed bytes"),
            "{help}"
        );
    }
}

#[test]
fn what_makes_no_sense_together() {
    let dir = dir();
    let source = file(&dir, "s", NINE);
    let sink = file(&dir, "d", b"kept");
    for (args, says) in [
        (&["--zstd", "--unzstd"][..], "exclude each other"),
        (&["--hash=crc32", "--route=splice"], "allow that path"),
        (
            &["--zstd", "--without=read/write"],
            "read/write, which is not allowed",
        ),
    ] {
        let refused = run(cordboard().arg("copy").args(args).args([&source, &sink]));
        refused.fails(2, &[says]);
        assert_eq!(read(&sink), b"kept", "nothing is opened before");
    }
    for args in [&["--zstd=23"][..], &["--zstd=fast"], &["--hash=md5"]] {
        let refused = run(cordboard().arg("copy").args(args).args([&source, &sink]));
        assert_eq!(refused.code(), 2, "{}", refused.stderr());
    }
    let refused = call(["splice", "--zstd", "-", "udp:127.0.0.1:9"]);
    refused.fails(1, &["zstd would merge its messages", "use a stream"]);
}

#[test]
fn verified_by_the_hash_taken_on_the_way() {
    let dir = dir();
    let content = bytes(300_000);
    let source = file(&dir, "s", &content);
    for (i, args) in [
        &["--route=read/write"][..],
        &["--hash=crc32"],
        &["--zstd", "--hash=crc32"],
        &["--route=read/write", "--sync", "-p"],
        &["--sparse=always"],
    ]
    .into_iter()
    .enumerate()
    {
        let sink = dir.path().join(format!("d{i}"));
        let run = run(cordboard()
            .args(["copy", "--json", "--verify"])
            .args(args)
            .args([&source, &sink]));
        let json = run.ok().json();
        assert_eq!(json["verified"], json["written"], "{args:?}");
        assert_eq!(json["verified"], read(&sink).len());
        let stages = json["stages"].as_array().unwrap();
        assert_eq!(stages.last().unwrap()["stage"], "xxh3");
        let asked = args.iter().filter(|a| a.contains("hash")).count();
        assert_eq!(lines(&run).len(), asked, "{args:?}: {}", run.stderr());
    }
}

#[test]
fn verified_by_reading_both_where_the_kernel_copies() {
    let name = "verified_by_reading_both_where_the_kernel_copies";
    if testkit::needs::missing(name, &[testkit::needs::Need::CopyFileRange]) {
        return;
    }
    let dir = dir();
    let content = bytes(3_000_000);
    let source = file(&dir, "s", &content);
    let sink = dir.path().join("d");
    for args in [
        &["--route=copy_file_range"][..],
        &["--route=copy_file_range", "--offset=100", "--size=2M"],
    ] {
        let run = run(cordboard()
            .args(["copy", "--json", "--verify"])
            .args(args)
            .args([&source, &sink]));
        let json = run.ok().json();
        assert_eq!(json["path"], serde_json::json!(["copy_file_range"]));
        assert_eq!(json["verified"], json["written"]);
        assert!(json.get("stages").is_none(), "no byte passed through us");
    }
    assert!(read(&sink) == content[100..100 + (2 << 20)]);
}

#[test]
fn appended_bytes_are_verified_where_they_are() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(100_000));
    let sink = file(&dir, "d", b"before");
    let run = run(cordboard()
        .args(["copy", "--json", "--verify", "--append"])
        .args([&source, &sink]));
    assert_eq!(run.ok().json()["verified"], 100_000);
    assert!(read(&sink) == [b"before", &bytes(100_000)[..]].concat());
}

#[test]
fn what_cannot_be_read_back_is_not_written() {
    let dir = dir();
    let source = file(&dir, "s", NINE);
    let args = [
        "copy".as_ref(),
        "--verify".as_ref(),
        source.as_os_str(),
        "/dev/null".as_ref(),
    ];
    call(args).fails(1, &["cannot be read back", "omit --verify"]);
}

/// Copies while the sink is changed meanwhile: the command is stopped where it
/// waits for the device, and a byte is overwritten.
fn corrupted(route: &str) -> Option<Run> {
    use std::os::unix::fs::FileExt;
    let dir = dir();
    let source = file(&dir, "s", &vec![7; 100_000]);
    let (sink, log) = (dir.path().join("d"), dir.path().join("log"));
    let strace = std::process::Command::new("strace")
        .arg("-o")
        .arg(&log)
        .args(["-e", "inject=fdatasync:signal=STOP"])
        .arg(env!("CARGO_BIN_EXE_cordboard"))
        .args(["copy", "--json", "--verify", route])
        .args([&source, &sink])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .try_start();
    let Ok(strace) = strace else {
        testkit::skip::here("a sink that is changed meanwhile needs strace");
        return None;
    };
    let told = |what: &str| std::fs::read_to_string(&log).is_ok_and(|log| log.contains(what));
    let stopped = until("the stop", || {
        // If tracing is not allowed, strace ends at once.
        (told("stopped by SIGSTOP") || told("exited with") || zombie(strace.id()))
            .then(|| told("stopped by SIGSTOP"))
    });
    if !stopped {
        testkit::skip::here(format!("not traced: {}", end(strace).stderr()));
        return None;
    }
    let changed = std::fs::File::options().write(true).open(&sink).unwrap();
    changed.write_all_at(b"A", 70_000).unwrap();
    let children = format!("/proc/{0}/task/{0}/children", strace.id());
    let child = std::fs::read_to_string(children).unwrap();
    signal(child.trim().parse().unwrap(), rustix::process::Signal::CONT);
    Some(end(strace))
}

/// It has ended, and was not waited for yet.
fn zombie(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next();
    state.is_some_and(|rest| rest.starts_with('Z'))
}

#[test]
fn a_byte_that_is_wrong_on_the_disk_is_found() {
    for (route, help) in [
        ("--route=read/write", "may be failing"),
        ("--route=copy_file_range", "--without copy_file_range"),
    ] {
        let Some(run) = corrupted(route) else { return };
        let found = "differs from the source at byte 70000: expected 0x07, found 0x41";
        let other = "if another process was writing to either file";
        run.fails(1, &["not verified", found, help, other]);
        let json = run.json();
        assert_eq!(
            (&json["failed"], &json["errno"]),
            (&"sink".into(), &"EIO".into())
        );
        assert!(json.get("verified").is_none());
    }
}

/// A compressor without memory fails before anything is read: read bytes would
/// be lost.
#[test]
fn nothing_is_read_for_a_compressor_without_memory() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(1 << 20));
    let program = cordboard();
    let mut refused = 0;
    for limit in (8_000..100_000).step_by(4_000) {
        let mut limited = std::process::Command::new("sh");
        limited
            .arg("-c")
            .arg(format!("cat \"$0\" | (ulimit -v {limit}; exec \"$@\")"))
            .arg(&source)
            .arg(program.get_program())
            .args(["splice", "-", "-", "--zstd=19", "--json"]);
        let run = run(&mut limited);
        // Too little to begin with, or enough.
        if run.code() != 1 || !run.stderr().contains("\"errno\":\"ENOMEM\"") {
            continue;
        }
        assert_eq!(run.json()["read"], 0, "{limit}: {}", run.stderr());
        refused += 1;
    }
    assert!(refused > 0);
}

/// The help mentions bytes only if there are some.
#[test]
fn nothing_was_made_of_what_is_damaged_from_the_start() {
    let dir = dir();
    let (plain, packed) = (file(&dir, "p", &bytes(1 << 20)), dir.path().join("z"));
    run(cordboard().args(["copy", "--zstd"]).args([&plain, &packed])).ok();
    let mut frame = read(&packed);
    let sink = dir.path().join("o");
    let made = "the bytes decoded before the fault were written";
    for (at, whole) in [(8, false), (frame.len() - 200, true)] {
        frame.truncate(at);
        let damaged = file(&dir, "d", &frame);
        // Truncated within the first block, or near the end.
        frame = read(&packed);
        let run = run(cordboard()
            .args(["copy", "--unzstd"])
            .args([&damaged, &sink]));
        assert_eq!(run.code(), 1);
        let stderr = run.stderr();
        assert_eq!(stderr.contains(made), whole, "{stderr}");
        assert_eq!(stderr.contains("was not created"), !whole, "{stderr}");
    }
}
