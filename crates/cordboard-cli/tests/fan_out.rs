//! `cordboard splice SRC DST DST…`.
#![allow(missing_docs)]

mod common;
#[path = "fan_out/reports.rs"]
mod reports;

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use common::overlay::Overlay;
use common::*;
use rustix::fs::{Mode, OFlags};
use serde_json::json;

#[test]
fn a_file_to_two_files_and_standard_output() {
    let dir = dir();
    let path = |name: &str| dir.path().join(name);
    let data = bytes(3_000_000);
    fs::write(path("s"), &data).unwrap();
    fs::write(path("b"), b"replaced").unwrap();
    let run = call([
        "splice".as_ref(),
        path("s").as_os_str(),
        path("a").as_os_str(),
        path("b").as_os_str(),
        "-".as_ref(),
        "--json".as_ref(),
    ]);
    assert!(run.ok().stdout() == data);
    assert!(fs::read(path("a")).unwrap() == data);
    assert!(fs::read(path("b")).unwrap() == data);
    let account = run.json();
    assert_eq!(account["read"], data.len());
    assert_eq!(account["ended"], "eof");
    assert_eq!(account["failed"], json!(null));
    let sinks = account["sinks"].as_array().unwrap();
    assert_eq!(sinks.len(), 3);
    for sink in sinks {
        assert_eq!(
            (&sink["written"], &sink["ended"]),
            (&json!(data.len()), &json!("complete"))
        );
        assert_eq!(
            (&sink["dropped"], &sink["stranded"]),
            (&json!(0), &json!(0))
        );
    }
    assert_eq!(sinks[0]["path"][0], "tee");
}

#[test]
fn a_full_device_is_named_and_the_others_get_everything() {
    let dir = dir();
    let (source, sink) = (dir.path().join("s"), dir.path().join("d"));
    let data = bytes(2_000_000);
    fs::write(&source, &data).unwrap();
    for policy in ["drop", "detach"] {
        let run = call([
            "splice".as_ref(),
            source.as_os_str(),
            "/dev/full".as_ref(),
            sink.as_os_str(),
            "--on-slow".as_ref(),
            policy.as_ref(),
            "--json".as_ref(),
        ]);
        run.fails(1, &["/dev/full", "ENOSPC"]);
        assert!(fs::read(&sink).unwrap() == data, "{policy}");
        let account = run.json();
        assert_eq!(
            (&account["failed"], &account["errno"]),
            (&json!("sink"), &json!("ENOSPC"))
        );
        assert_eq!(account["sinks"][0]["ended"], "failed");
        assert_eq!(account["sinks"][1]["ended"], "complete");
    }
}

#[test]
fn a_reader_that_does_not_read_is_detached() {
    let dir = dir();
    let sink = dir.path().join("d");
    let data = bytes(6_000_000);
    let source = dir.path().join("s");
    fs::write(&source, &data).unwrap();
    // Standard output is not read before the command has ended.
    let (reader, writer) = std::io::pipe().unwrap();
    let child = cordboard()
        .arg("splice")
        .args([source.as_os_str(), "-".as_ref(), sink.as_os_str()])
        .args(["--on-slow", "detach", "--json"])
        .stdout(writer)
        .stderr(Stdio::piped())
        .start();
    let run = end(child);
    run.fails(1, &["standard output", "detached"]);
    drop(reader);
    assert!(fs::read(&sink).unwrap() == data);
    let account = run.json();
    let first = &account["sinks"][0];
    assert_eq!(first["ended"], "detached");
    let sum = first["written"].as_u64().unwrap() + first["stranded"].as_u64().unwrap();
    assert_eq!(first["read"], sum);
}

#[test]
fn two_names_of_one_file_are_refused_and_nothing_is_lost() {
    let dir = dir();
    let (source, sink) = (dir.path().join("s"), dir.path().join("d"));
    fs::write(&source, b"new").unwrap();
    fs::write(&sink, b"old").unwrap();
    let names = [source.as_os_str(), sink.as_os_str(), sink.as_os_str()];
    let run = call([&["splice".as_ref()][..], &names].concat());
    run.fails(1, &["d", "two sinks are the same file"]);
    assert_eq!(fs::read(&sink).unwrap(), b"old");
    let names = [source.as_os_str(), sink.as_os_str(), source.as_os_str()];
    let run = call([&["splice".as_ref()][..], &names].concat());
    run.fails(1, &["same file"]);
    assert_eq!(fs::read(&source).unwrap(), b"new");
    // A file that the command has created is removed.
    let none = dir.path().join("none");
    let run = call([
        "splice".as_ref(),
        source.as_os_str(),
        none.as_os_str(),
        none.as_os_str(),
    ]);
    run.fails(1, &["two sinks are the same file"]);
    assert!(!run.stderr().contains("lease"), "{}", run.stderr());
    assert!(!none.exists());
}

#[test]
fn stages_need_a_single_sink() {
    let run = call(["splice", "/dev/null", "/dev/null", "/dev/null", "--zstd"]);
    run.fails(2, &["single DST"]);
}

/// The reader of a FIFO does not read. The others and the FIFO lack different bytes.
#[test]
fn after_a_signal_each_sink_that_lacks_bytes_is_named() {
    let dir = dir();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("s"), bytes(6_000_000)).unwrap();
    fifo(&path("f"));
    // Both ends, so that the command has a reader.
    let fifo = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path("f"))
        .unwrap();
    let child = cordboard()
        .arg("splice")
        .args([path("s"), path("o"), path("f")])
        .arg("--json")
        .stderr(Stdio::piped())
        .start();
    // Then the FIFO lacks bytes that were read.
    until("more bytes than the FIFO has room for", || {
        let room = rustix::pipe::fcntl_getpipe_size(&fifo).unwrap();
        fs::metadata(path("o"))
            .is_ok_and(|o| o.len() > room as u64)
            .then_some(())
    });
    signal(child.id(), rustix::process::Signal::TERM);
    let run = end(child);
    assert_eq!(run.code(), 143, "{}", run.stderr());
    let account = run.json();
    let sinks = account["sinks"].as_array().unwrap();
    let least = sinks.iter().map(|sink| sink["written"].as_u64().unwrap());
    let least = format!("at least {} written to each sink", least.min().unwrap());
    assert!(run.stderr().contains(&least), "{}", run.stderr());
    for sink in sinks {
        let line = format!(
            "{}: stopped after {} bytes ({} more bytes were read and are lost)",
            sink["sink"].as_str().unwrap(),
            sink["written"],
            sink["stranded"]
        );
        let lacks = sink["stranded"].as_u64().unwrap() > 0;
        assert_eq!(run.stderr().contains(&line), lacks, "{}", run.stderr());
    }
    assert!(sinks[1]["stranded"].as_u64().unwrap() > 0, "{account}");
}

/// As with one sink.
#[test]
fn bytes_that_the_idle_limit_loses_are_a_failure() {
    let dir = dir();
    let sink = dir.path().join("d");
    let data = bytes(200_000);
    let (stdin, mut feed) = std::io::pipe().unwrap();
    // Everything is there before the limit begins.
    rustix::pipe::fcntl_setpipe_size(&feed, 1 << 18).unwrap();
    std::io::Write::write_all(&mut feed, &data).unwrap();
    let (mut reader, stdout) = std::io::pipe().unwrap();
    let mut command = cordboard();
    command.args(["splice", "-", "-"]).arg(&sink);
    command.args(["--json", "--idle", "0.05"]);
    command.stdin(stdin).stdout(stdout).stderr(Stdio::piped());
    let child = command.start();
    // The ends of the pipes that the child has now.
    drop(command);
    let run = end(child);
    assert_eq!(run.code(), 1, "{}", run.stderr());
    let line = "standard output: idle limit reached at the sink, after";
    assert!(run.stderr().contains(line), "{}", run.stderr());
    let account = run.json();
    assert_eq!(account["ended"], "idle");
    let first = &account["sinks"][0];
    assert_eq!(first["ended"], "stopped");
    assert!(first["stranded"].as_u64() > Some(0), "{account}");
    let mut got = Vec::new();
    reader.read_to_end(&mut got).unwrap();
    assert_eq!(first["written"], got.len());
    assert!(got == data[..got.len()]);
}

/// The first peer has all bytes in its queue, and reads none before the end.
#[test]
fn a_peer_that_does_not_read_delays_no_other_end() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(300_000));
    let listen = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (slow, fast) = (listen(), listen());
    // Inherited by the connection: only a part of the bytes is acknowledged.
    rustix::net::sockopt::set_socket_recv_buffer_size(&slow, 16384).unwrap();
    let name =
        |listener: &std::net::TcpListener| format!("tcp:{}", listener.local_addr().unwrap()).into();
    let names: [std::ffi::OsString; 2] = [name(&slow), name(&fast)];
    let child = cordboard()
        .args(["splice".into(), source.into_os_string()])
        .args(names)
        .stderr(Stdio::piped())
        .start();
    let (mut slow, _) = slow.accept().unwrap();
    let (mut fast, _) = fast.accept().unwrap();
    let mut got = Vec::new();
    fast.read_to_end(&mut got).unwrap();
    assert!(got == bytes(300_000));
    got.clear();
    slow.read_to_end(&mut got).unwrap();
    assert!(got == bytes(300_000));
    let run = end(child);
    run.ok();
    // It has not given up its wait for the first peer.
    assert_eq!(run.stderr(), "");
}

/// As with one sink.
#[test]
fn files_that_stay_empty_are_removed_after_a_failure() {
    let dir = dir();
    let path = |name: &str| dir.path().join(name);
    let run = call([
        "splice".as_ref(),
        // Address 0 is never mapped.
        "/proc/self/mem".as_ref(),
        path("a").as_os_str(),
        path("b").as_os_str(),
    ]);
    run.fails(1, &["EIO"]);
    assert!(!path("a").exists() && !path("b").exists());
}

/// A close with unread bytes would be a reset, which discards what the peer has not acknowledged.
#[test]
fn a_detached_peer_that_was_not_read_gets_every_counted_byte() {
    let dir = dir();
    let second = dir.path().join("fifo");
    let second = fifo(&second);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // Inherited by the connection.
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 16384).unwrap();
    let name = format!("tcp:{}", listener.local_addr().unwrap());
    let child = piped(
        cordboard()
            .args(["splice", "/dev/zero", &name, second])
            .args(["--size", "100M", "--on-slow", "detach", "--json"]),
    );
    let (mut peer, _) = listener.accept().unwrap();
    send_unread(&mut peer);
    // Nothing moves before the FIFO has a reader.
    let mut reader = File::open(second).unwrap();
    let read = std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
    assert_eq!(read, 100 << 20);
    let run = end(child);
    run.fails(1, &["detached"]);
    let written = run.json()["sinks"][0]["written"].as_u64().unwrap();
    let mut got = Vec::new();
    peer.read_to_end(&mut got).unwrap();
    assert_eq!(got.len() as u64, written);
}

/// The terminal would take U+009B for the start of an escape sequence.
#[test]
fn names_in_the_report_do_not_affect_a_terminal() {
    let dir = dir();
    let path = |name: &str| dir.path().join(name);
    let run = call([
        "splice".as_ref(),
        "/dev/null".as_ref(),
        path("\u{9b}31m").as_os_str(),
        path("b").as_os_str(),
        "--json".as_ref(),
    ]);
    let account = run.ok().json();
    let name = account["sinks"][0]["sink"].as_str().unwrap();
    assert!(name.ends_with("\u{9b}31m"), "{name:?}");
    assert!(!run.stderr().contains('\u{9b}'));
}

#[test]
fn a_single_sink_is_never_too_slow() {
    let run = call(["splice", "/dev/null", "/dev/null", "--on-slow", "drop"]);
    run.fails(2, &["--on-slow", "several DST"]);
}

#[test]
fn a_closed_standard_output_ends_it_as_sigpipe_does() {
    let dir = dir();
    let source = file(&dir, "s", &bytes(3_000_000));
    let sink = dir.path().join("d");
    for policy in ["block", "drop"] {
        let run = run_unread(
            cordboard()
                .arg("splice")
                .args([source.as_os_str(), sink.as_os_str(), "-".as_ref()])
                .args(["--on-slow", policy]),
        );
        if policy == "block" {
            let signal = std::os::unix::process::ExitStatusExt::signal(&run.0.status);
            assert_eq!(signal, Some(libc::SIGPIPE), "{}", run.stderr());
            assert_eq!(run.stderr(), "");
        } else {
            // The other sink gets everything.
            run.fails(1, &["standard output", "EPIPE"]);
            assert!(read(&sink) == bytes(3_000_000));
        }
    }
}

/// The reader opens the FIFOs in another order than the command names them.
#[test]
fn a_fifo_without_a_reader_delays_no_other_sink() {
    let dir = dir();
    let path = |name: &str| dir.path().join(name);
    let source = file(&dir, "s", &bytes(10_000));
    for name in ["f", "g"] {
        fifo(&path(name));
    }
    let child = cordboard()
        .arg("splice")
        .args([source, path("f"), path("g"), path("d")])
        .args(["--on-slow", "detach"])
        .stderr(Stdio::piped())
        .start();
    let open = |name| {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let fd = rustix::fs::open(path(name), flags, Mode::empty()).unwrap();
        until("a writer", || {
            // 0 bytes without a writer.
            let shown = rustix::io::read(&fd, &mut [0; 1]);
            (shown == Err(rustix::io::Errno::AGAIN)).then_some(())
        });
        rustix::io::ioctl_fionbio(&fd, false).unwrap();
        fs::File::from(fd)
    };
    let mut second = open("g");
    // Nothing moves before each FIFO has a reader. The file is opened after them.
    assert_eq!(fs::metadata(path("d")).map_or(0, |file| file.len()), 0);
    let mut first = fs::File::open(path("f")).unwrap();
    for fifo in [&mut first, &mut second] {
        let mut got = Vec::new();
        fifo.read_to_end(&mut got).unwrap();
        assert!(got == bytes(10_000));
    }
    end(child).ok();
    assert!(read(path("d")) == bytes(10_000));
}

/// The peers come in another order than the command names the listeners.
#[test]
fn a_sink_that_listens_delays_no_other_sink() {
    let dir = dir();
    let path = |name: &str| dir.path().join(name);
    let source = file(&dir, "s", &bytes(10_000));
    fifo(&path("f"));
    let child = cordboard()
        .arg("splice")
        .arg(&source)
        .args(["a", "b"].map(|name| format!("unix-listen:{}", path(name).display())))
        .args([path("f"), path("d")])
        .stderr(Stdio::piped())
        .start();
    let peers = ["b", "a"].map(|name| {
        let connect = || UnixStream::connect(path(name)).ok();
        until("a listener", connect)
    });
    let mut reader = File::open(path("f")).unwrap();
    let read_all = |from: &mut dyn Read| {
        let mut all = Vec::new();
        from.read_to_end(&mut all).unwrap();
        assert!(all == bytes(10_000));
    };
    read_all(&mut reader);
    for mut peer in peers {
        read_all(&mut peer);
    }
    end(child).ok();
    assert!(read(path("d")) == bytes(10_000));
    assert!(!path("a").exists() && !path("b").exists());
}

#[test]
fn a_signal_ends_the_wait_for_readers_and_removes_new_files() {
    let dir = dir();
    let path = |name: &str| dir.path().join(name);
    let source = file(&dir, "s", &bytes(10));
    for name in ["f", "g"] {
        fifo(&path(name));
    }
    let child = cordboard()
        .arg("splice")
        .args([source, path("f"), path("g"), path("d")])
        .stderr(Stdio::piped())
        .start();
    until("the new file", || path("d").exists().then_some(()));
    signal(child.id(), rustix::process::Signal::TERM);
    end(child).fails(143, &["0 bytes read"]);
    assert!(!path("d").exists());
}

#[test]
fn no_sink_is_truncated_if_a_later_one_is_the_source() {
    let Some(overlay) = Overlay::mount() else {
        return;
    };
    let [merged, upper] = ["merged/f", "upper/f"].map(|name| overlay.at(name));
    std::fs::write(&merged, bytes(5000)).unwrap();
    let dir = dir();
    let first = file(&dir, "first", b"kept");
    let run = run(cordboard().arg("splice").args([&upper, &first, &merged]));
    run.fails(
        1,
        &["is the same file as the source", "nothing was written"],
    );
    assert_eq!(read(&first), b"kept");
    assert!(read(&merged) == bytes(5000));
}

#[test]
fn a_source_is_not_appended_to_itself_by_another_device_number() {
    let Some(overlay) = Overlay::mount() else {
        return;
    };
    let [merged, upper] = ["merged/f", "upper/f"].map(|name| overlay.at(name));
    std::fs::write(&merged, bytes(5000)).unwrap();
    for (source, sink) in [(&upper, &merged), (&merged, &merged)] {
        // The limit ends a file that would grow forever.
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -f 64; exec \"$@\"", "sh"]);
        limited.arg(cordboard().get_program());
        limited.args(["splice", "--append"]).arg(source);
        limited.stdin(Stdio::null()).stdout(Stdio::piped());
        limited.arg("/dev/null").arg(sink).stderr(Stdio::piped());
        let run = run(&mut limited);
        run.fails(1, &["would grow forever"]);
        assert!(read(&merged) == bytes(5000));
    }
}
