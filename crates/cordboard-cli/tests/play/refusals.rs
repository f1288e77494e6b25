//! What cannot be played is reported, and nothing is changed.

use std::path::Path;

use serde_json::Value;

use crate::common::overlay::Overlay;
use crate::common::*;
use crate::film::*;

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
            &["both write to it"],
            Value::Null,
        ),
        (
            &[audio, video, "-", "fd:1"],
            2,
            &["both write to it"],
            Value::Null,
        ),
        (
            &["-", "fd:0", old, new],
            2,
            &["both read from it"],
            Value::Null,
        ),
        (
            &[audio, video, video, new],
            1,
            &["is the same file as the source"],
            "audio".into(),
        ),
        (&[audio, video, old, "/tmp"], 1, &["EISDIR"], "video".into()),
    ];
    for (ends, code, says, failed) in cases {
        let [audio, video, audio_to, video_to] = ends else {
            unreachable!();
        };
        let run = end(play([audio, video, audio_to, video_to], &["--fps", "25"]));
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

/// Two descriptors with one position would take each other's bytes.
#[test]
fn one_position_is_not_both_sources() {
    let file = tempfile::tempfile().unwrap();
    if !cordboard::endpoint::same_description(&file, file.try_clone().unwrap()) {
        return testkit::skip::here("no call compares descriptions here");
    }
    let film = Film::new(3 * FRAME);
    let script = r#"exec "$0" play - fd:3 --fps 25 --frame 10 --audio-to /dev/null \
        --video-to /dev/null 3<&0"#;
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", script, env!("CARGO_BIN_EXE_cordboard")])
        .stdin(std::fs::File::open(&film.video).unwrap());
    run(&mut shell).fails(2, &["both read from it"]);
}

/// The list is opened before anything is truncated, and is none of the four.
#[test]
fn a_list_that_cannot_be_made_costs_nothing() {
    let film = Film::new(3 * FRAME);
    let [audio, video] = film.names();
    let (old, new) = (file(&film.dir, "old", b"precious"), film.path("new"));
    let [old, new] = [&old, &new].map(|p| p.to_str().unwrap());
    let into = "the list of frames cannot go to";
    for (list, code, says) in [
        ("/no/such/list", 1, "/no/such/list: No such file"),
        ("tpc:host:1", 2, "unknown scheme"),
        (old, 2, into),
        (new, 2, into),
        (audio, 2, into),
        (video, 2, into),
    ] {
        let more = ["--lateness", list];
        let run = end(film.play(old, new, &more));
        run.fails(code, &[list, says]);
        let json = run.json();
        assert_eq!(
            (&json["failed"], &json["frames"]),
            (&Value::Null, &0.into())
        );
        assert_eq!(read(old), b"precious");
        assert!(!Path::new(new).exists(), "{list}");
        assert!(read(audio) == bytes(50_000) && read(video) == bytes(3 * FRAME));
    }
    // Nor is it created if something else fails.
    let end_ = end(film.play(old, "/tmp", &["--lateness", new]));
    end_.fails(1, &["EISDIR"]);
    let end_ = end(film.play(old, video, &["--lateness", new]));
    end_.fails(1, &["same file as the source"]);
    assert_eq!(read(old), b"precious");
    assert!(!Path::new(new).exists());
}

/// The list is the film under another device number.
#[test]
fn a_film_is_not_overwritten_by_its_list() {
    let Some(overlay) = Overlay::mount() else {
        return;
    };
    let film = Film::new(FRAME);
    let [merged, upper, new] = ["merged/f", "upper/f", "new"].map(|name| overlay.at(name));
    std::fs::write(&merged, bytes(3 * FRAME)).unwrap();
    let [merged, upper, new] = [&merged, &upper, &new].map(|path| path.to_str().unwrap());
    let [audio, _] = film.names();
    let run = end(play(
        [audio, merged, new, "/dev/null"],
        &["--lateness", upper],
    ));
    run.fails(1, &["is the same file as the source"]);
    assert!(read(merged) == bytes(3 * FRAME));
    assert!(!Path::new(new).exists());
}

#[test]
fn numbers_that_make_no_film() {
    for (frame, fps, speed, says) in [
        ("0", "25", "1", "a frame has at least one byte"),
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
fn sinks_keep_their_contents_if_the_engine_cannot_be_started() {
    let film = Film::new(2 * FRAME);
    let sinks = ["a", "v"].map(|name| file(&film.dir, name, b"old"));
    let mut refused = 0;
    for limit in 7..16 {
        let mut shell = std::process::Command::new("sh");
        let script = r#"exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit -n "$0"; exec "$@""#;
        shell.args(["-c", script, &limit.to_string()]);
        shell.args([env!("CARGO_BIN_EXE_cordboard"), "play"]);
        shell.args([&film.audio, &film.video]);
        shell.arg("--audio-to").arg(&sinks[0]);
        shell.arg("--video-to").arg(&sinks[1]);
        shell.args(["--fps", "1000", "--frame", &FRAME.to_string()]);
        let run = run(shell.stdin(std::process::Stdio::null()));
        // Later, the engine's own threads may take the last descriptor.
        if run.stderr().contains("engine could not be started") {
            refused += 1;
            let kept = sinks.each_ref().map(read);
            assert_eq!(kept, [b"old", b"old"], "{limit}: {}", run.stderr());
        }
        for sink in &sinks {
            std::fs::write(sink, b"old").unwrap();
        }
    }
    assert_ne!(refused, 0);
}
