//! Bytes, order and counts, to every kind of sink.

use std::fs::File;
use std::io::Read;
use std::io::Write;
use std::net::TcpListener;

use serde_json::Value;

use crate::common::*;
use crate::film::*;

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

/// The reader opens them in another order than the player.
#[test]
fn two_fifos_whose_reader_opens_the_video_first() {
    let film = Film::new(3 * FRAME);
    let fifos = ["heard", "seen"].map(|name| film.path(name));
    let [heard, seen] = fifos.each_ref().map(|path| fifo(path));
    let child = film.play(heard, seen, &[]);
    let [seen, heard] = [seen, heard].map(|name| File::open(name).unwrap());
    let readers = [heard, seen].map(|mut file| {
        std::thread::spawn(move || {
            let mut all = Vec::new();
            file.read_to_end(&mut all).unwrap();
            all
        })
    });
    let [heard, seen] = readers.map(|reader| reader.join().unwrap());
    end(child).ok();
    assert!(heard == bytes(50_000) && seen == bytes(3 * FRAME));
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

#[test]
fn video_from_a_pipe_in_pieces_makes_whole_frames() {
    let film = Film::new(0);
    let list = film.path("list");
    let mut child = play(
        [film.audio.to_str().unwrap(), "-", "/dev/null", "-"],
        &["--lateness", list.to_str().unwrap()],
    );
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
fn a_list_that_cannot_be_written_stops_nothing() {
    let film = Film::new(5 * FRAME);
    let out = film.path("out");
    let more = ["--lateness", "/dev/full"];
    let run = end(film.play("/dev/null", out.to_str().unwrap(), &more));
    run.fails(1, &["--lateness: No space left on device (ENOSPC)"]);
    assert!(read(out) == bytes(5 * FRAME));
    let json = run.json();
    assert_eq!(
        (&json["frames"], &json["failed"]),
        (&5.into(), &Value::Null)
    );
    assert_eq!(json["errno"], "ENOSPC");
}

/// Nor does a file size limit, which raises a signal.
#[test]
fn a_list_that_may_not_grow_stops_nothing() {
    let film = Film::new(60 * FRAME);
    let list = film.path("list");
    let script = r#"ulimit -f 1; exec "$@""#;
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_cordboard"), "play"])
        .args(film.names())
        .args(["--audio-to", "/dev/null", "--video-to", "/dev/null"])
        .args(["--fps", "1000", "--frame", &FRAME.to_string(), "--json"])
        .arg("--lateness")
        .arg(&list);
    let run = run(&mut shell);
    run.fails(1, &["--lateness: File too large (EFBIG)"]);
    assert_eq!(run.json()["frames"], 60);
    assert_eq!(run.json()["errno"], "EFBIG");
}

/// The peer is not waited for after it has reset the connection: one message is enough.
#[test]
fn a_connection_that_is_reset_is_reported_once() {
    let film = Film::new(3 * FRAME);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let sink = format!("tcp:{}", listener.local_addr().unwrap());
    let peer = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        peer.read_exact(&mut [0; 1000]).unwrap();
        let linger = Some(std::time::Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&peer, linger).unwrap();
    });
    let [_, video] = film.names();
    let run = end(play(
        ["/dev/zero", video, &sink, "/dev/null"],
        &["--fps", "0.001"],
    ));
    peer.join().unwrap();
    run.fails(1, &["at the sink, after "]);
    let about = |line: &&str| line.contains(&sink);
    assert_eq!(
        run.stderr().lines().filter(about).count(),
        1,
        "{}",
        run.stderr()
    );
}

/// A process that reads the audio to its end before the video must not wait forever,
/// although the video's pipe is full.
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

/// NFS, CIFS and FUSE may find out only at `close(2)` that the server has no
/// space.
#[test]
fn what_only_close_tells_is_told() {
    if !can_mount() {
        return;
    }
    let film = Film::new(3 * FRAME);
    let full = testkit::fuse::Served {
        close: libc::ENOSPC,
        ..testkit::fuse::Served::default()
    };
    let mounted = testkit::fuse::with_file(full, |at| {
        let at = at.to_str().unwrap();
        let cases: [(&str, &str, &[&str], Value); 3] = [
            (at, "/dev/null", &[], "audio".into()),
            ("/dev/null", at, &[], "video".into()),
            ("/dev/null", "/dev/null", &["--lateness", at], Value::Null),
        ];
        for (audio, video, more, failed) in cases {
            let run = end(film.play(audio, video, more));
            run.fails(1, &["No space left on device (ENOSPC) at the sink"]);
            let json = run.json();
            assert_eq!(json["ended"], "error", "{json}");
            assert_eq!(
                (&json["failed"], &json["errno"]),
                (&failed, &"ENOSPC".into())
            );
            if let Some(which) = failed.as_str() {
                assert_eq!(json[which]["ended"], "error", "{json}");
                assert_eq!(json[which]["errno"], "ENOSPC", "{json}");
            }
        }
    });
    if !mounted {
        testkit::skip::here("no FUSE here");
    }
}
