//! A stop at an awkward moment: what it leaves out is never reported as done.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process_group};
use testkit::stall::{Call, Stall};

use super::common::*;
use super::settled;

/// The command, stalling at its first call of this kind on this path; `None` if
/// the kernel cannot do that.
fn stalling(command: &mut Command, call: Call, path: &Path) -> Option<(Owned, Stall)> {
    let path = path.to_owned();
    stalling_where(command, move |made, at| made == call && at == path)
}

/// The same for the first call that satisfies this.
fn stalling_where(
    command: &mut Command,
    holds: impl Fn(Call, &OsStr) -> bool + Send + 'static,
) -> Option<(Owned, Stall)> {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Stall::spawn(command, holds)
        .inspect_err(|error| testkit::skip::here(testkit::stall::why(error)))
        .ok()
}

/// The signal comes while the call stalls, which then succeeds.
fn stopped_at(command: &mut Command, call: Call, path: &Path, by: Signal) -> Option<Run> {
    Some(stopped(stalling(command, call, path)?, by))
}

fn stopped((child, stall): (Owned, Stall), by: Signal) -> Run {
    let held = stall.reached();
    signal(child.id(), by);
    held.release();
    end(child)
}

/// The handler of a signal to stop starts a timer, so SIGALRM may come as soon
/// as that handler is installed, whatever delays the process then.
#[test]
fn signals_while_their_handlers_are_installed() {
    let play = ["play", "-", "/dev/null", "--frame", "1", "--fps", "1"];
    let to = ["--audio-to", "/dev/null", "--video-to", "/dev/null"];
    let commands = [
        vec!["splice", "-", "/dev/null", "--json"],
        vec!["cat", "--json"],
        [&play[..], &to, &["--json"]].concat(),
    ];
    for by in [Signal::INT, Signal::TERM, Signal::HUP] {
        for handler in [Signal::ALARM, Signal::USR1, by] {
            for args in &commands {
                let number = handler.as_raw().to_string();
                let mut command = cordboard();
                command.args(args);
                let held = stalling(&mut command, Call::Handle, Path::new(&number));
                let Some((child, stall)) = held else {
                    return;
                };
                let held = stall.reached();
                for sent in [Signal::ALARM, Signal::USR1, by] {
                    signal(child.id(), sent);
                }
                held.release();
                let run = end(child);
                let died = run.0.status.signal();
                assert_eq!(died, None, "{by:?} at the handler of {handler:?}: {args:?}");
                // The kernel delivers the lowest number first.
                let first = by.as_raw().min(Signal::ALARM.as_raw());
                assert_eq!(run.code(), 128 + first);
                assert_eq!(run.json()["ended"], "cancelled", "{}", run.stderr());
            }
        }
    }
}

#[test]
fn a_file_that_was_left_out_while_its_stat_stalled() {
    let dir = dir();
    let (from, to) = (file(&dir, "from", b"all of it"), dir.path().join("to"));
    for (by, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut copy = cordboard();
        copy.args(["copy", "--json"]).args([&from, &to]);
        let Some(run) = stopped_at(&mut copy, Call::Stat, &from, by) else {
            return;
        };
        run.fails(code, &["interrupted by", "0 bytes read, 0 written"]);
        assert_eq!(run.json()["ended"], "cancelled");
        assert!(!to.exists());
    }
}

#[test]
fn files_that_were_left_out_among_many() {
    let dir = dir();
    let [a, b] = ["a", "b"].map(|name| file(&dir, name, b"all of it"));
    let into = dir.path().join("into");
    std::fs::create_dir(&into).unwrap();
    let mut copy = cordboard();
    copy.args(["copy", "--json", "--jobs", "2"])
        .args([&a, &b, &into]);
    let Some(run) = stopped_at(&mut copy, Call::Stat, &b, Signal::TERM) else {
        return;
    };
    run.fails(143, &["interrupted by SIGTERM: 0 bytes read, 0 written"]);
    assert_eq!(run.json()["ended"], "cancelled");
    assert_eq!(std::fs::read_dir(&into).unwrap().count(), 0);
}

/// A sink is truncated only for new contents: a command that is stopped before
/// truncates nothing.
#[test]
fn a_sink_keeps_its_contents_where_the_signal_comes_first() {
    let dir = dir();
    let at = |name: &str| dir.path().join(name);
    for name in ["tree", "into", "tree/sub", "tree/sub/deep"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    let [a, linked] = ["tree/a", "tree/sub/deep/b"].map(|name| file(&dir, name, b"new contents"));
    let sink = file(&dir, "into/a", b"old contents");
    let (tree, into) = (at("tree/."), at("into"));
    let null = || OsString::from("/dev/null");
    let os = |path: &Path| path.as_os_str().to_owned();
    let to = |option: &str, path: OsString| [OsString::from(option), path];
    let tree = [os(&tree), os(&into)].to_vec();
    let film = [
        to("--audio-to", null()),
        to("--video-to", os(&sink)),
        to("--frame", "6".into()),
    ];
    let film = [
        &[os(&a), null()][..],
        &film.concat(),
        &to("--fps", "9".into()),
    ]
    .concat();
    // Which call is held: it opens the sink as an existing file.
    let cases = [
        ("splice", [os(&a), os(&sink)].to_vec(), os(&sink), 2),
        ("copy", [os(&a), os(&sink)].to_vec(), os(&sink), 2),
        ("play", film, os(&sink), 2),
        // The source, the sink as a new one, and the sink.
        (
            "copy",
            [&["-rj1".into()][..], &tree].concat(),
            "a".into(),
            3,
        ),
        (
            "copy",
            [&["-rj4".into()][..], &tree].concat(),
            "a".into(),
            3,
        ),
    ];
    let stops = |command: &mut Command, after: OsString, path: OsString, which: usize| {
        let opened = Mutex::new((after.is_empty(), 0));
        let stalling = stalling_where(command, move |made, at| {
            let mut opened = opened.lock().unwrap();
            opened.0 |= made == Call::Open && at == after;
            opened.1 += usize::from(made == Call::Open && at == path && opened.0);
            opened.1 == which
        })?;
        Some(stopped(stalling, Signal::TERM))
    };
    for (verb, args, path, which) in cases {
        let Some(run) = stops(cordboard().arg(verb).args(&args), "".into(), path, which) else {
            return;
        };
        assert_eq!(run.code(), 143, "{verb} {args:?}: {}", run.stderr());
        assert!(read(&sink) == b"old contents", "{verb} {args:?}");
    }
    // It is a source too, which is to be found out while the signal comes.
    std::fs::remove_file(&sink).unwrap();
    std::fs::hard_link(&linked, &sink).unwrap();
    let mut copy = cordboard();
    copy.args(["copy", "-r", "-j1"]).args([&tree[0], &tree[1]]);
    let run = stops(&mut copy, "a".into(), "sub".into(), 1).unwrap();
    assert_eq!(run.code(), 143, "{}", run.stderr());
    assert_eq!(read(&linked), b"new contents");
}

/// Entries of a tree and operands that are left out count like files: the
/// report and the totals say so.
#[test]
fn entries_of_a_tree_that_were_left_out() {
    let dir = dir();
    let make = |name: &str, one: &dyn Fn(&Path)| {
        let tree = dir.path().join(name);
        std::fs::create_dir(&tree).unwrap();
        (0..8).for_each(|i| one(&tree.join(format!("an{i}"))));
        tree
    };
    let links = make("links", &|at| symlink("nothing", at).unwrap());
    let empty = make("empty", &|at| std::fs::create_dir(at).unwrap());
    let files = make("files", &|at| {
        std::fs::create_dir(at).unwrap();
        std::fs::write(at.join("file"), b"all of it").unwrap();
    });
    // The signal comes at the second entry, which is still copied if nothing
    // checks in between.
    let cases = [
        (links, Call::Stat, 2),
        (empty, Call::Open, 0),
        (files, Call::Open, 1),
    ];
    for (from, call, copied) in cases {
        let to = from.with_extension("to");
        let mut copy = cordboard();
        copy.args(["copy", "-r", "--json", "--jobs", "1"])
            .args([&from, &to]);
        let seen = Mutex::new(BTreeSet::new());
        let stalling = stalling_where(&mut copy, move |made, at| {
            let is_entry = made == call && at.as_bytes().starts_with(b"an");
            let mut seen = seen.lock().unwrap();
            is_entry && seen.insert(at.to_owned()) && seen.len() == 2
        });
        let Some(stalling) = stalling else {
            return;
        };
        let run = stopped(stalling, Signal::INT);
        run.fails(130, &["interrupted by SIGINT"]);
        let files = serde_json::json!({"copied": copied, "failed": 0, "left_out": true});
        assert_eq!(run.json()["files"], files, "{from:?}");
        let (sum, stderr) = (run.sum(), run.stderr());
        let said = format!("cordboard: {copied} copied, the rest left out");
        assert_eq!(sum, Some(said), "{stderr}");
    }
}

#[test]
fn operands_that_were_left_out() {
    let dir = dir();
    let [a, b, into] = ["a", "b", "into"].map(|name| dir.path().join(name));
    let stop_at = |call, path: &Path, operands: &[&PathBuf]| {
        let _ = std::fs::remove_dir_all(&into);
        std::fs::create_dir(&into).unwrap();
        let mut copy = cordboard();
        copy.args(["copy", "-r", "--json"]).args(operands);
        let run = stopped_at(&mut copy, call, path, Signal::TERM)?;
        run.fails(143, &["interrupted by SIGTERM"]);
        Some((run.json()["files"].clone(), run.sum()))
    };
    std::fs::create_dir(&a).unwrap();
    std::fs::create_dir(&b).unwrap();
    let told = |left_out| serde_json::json!({"copied": 0, "failed": 0, "left_out": left_out});
    let sum = Some("cordboard: 0 copied, the rest left out".to_owned());
    // The first is done, and is empty.
    let Some(run) = stop_at(Call::Open, &a, &[&a, &b, &into]) else {
        return;
    };
    assert_eq!(run, (told(true), sum.clone()));
    // Before the first.
    let run = stop_at(Call::Stat, &into, &[&a, &into]);
    assert_eq!(run, Some((told(true), sum)));
    // The stop came too late to leave anything out.
    let run = stop_at(Call::Open, &a, &[&a, &into]);
    assert_eq!(run, Some((told(false), None)));
    assert!(into.join("a").is_dir());
}

/// All bytes are there, and the report is not made yet: the directory's sync
/// comes between both.
#[test]
fn a_signal_after_the_last_byte_and_before_the_account() {
    let dir = dir();
    let (from, to) = (file(&dir, "from", b"all of it"), dir.path().join("to"));
    for (command, hash) in [("splice", true), ("copy", false), ("copy", true)] {
        let mut whole = cordboard();
        whole.args([command, "--json", "--sync"]);
        whole
            .args(hash.then_some("--hash=crc32"))
            .args([&from, &to]);
        let Some(run) = stopped_at(&mut whole, Call::Open, dir.path(), Signal::INT) else {
            return;
        };
        assert_eq!(run.code(), 130, "{}", run.stderr());
        let json = run.json();
        assert_eq!(
            (&json["ended"], &json["written"]),
            (&"cancelled".into(), &9.into())
        );
        assert_eq!(std::fs::read(&to).unwrap(), b"all of it");
        std::fs::remove_file(&to).unwrap();
    }
}

/// An interrupt at the keyboard goes to a whole pipeline: the producer's end is
/// the end of the source, and the command gets the signal too.
#[test]
fn an_interrupt_of_the_whole_pipeline_is_no_success() {
    const RUNS: usize = 40;
    let dir = dir();
    let sink = dir.path().join("sink");
    let routes: [&[&str]; 2] = [&[], &["--route", "read/write"]];
    for run in 0..RUNS {
        let mut producer = Command::new("sh")
            .args(["-c", "echo; exec sleep 1000"])
            .stdout(Stdio::piped())
            .process_group(0)
            .start();
        let group = Pid::from_raw(producer.id() as i32).unwrap();
        let child = cordboard()
            .args(["splice", "--json", "--hash", "crc32", "-"])
            .arg(&sink)
            .args(routes[run % 2])
            .stdin(producer.stdout.take().unwrap())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(group.as_raw_nonzero().get())
            .start();
        until("the first byte", || {
            sink.metadata().ok().filter(|m| m.len() == 1)
        });
        kill_process_group(group, Signal::INT).unwrap();
        producer.wait().unwrap();
        let run = end(child);
        assert_eq!(run.code(), 130, "{}", run.stderr());
        let json = run.json();
        assert_eq!(
            (&json["ended"], &json["written"]),
            (&"cancelled".into(), &1.into()),
            "{json}"
        );
        let lines = run.stderr();
        assert_eq!(lines.lines().count(), 2, "no sum of a part: {lines}");
        std::fs::remove_file(&sink).unwrap();
    }
}

/// Whenever it comes, status, report and files agree.
#[test]
fn a_signal_at_many_moments_of_a_copy_of_many_files() {
    const FILES: usize = 300;
    const RUNS: usize = 24;
    let dir = dir();
    let from = dir.path().join("from");
    std::fs::create_dir(&from).unwrap();
    for i in 0..FILES {
        std::fs::write(from.join(i.to_string()), bytes(50 + i)).unwrap();
    }
    let mut stopped = 0;
    for run in 0..RUNS {
        let to = dir.path().join(format!("to{run}"));
        let jobs = ["1", "4"][run % 2];
        let child = cordboard()
            .args(["copy", "-r", "--json", "--jobs", jobs])
            .args([&from, &to])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .start();
        let pid = child.id();
        until("handlers", || handles(pid, 14).then_some(()));
        // The later the signal, the more runs reach the end before it.
        let wanted = FILES * run / RUNS;
        let start = Instant::now();
        while std::fs::read_dir(&to).map_or(0, Iterator::count) < wanted {
            assert!(start.elapsed() < deadline(), "{wanted} files did not come");
        }
        signal(pid, Signal::TERM);
        let run = end(child);
        let json = run.json();
        let (mut whole, mut sum) = (0, 0);
        for i in 0..FILES {
            if let Ok(there) = std::fs::read(to.join(i.to_string())) {
                whole += usize::from(there == bytes(50 + i));
                sum += there.len();
            }
        }
        assert_eq!(json["written"], sum, "{}", run.stderr());
        match run.code() {
            0 => assert_eq!((whole, json["ended"].as_str()), (FILES, Some("eof"))),
            143 => {
                assert_eq!(json["ended"], "cancelled");
                let files = &json["files"];
                let copied = files["copied"].as_u64().unwrap() as usize;
                assert!(copied <= whole && files["failed"] == 0, "{json}");
                assert!(copied == FILES || files["left_out"] == true, "{json}");
                stopped += 1;
            }
            code => panic!("{code}: {}", run.stderr()),
        }
    }
    assert!(stopped > 0, "no signal came in time");
}

/// Whether a signal is pending for a process (`proc(5)`, `ShdPnd`).
fn pending(pid: u32, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("ShdPnd:\t"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}

/// Only a fatal signal ends such a wait, and no handler runs in it.
#[test]
fn two_signals_end_it_whatever_it_waits_for() {
    let dir = dir();
    let from = file(&dir, "from", b"all of it");
    let to = dir.path().join("to");
    let [from, to] = [from, to].map(|path| path.to_str().unwrap().to_owned());
    let stalls = [
        ("copy", Call::Stat, Signal::TERM),
        ("splice", Call::Open, Signal::INT),
    ];
    for (verb, call, by) in stalls {
        let mut command = cordboard();
        command.args([verb, &from, &to]);
        let Some((mut child, stall)) = stalling(&mut command, call, Path::new(&from)) else {
            return;
        };
        let _held = stall.reached();
        let pid = child.id();
        signal(pid, by);
        until("the first to be taken", || {
            (!pending(pid, by)).then_some(())
        });
        assert!(child.try_wait().unwrap().is_none());
        // One that comes so soon counts as the same.
        let status = until("its end", || {
            signal(pid, by);
            child.try_wait().unwrap()
        });
        assert_eq!(status.code(), Some(128 + by.as_raw()));
    }
}

/// Another process splices a silent socket into the pipe that is standard
/// input, and so holds the pipe's lock: no signal ends a process that calls the
/// pipe. An empty one is not read.
#[test]
fn an_interrupt_while_another_process_has_the_lock_of_standard_input() {
    let name = "an_interrupt_while_another_process_has_the_lock_of_standard_input";
    if testkit::needs::missing(name, &[testkit::needs::Need::Splice]) {
        return;
    }
    for command in [&["splice", "-", "-", "--json"][..], &["cat", "--json"]] {
        let locked = testkit::locked::Locked::new();
        let child = cordboard()
            .args(command)
            .stdin(locked.reader.try_clone().unwrap())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .start();
        settled(&child);
        signal(child.id(), Signal::INT);
        let run = end(child);
        run.fails(130, &["interrupted by SIGINT", "0 bytes read"]);
        assert_eq!(run.json()["ended"], "cancelled");
        locked.release();
    }
}

/// The kernel's log has no end: a thread of the copy waits for the next line. No signal
/// interrupts a call of that thread.
#[test]
fn a_signal_ends_a_copy_of_several_that_waits_for_a_file() {
    // Opening it takes no line from it.
    if let Err(error) = std::fs::File::open("/proc/kmsg") {
        return testkit::skip::here(format!("the kernel's log cannot be read: {error}"));
    }
    let dir = dir();
    let into = dir.path().join("into");
    std::fs::create_dir(&into).unwrap();
    let mut command = cordboard();
    command.args(["copy", "--jobs", "4"]);
    command.args((0..70).map(|n| file(&dir, &n.to_string(), b"bytes")));
    command.arg("/proc/kmsg").arg(&into);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.start();
    until("its sink", || into.join("kmsg").exists().then_some(()));
    let tasks = format!("/proc/{}/task", child.id());
    until("the read", || {
        let mut tasks = std::fs::read_dir(&tasks).ok()?;
        tasks.find_map(|task| {
            let path = task.ok()?.path();
            let reads = testkit::locked::sleeps_in(&path, &[libc::SYS_read]);
            (reads || testkit::locked::polls(&path)).then_some(())
        })
    });
    signal(child.id(), Signal::INT);
    let run = end(child);
    assert_eq!(run.code(), 130, "{}", run.stderr());
}
