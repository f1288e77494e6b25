//! Ends of one or both streams, and the report.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use rustix::process::Signal;

use crate::common::*;
use crate::film::*;

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
fn lines_for_logs() {
    let film = Film::new(10_000 * FRAME);
    let options = ["--fps", "20", "--progress", "lines"];
    let child = film.play("/dev/null", "/dev/null", &options);
    let lines = lines_until_stopped(child);
    let shown: Vec<&str> = lines.lines().collect();
    assert!(shown.len() >= 4, "{lines}");
    for line in &shown[..2] {
        assert!(line.starts_with("frame ") && line.len() <= 79, "{line}");
    }
    let totals = &shown[shown.len() - 2];
    assert!(totals.contains("interrupted by SIGTERM"), "{lines}");
}

#[test]
fn the_audio_may_outlast_the_video() {
    let film = Film::new(2 * FRAME);
    let out = film.path("out");
    let mut child = play(
        [
            "-",
            film.video.to_str().unwrap(),
            "-",
            out.to_str().unwrap(),
        ],
        &[],
    );
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

#[test]
fn a_video_sink_that_dies_ends_both_with_their_counts() {
    let film = Film::new(0);
    let video = film.path("endless");
    let file = File::create(&video).unwrap();
    file.set_len(1 << 40).unwrap();
    let (sink, stdout) = (film.path("v"), fifo(&film.path("v")).to_owned());
    let mut child = play(["-", video.to_str().unwrap(), "-", &stdout], &[]);
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
    assert_eq!(out.exists(), frames > 0, "a file that got nothing");
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
    // What was read and not written was returned to the file.
    counts(&run.json(), "video", seen.len(), seen.len());
}

#[test]
fn datagrams_that_make_no_frames_are_told_of() {
    let film = Film::new(0);
    let path = film.path("s");
    let name = format!("unix-dgram:{}", path.display());
    let child = play([film.audio.to_str().unwrap(), &name, "/dev/null", "-"], &[]);
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

/// The line was requested: a film without its report has failed.
#[test]
fn an_account_that_cannot_be_written() {
    let film = Film::new(3 * FRAME);
    let full = std::fs::File::options().write(true).open("/dev/full");
    let child = cordboard()
        .args(["play", "--json", "--frame", &FRAME.to_string()])
        .args(["--fps", "1000"])
        .args([&film.audio, &film.video])
        .args(["--audio-to", "/dev/null", "--video-to", "-"])
        .stdout(std::process::Stdio::piped())
        .stderr(full.unwrap())
        .start();
    let run = end(child);
    assert_eq!((run.code(), run.stdout().len()), (1, 3 * FRAME));
}

/// As of other commands that print.
#[test]
fn a_standard_output_without_a_reader_ends_it_silently() {
    // More than a pipe holds.
    let film = Film::new(100 * FRAME);
    let (audio, video) = (film.audio.to_str().unwrap(), film.video.to_str().unwrap());
    let mut child = play([audio, video, "/dev/null", "-"], &[]);
    drop(child.stdout.take());
    let mut listing = cordboard();
    listing.args(["play", audio, video, "--json", "--lateness", "-"]);
    listing.args(["--audio-to", "/dev/null", "--video-to", "/dev/null"]);
    listing.args(["--frame", &FRAME.to_string(), "--fps", "1000000"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let listing = listing.stdout(writer).stderr(Stdio::piped()).start();
    for run in [end(child), end(listing)] {
        assert_eq!(run.0.status.signal(), Some(Signal::PIPE.as_raw()));
        assert_eq!(run.stderr().lines().count(), 1, "{}", run.stderr());
        assert_eq!(run.json()["errno"], "EPIPE");
    }
}

/// The kernel grants no lease while another descriptor of a file is open.
#[test]
fn a_new_sink_that_another_may_have_open_is_left_and_told_of() {
    let film = Film::new(FRAME);
    let [audio, video] = film.names();
    let [new, stuck] = ["new", "fifo"].map(|name| film.path(name));
    let (new_, stuck) = (new.to_str().unwrap(), fifo(&stuck));
    // No bytes reach the new sink: of the audio, of the video, of both before
    // they have started.
    for ends in [
        ["-", video, new_, "/dev/null"],
        [audio, "-", "/dev/null", new_],
        [audio, video, new_, stuck],
    ] {
        let mut child = play(ends, &["--fps", "0.0001"]);
        // Its end would be that of the audio.
        let typed = child.stdin.take();
        let reads = until("the sink", || File::open(&new).ok());
        until("sleep", || sleeping(child.id()).then_some(()));
        signal(child.id(), Signal::INT);
        let run = end(child);
        let stderr = run.stderr();
        assert_eq!(run.code(), 130, "{stderr}");
        let left = "new was not removed, as another process may have it open";
        assert!(stderr.contains(left), "{ends:?}: {stderr}");
        assert_eq!(read(&new), b"");
        drop((reads, typed));
        std::fs::remove_file(&new).unwrap();
    }
}
