//! `cordboard play`: frames whole and in order, the audio beside them, and an
//! account of both. Nothing here asserts a time: how frames are paced is tested
//! beside the code, with time that is made up.
#![allow(missing_docs)]

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::JoinHandle;

use common::*;
use rustix::process::Signal;
use serde_json::Value;

const FRAME: usize = 3000;
/// Fast enough for a test, and a frame is still one timer's tick.
const FPS: &str = "1000";

fn start(args: &[&str]) -> Child {
    cordboard()
        .arg("play")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// A film of so many frames, and its sound.
struct Film {
    dir: TempDir,
    audio: PathBuf,
    video: PathBuf,
}

impl Film {
    fn new(video: usize) -> Film {
        let dir = dir();
        Film {
            audio: file(&dir, "audio", &bytes(50_000)),
            video: file(&dir, "video", &bytes(video)),
            dir,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Plays it to these, with these options too.
    fn play(&self, audio_to: &str, video_to: &str, more: &[&str]) -> Child {
        let [audio, video] = [&self.audio, &self.video].map(|p| p.to_str().unwrap());
        let frame = FRAME.to_string();
        let mut args = vec![audio, video, "--audio-to", audio_to, "--video-to", video_to];
        args.extend(["--frame", &frame, "--json"]);
        if !more.contains(&"--fps") {
            args.extend(["--fps", FPS]);
        }
        args.extend(more);
        start(&args)
    }
}

fn fifo(path: &Path) -> &str {
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
    path.to_str().unwrap()
}

/// Reads all there is, a little at a time: the sink is full again and again.
fn slow_reader(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let (mut all, mut piece) = (Vec::new(), [0; 700]);
        // EIO: the other side of a terminal has been closed.
        while let Ok(n @ 1..) = from.read(&mut piece) {
            all.extend_from_slice(&piece[..n]);
            std::thread::yield_now();
        }
        all
    })
}

#[track_caller]
fn counts(json: &Value, name: &str, read: usize, written: usize) {
    let report = &json[name];
    let found = [&report["read"], &report["written"]].map(|n| n.as_u64().unwrap() as usize);
    assert_eq!(found, [read, written], "{name}: {json}");
    let stranded = report["stranded"].as_u64().unwrap() as usize;
    assert_eq!(read, written + stranded, "{name}: {json}");
}

#[test]
fn a_fifo_with_a_slow_reader_and_audio_to_a_file() {
    let film = Film::new(60 * FRAME);
    let (sink, heard) = (film.path("fifo"), film.path("heard"));
    let fifo = fifo(&sink).to_owned();
    let reader = std::thread::spawn(move || File::open(fifo).unwrap());
    let child = film.play(heard.to_str().unwrap(), sink.to_str().unwrap(), &[]);
    let seen = slow_reader(reader.join().unwrap());
    let run = end(child);
    let json = run.ok().json();
    assert!(seen.join().unwrap() == bytes(60 * FRAME));
    assert!(read(heard) == bytes(50_000));
    assert_eq!((&json["frames"], &json["partial"]), (&60.into(), &0.into()));
    assert_eq!(
        (&json["dropped"], &json["ended"]),
        (&0.into(), &"eof".into())
    );
    assert!(json["failed"].is_null() && json["errno"].is_null());
    counts(&json, "video", 60 * FRAME, 60 * FRAME);
    counts(&json, "audio", 50_000, 50_000);
    let lateness = &json["lateness_ms"];
    let order = ["min", "median", "p99", "max"].map(|name| lateness[name].as_f64().unwrap());
    assert!(order.is_sorted() && order[0] >= 0.0, "{json}");
}

#[test]
fn sockets_that_are_read_slowly() {
    let film = Film::new(100 * FRAME);
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let names = listeners
        .each_ref()
        .map(|l| format!("tcp:{}", l.local_addr().unwrap()));
    let child = film.play(&names[0], &names[1], &[]);
    let [audio, video] = listeners.map(|l| slow_reader(l.accept().unwrap().0));
    let json = end(child).ok().json();
    assert!(audio.join().unwrap() == bytes(50_000));
    assert!(video.join().unwrap() == bytes(100 * FRAME));
    assert_eq!(json["frames"], 100);
}

#[test]
fn a_terminal_that_is_read_slowly() {
    use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
    let film = Film::new(30 * FRAME);
    let (master, slave) = terminal();
    let mut raw = tcgetattr(&slave).unwrap();
    raw.make_raw();
    tcsetattr(&slave, OptionalActions::Now, &raw).unwrap();
    let seen = slow_reader(master);
    let child = film.play("/dev/null", &name_of(&slave), &["--progress", "never"]);
    let json = end(child).ok().json();
    drop(slave);
    assert!(seen.join().unwrap() == bytes(30 * FRAME));
    assert_eq!(json["frames"], 30);
    counts(&json, "audio", 50_000, 50_000);
}

/// A terminal, and the side where programs run.
fn terminal() -> (File, File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let slave = (File::options().read(true).write(true))
        .open(name.to_str().unwrap())
        .unwrap();
    (File::from(master), slave)
}

fn name_of(slave: &File) -> String {
    let name = rustix::termios::ttyname(slave, Vec::new()).unwrap();
    name.into_string().unwrap()
}

#[test]
fn a_short_last_frame_is_passed_on_and_told() {
    let film = Film::new(2 * FRAME + 10);
    let out = film.path("out");
    let run = end(film.play("/dev/null", out.to_str().unwrap(), &[]));
    run.fails(0, &["the video's last frame is short: 10 of 3000 bytes"]);
    assert!(read(out) == bytes(2 * FRAME + 10));
    let json = run.json();
    assert_eq!((&json["frames"], &json["partial"]), (&2.into(), &10.into()));
}

#[test]
fn video_from_a_pipe_in_pieces_makes_whole_frames() {
    let film = Film::new(0);
    let list = film.path("list");
    let mut child = start(&[
        film.audio.to_str().unwrap(),
        "-",
        "--audio-to",
        "/dev/null",
        "--video-to",
        "-",
        "--frame",
        "3000",
        "--fps",
        FPS,
        "--lateness",
        list.to_str().unwrap(),
        "--json",
    ]);
    let mut stdin = child.stdin.take().unwrap();
    for piece in bytes(7 * FRAME).chunks(1000) {
        stdin.write_all(piece).unwrap();
    }
    drop(stdin);
    let run = end(child);
    assert!(run.ok().stdout() == bytes(7 * FRAME));
    assert_eq!(run.json()["frames"], 7);
    let list = String::from_utf8(read(list)).unwrap();
    let mut lines = list.lines();
    assert_eq!(
        lines.next(),
        Some("frame,due_ms,begun_ms,done_ms,lateness_ms")
    );
    for (frame, line) in lines.enumerate() {
        let fields: Vec<f64> = line
            .split(',')
            .map(|field| field.parse().unwrap())
            .collect();
        let [number, due, begun, done, lateness] = fields[..] else {
            panic!("{line}");
        };
        assert_eq!((number, due), (frame as f64, frame as f64), "{line}");
        assert!(due <= begun && begun <= done, "{line}");
        assert!((done - due - lateness).abs() < 0.01, "{line}");
    }
    assert_eq!(list.lines().count(), 8);
}

#[test]
fn the_audio_may_outlast_the_video() {
    let film = Film::new(2 * FRAME);
    let out = film.path("out");
    let mut child = start(&[
        "-",
        film.video.to_str().unwrap(),
        "--audio-to",
        "-",
        "--video-to",
        out.to_str().unwrap(),
        "--frame",
        "3000",
        "--fps",
        FPS,
        "--json",
    ]);
    let mut stdin = child.stdin.take().unwrap();
    until("the video", || {
        (read_if(&out).len() == 2 * FRAME).then_some(())
    });
    stdin.write_all(b"still singing").unwrap();
    drop(stdin);
    let run = end(child);
    assert_eq!(run.ok().stdout(), b"still singing");
    counts(&run.json(), "audio", 13, 13);
}

fn read_if(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_default()
}

/// Who reads the audio to its end before looking at the video must not wait for
/// ever, though the video's pipe is full meanwhile.
#[test]
fn the_end_of_the_audio_shows_while_the_video_is_stuck() {
    let film = Film::new(100 * FRAME);
    let paths = ["a", "v"].map(|name| film.path(name));
    let names = paths.each_ref().map(|path| fifo(path).to_owned());
    let child = film.play(&names[0], &names[1], &[]);
    let reader = std::thread::spawn(move || {
        let mut audio = File::open(&names[0]).unwrap();
        let mut video = File::open(&names[1]).unwrap();
        let mut both = [Vec::new(), Vec::new()];
        audio.read_to_end(&mut both[0]).unwrap();
        video.read_to_end(&mut both[1]).unwrap();
        both
    });
    end(child).ok();
    let [audio, video] = reader.join().unwrap();
    assert!(audio == bytes(50_000) && video == bytes(100 * FRAME));
}

#[test]
fn a_video_sink_that_dies_ends_both_with_their_counts() {
    let film = Film::new(0);
    let video = film.path("endless");
    let file = File::create(&video).unwrap();
    file.set_len(1 << 40).unwrap();
    let (sink, stdout) = (film.path("v"), fifo(&film.path("v")).to_owned());
    let mut child = start(&[
        "-",
        video.to_str().unwrap(),
        "--audio-to",
        "-",
        "--video-to",
        &stdout,
        "--frame",
        "3000",
        "--fps",
        FPS,
        "--json",
    ]);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"la").unwrap();
    let mut reader = File::open(&sink).unwrap();
    let mut seen = vec![0; 10 * FRAME];
    reader.read_exact(&mut seen).unwrap();
    let mut la = [0; 2];
    child.stdout.as_mut().unwrap().read_exact(&mut la).unwrap();
    drop(reader);
    let run = end(child);
    run.fails(1, &["v: Broken pipe (EPIPE) at the sink, after "]);
    let json = run.json();
    assert_eq!(
        (&json["failed"], &json["errno"]),
        (&"video".into(), &"EPIPE".into())
    );
    assert_eq!(json["video"]["failed"], "sink");
    let written = json["video"]["written"].as_u64().unwrap() as usize;
    assert!(written >= 10 * FRAME);
    counts(&json, "video", written, written);
    let whole = json["frames"].as_u64().unwrap() as usize * FRAME;
    assert_eq!(written, whole + json["partial"].as_u64().unwrap() as usize);
    assert_eq!(json["audio"]["ended"], "cancelled");
    counts(&json, "audio", 2, 2);
    drop(stdin);
}

#[test]
fn an_audio_sink_that_dies_ends_the_video_too() {
    let film = Film::new(3 * FRAME);
    let out = film.path("out");
    // One frame at once, and the next one hours later.
    let run = end(film.play("/dev/full", out.to_str().unwrap(), &["--fps", "0.0001"]));
    run.fails(
        1,
        &["/dev/full: No space left on device (ENOSPC) at the sink, after 0"],
    );
    let json = run.json();
    assert_eq!(
        (&json["failed"], &json["errno"]),
        (&"audio".into(), &"ENOSPC".into())
    );
    counts(&json, "audio", 0, 0);
    let frames = json["frames"].as_u64().unwrap() as usize;
    assert_eq!(json["video"]["ended"], "cancelled");
    counts(&json, "video", frames * FRAME, frames * FRAME);
    assert!(read_if(&out) == bytes(3 * FRAME)[..frames * FRAME]);
}

#[test]
fn an_interrupt_ends_with_both_accounts() {
    let film = Film::new(3 * FRAME);
    for (signal_, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let out = film.path("out");
        let child = film.play("/dev/null", out.to_str().unwrap(), &["--fps", "0.0001"]);
        until("a frame", || (read_if(&out).len() == FRAME).then_some(()));
        until("sleep", || sleeping(child.id()).then_some(()));
        signal(child.id(), signal_);
        let run = end(child);
        run.fails(
            code,
            &["interrupted by SIG", "1 frame, ", "3000 written", "audio: "],
        );
        let json = run.json();
        assert_eq!(
            (&json["ended"], &json["frames"]),
            (&"cancelled".into(), &1.into())
        );
        counts(&json, "video", FRAME, FRAME);
        std::fs::remove_file(out).unwrap();
    }
}

#[test]
fn an_interrupt_while_a_frame_is_stuck_counts_what_the_sink_took() {
    let film = Film::new(1000 * FRAME);
    let mut child = film.play("/dev/null", "-", &[]);
    let pid = child.id();
    until("handlers", || handles(pid, 14).then_some(()));
    until("sleep", || sleeping(pid).then_some(()));
    signal(pid, Signal::INT);
    let mut stdout = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        stdout.read_to_end(&mut all).unwrap();
        all
    });
    let run = end(child);
    assert_eq!(run.code(), 130, "{}", run.stderr());
    let seen = reader.join().unwrap();
    assert!(seen == bytes(1000 * FRAME)[..seen.len()]);
    // What was read and not written has gone back to the file.
    counts(&run.json(), "video", seen.len(), seen.len());
}

#[test]
fn what_comes_late_is_dropped_only_where_that_is_asked_for() {
    let film = Film::new(40 * FRAME);
    for drop in [&[][..], &["--drop"]] {
        let mut child = film.play("/dev/null", "-", &[&["--fps", "1000000"], drop].concat());
        let mut stdout = child.stdout.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            stdout.read_to_end(&mut all).unwrap();
            all
        });
        let json = end(child).ok().json();
        let seen = reader.join().unwrap();
        let frames = json["frames"].as_u64().unwrap() as usize;
        let dropped = json["dropped"].as_u64().unwrap() as usize;
        assert_eq!(frames + dropped, 40);
        assert_eq!(json["dropped_bytes"], (dropped * FRAME) as u64);
        assert_eq!(seen.len(), frames * FRAME);
        // A microsecond is no time for a frame.
        assert_eq!(dropped > 0, !drop.is_empty());
        let film = bytes(40 * FRAME);
        let mut rest = film.chunks(FRAME);
        for frame in seen.chunks(FRAME) {
            assert!(
                rest.any(|other| other == frame),
                "out of order, or not whole"
            );
        }
    }
}

#[test]
fn dropping_from_a_pipe_counts_every_byte() {
    let film = Film::new(0);
    let mut child = start(&[
        film.audio.to_str().unwrap(),
        "-",
        "--audio-to",
        "/dev/null",
        "--video-to",
        "/dev/null",
        "--frame",
        "3000",
        "--fps",
        "1000000",
        "--drop",
        "--json",
    ]);
    feed(&mut child, &bytes(20 * FRAME + 7));
    let json = end(child).json();
    let whole = json["video"]["written"].as_u64().unwrap();
    let dropped = json["dropped_bytes"].as_u64().unwrap();
    assert_eq!(whole + dropped, 20 * FRAME as u64 + 7, "{json}");
    assert!(dropped > 0);
}

/// At two frames a second this film takes longer than a test may.
#[test]
fn keys_make_it_faster_and_end_it() {
    let film = Film::new(200 * FRAME);
    for (typed, code, frames) in [("}}}}}}}}", 0, Some(200)), ("q", 0, None)] {
        let (mut master, slave) = terminal();
        let before = rustix::termios::tcgetattr(&slave).unwrap().local_modes;
        let [audio, video] = [&film.audio, &film.video].map(|p| p.to_str().unwrap());
        let child = cordboard()
            .args(["play", audio, video, "--audio-to", "/dev/null"])
            .args(["--video-to", "/dev/null", "--frame", "3000", "--fps", "2"])
            .arg("--json")
            .stdin(slave.try_clone().unwrap())
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        until("keys", || {
            let now = rustix::termios::tcgetattr(&slave).unwrap().local_modes;
            (now != before).then_some(())
        });
        master.write_all(typed.as_bytes()).unwrap();
        let run = end(child);
        assert_eq!(run.code(), code, "{}", run.stderr());
        let json = run.json();
        match frames {
            Some(n) => {
                assert_eq!(
                    (&json["frames"], &json["speed"]),
                    (&n.into(), &100.0.into())
                );
                assert_eq!(json["ended"], "eof");
            }
            None => assert_eq!(json["ended"], "cancelled"),
        }
        let after = rustix::termios::tcgetattr(&slave).unwrap().local_modes;
        assert_eq!(after, before);
    }
}

#[test]
fn usr1_tells_how_it_goes() {
    let film = Film::new(3 * FRAME);
    let out = film.path("out");
    let child = film.play("/dev/null", out.to_str().unwrap(), &["--fps", "0.0001"]);
    until("a frame", || (read_if(&out).len() == FRAME).then_some(()));
    until("sleep", || sleeping(child.id()).then_some(()));
    signal(child.id(), Signal::USR1);
    let mut child = child;
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stderr, &mut line).unwrap();
    assert!(line.starts_with("1 frame, lateness "), "{line}");
    assert!(
        line.contains("; audio ") && line.ends_with(" bytes written\n"),
        "{line}"
    );
    signal(child.id(), Signal::INT);
    assert_eq!(end(child).code(), 130);
}

#[test]
fn a_file_that_was_opened_by_the_shell_stands_behind_the_last_frame() {
    let film = Film::new(5 * FRAME);
    let [audio, video] = [&film.audio, &film.video].map(|p| p.to_str().unwrap());
    let script = r#"exec 3<"$2"; "$0" play "$1" fd:3 --audio-to /dev/null --video-to - \
        --frame 1000 --fps 1000 >/dev/null; wc -c <&3; exec 3<"$2"; head -c 4000 <&3 >/dev/null
        "$0" play "$1" fd:3 --audio-to /dev/null --video-to - --frame 1000 --fps 1000"#;
    let run = run(std::process::Command::new("sh").args([
        "-c",
        script,
        env!("CARGO_BIN_EXE_cordboard"),
        audio,
        video,
    ]));
    let expected = [b"0\n", &bytes(5 * FRAME)[4000..]].concat();
    assert!(run.ok().stdout() == expected);
}

#[test]
fn what_cannot_be_played_is_refused_before_anything_moves() {
    let film = Film::new(3 * FRAME);
    let [audio, video] = [&film.audio, &film.video].map(|p| p.to_str().unwrap());
    let (old, new) = (file(&film.dir, "old", b"precious"), film.path("new"));
    let [old, new] = [&old, &new].map(|p| p.to_str().unwrap());
    let missing = "/no/such";
    let cases: &[(&[&str], i32, &[&str], Value)] = &[
        (
            &[missing, video, "-", new],
            1,
            &["/no/such: ", "ENOENT"],
            "audio".into(),
        ),
        (
            &[audio, missing, new, "-"],
            1,
            &["/no/such: ", "ENOENT"],
            "video".into(),
        ),
        (
            &[audio, video, new, "/no/such/x"],
            1,
            &["ENOENT"],
            "video".into(),
        ),
        (
            &[audio, video, old, old],
            2,
            &["both be written to"],
            Value::Null,
        ),
        (
            &[audio, video, "-", "fd:1"],
            2,
            &["both be written to"],
            Value::Null,
        ),
        (
            &["-", "fd:0", old, new],
            2,
            &["both be read from"],
            Value::Null,
        ),
        (
            &[audio, video, video, new],
            1,
            &["it is the same file as the source"],
            "audio".into(),
        ),
        (&[audio, video, old, "/tmp"], 1, &["EISDIR"], "video".into()),
    ];
    for (ends, code, says, failed) in cases {
        let [audio, video, audio_to, video_to] = ends else {
            unreachable!();
        };
        let run = end(start(&[
            audio,
            video,
            "--audio-to",
            audio_to,
            "--video-to",
            video_to,
            "--frame",
            "3000",
            "--fps",
            "25",
            "--json",
        ]));
        run.fails(*code, says);
        let json = run.json();
        assert_eq!(
            (&json["failed"], &json["ended"]),
            (failed, &"error".into()),
            "{json}"
        );
        counts(&json, "audio", 0, 0);
        counts(&json, "video", 0, 0);
        assert_eq!(read(old), b"precious");
        assert!(!Path::new(new).exists(), "{ends:?}");
        assert!(read(&film.video) == bytes(3 * FRAME));
    }
}

#[test]
fn numbers_that_make_no_film() {
    for (frame, fps, speed, says) in [
        ("0", "25", "1", "a frame takes at least one byte"),
        ("1X", "25", "1", "a size is"),
        ("1K", "0", "1", "30000/1001"),
        ("1K", "24/0", "1", "30000/1001"),
        ("1K", "25", "0", "a speed is"),
        ("1K", "25", "fast", "a speed is"),
    ] {
        let run = call([
            "play",
            "a",
            "v",
            "--audio-to",
            "x",
            "--video-to",
            "y",
            "--frame",
            frame,
            "--fps",
            fps,
            "--speed",
            speed,
            "--json",
        ]);
        assert_eq!(run.code(), 2);
        assert!(run.stderr().contains(says), "{}", run.stderr());
        assert_eq!(run.json()["errno"], "EINVAL");
    }
}

#[test]
fn datagrams_that_make_no_frames_are_told_of() {
    let film = Film::new(0);
    let path = film.path("s");
    let name = format!("unix-dgram:{}", path.display());
    let child = start(&[
        film.audio.to_str().unwrap(),
        &name,
        "--audio-to",
        "/dev/null",
        "--video-to",
        "-",
        "--frame",
        "3000",
        "--fps",
        FPS,
        "--json",
    ]);
    let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
    until("a socket", || socket.send_to(&bytes(2000), &path).ok());
    socket.send_to(&bytes(2000), &path).unwrap();
    let run = end(child);
    run.fails(
        1,
        &[
            "do not add up to frames of 3000 bytes: after 2000",
            "--frame",
        ],
    );
    assert!(run.stdout() == bytes(2000));
    assert_eq!(run.json()["partial"], 2000);
}
