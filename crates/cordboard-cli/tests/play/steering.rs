//! Dropping frames, keys, and requests for progress.

use std::fs::File;
use std::io::Read;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpgrp, ioctl_tiocsctty, setsid, waitid,
};
use rustix::termios::{LocalModes, tcgetattr, tcsetpgrp};
use serde_json::Value;

use crate::common::*;
use crate::film::*;

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
        // No frame is complete within a microsecond.
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
    let mut child = play(
        [film.audio.to_str().unwrap(), "-", "/dev/null", "/dev/null"],
        &["--fps", "1000000", "--drop"],
    );
    feed(&mut child, &bytes(20 * FRAME + 7));
    let json = end(child).json();
    let whole = json["video"]["written"].as_u64().unwrap();
    let dropped = json["dropped_bytes"].as_u64().unwrap();
    assert_eq!(whole + dropped, 20 * FRAME as u64 + 7, "{json}");
    assert!(dropped > 0);
}

/// Any file can have the name `/dev/null`, or none.
#[test]
fn no_frame_is_dropped_into_dev_null() {
    if !can_mount() {
        return;
    }
    let film = Film::new(0);
    let dir = dir();
    let other = file(&dir, "other", b"not to be written to");
    let script = r#"case "$0" in
        none) mount -t tmpfs none /dev ;;
        *) mount --bind "$0" /dev/null ;;
        esac && exec "$@""#;
    for place in [other.as_path(), "none".as_ref()] {
        let sinks = ["audio", "video"].map(|name| dir.path().join(name));
        let mut child = Command::new("unshare")
            .args(["--mount", "sh", "-c", script])
            .arg(place)
            .arg(env!("CARGO_BIN_EXE_cordboard"))
            .arg("play")
            .args([film.audio.as_os_str(), "-".as_ref()])
            .args(["--audio-to".as_ref(), sinks[0].as_os_str()])
            .args(["--video-to".as_ref(), sinks[1].as_os_str()])
            .args(["--json", "--fps", "1000000", "--drop"])
            .args(["--frame", &FRAME.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .start();
        feed(&mut child, &bytes(20 * FRAME));
        let json = end(child).ok().json();
        let dropped = json["dropped_bytes"].as_u64().unwrap();
        let whole = json["video"]["written"].as_u64().unwrap();
        assert!(dropped > 0);
        assert_eq!(whole + dropped, 20 * FRAME as u64, "{json}");
        assert_eq!(sinks[1].metadata().unwrap().len(), whole);
        assert!(read(&other) == b"not to be written to");
    }
}

/// Plays at a terminal whose keys it reads by now; returns the terminal.
pub fn at_terminal(film: &Film, video_to: &str, more: &[&str]) -> (Owned, File, File) {
    at_this_terminal(terminal(), film, video_to, more)
}

fn at_this_terminal(
    (master, slave): (File, File),
    film: &Film,
    video_to: &str,
    more: &[&str],
) -> (Owned, File, File) {
    let before = modes(&slave);
    let [audio, video] = film.names();
    let child = cordboard()
        .args(["play", audio, video, "--audio-to", "/dev/null"])
        .args(["--video-to", video_to, "--json"])
        .args(more)
        .stdin(slave.try_clone().unwrap())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .start();
    until("keys", || (modes(&slave) != before).then_some(()));
    (child, master, slave)
}

pub fn modes(terminal: &File) -> LocalModes {
    tcgetattr(terminal).unwrap().local_modes
}

/// At two frames per second this film takes longer than a test may.
#[test]
fn keys_make_it_faster_and_end_it() {
    let film = Film::new(200 * FRAME);
    for (typed, code, frames) in [("}}}}}}}}", 0, Some(200)), ("q", 0, None)] {
        let more = ["--frame", "3000", "--fps", "2"];
        let (child, mut master, slave) = at_terminal(&film, "/dev/null", &more);
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
        assert_eq!(modes(&slave), modes(&terminal().1), "as it was");
    }
}

/// The status line shows the pause; then the film is resumed, or quit.
#[test]
fn a_key_holds_the_video_and_lets_it_go_on() {
    let film = Film::new(200 * FRAME);
    for (typed, ended) in [("}}}}}}}} ", "eof"), ("q", "cancelled")] {
        let more = ["--frame", "3000", "--fps", "2", "--progress", "always"];
        let (child, mut master, _slave) = at_terminal(&film, "/dev/null", &more);
        master.write_all(b" ").unwrap();
        let (child, seen) = paused(child);
        master.write_all(typed.as_bytes()).unwrap();
        let json = quits(child, seen);
        assert_eq!(json["ended"], ended);
        let all = json["frames"] == 200 && json["speed"] == 100.0;
        assert_eq!(all, ended == "eof", "{json}");
        if all {
            counts(&json, "audio", 50_000, 50_000);
        }
    }
}

/// Without ICANON, a terminal is readable from VMIN bytes on (`stty min 5`).
#[test]
fn one_key_is_enough() {
    use rustix::termios::{OptionalActions, SpecialCodeIndex, tcsetattr};
    let film = Film::new(200 * FRAME);
    let (master, slave) = terminal();
    let mut set = tcgetattr(&slave).unwrap();
    set.special_codes[SpecialCodeIndex::VMIN] = 5;
    tcsetattr(&slave, OptionalActions::Now, &set).unwrap();
    let more = ["--frame", "3000", "--fps", "0.0001"];
    let (child, mut master, slave) = at_this_terminal((master, slave), &film, "/dev/null", &more);
    master.write_all(b"q").unwrap();
    let run = end(child);
    assert_eq!(run.code(), 0, "{}", run.stderr());
    let after = tcgetattr(&slave).unwrap();
    assert_eq!(after.special_codes[SpecialCodeIndex::VMIN], 5);
}

/// Escape is no key of the player, and no part of a later one.
#[test]
fn a_key_long_after_escape_is_heard() {
    let film = Film::new(200 * FRAME);
    for (typed, speed) in [("q", 1.0), ("[q", 1.0 / 1.1)] {
        let more = ["--frame", "3000", "--fps", "2", "--progress", "always"];
        let (child, mut master, _slave) = at_terminal(&film, "/dev/null", &more);
        // Both arrive together.
        master.write_all(b" \x1b").unwrap();
        let (child, seen) = paused(child);
        // More than the longest time between the bytes of one key.
        std::thread::sleep(std::time::Duration::from_millis(100));
        master.write_all(typed.as_bytes()).unwrap();
        let json = quits(child, seen);
        assert_eq!(json["ended"], "cancelled");
        let found = json["speed"].as_f64().unwrap();
        assert!((found - speed).abs() < 0.01, "{json}");
    }
}

/// Waits until the status line shows the pause. Returns all that was printed.
fn paused(mut child: Owned) -> (Owned, String) {
    let stderr = child.stderr.as_mut().unwrap();
    let mut seen = String::new();
    let mut piece = [0; 256];
    while !seen.contains("  paused") {
        let n = stderr.read(&mut piece).unwrap();
        assert!(n > 0, "{seen}");
        seen += std::str::from_utf8(&piece[..n]).unwrap();
    }
    (child, seen)
}

/// The report of a film that ends with success, after this was printed.
fn quits(child: Owned, mut seen: String) -> Value {
    let run = end(child);
    seen += &run.stderr();
    assert_eq!(run.code(), 0, "{seen}");
    let mut json = seen
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    json.next().unwrap_or_else(|| panic!("{seen}"))
}

/// Opens the film of a [job], which has taken the terminal once this returns.
pub fn begun(film: &Path, slave: &File, before: LocalModes) -> File {
    let film = File::options().write(true).open(film).unwrap();
    until("keys", || (modes(slave) != before).then_some(()));
    film
}

/// Plays at a terminal from a FIFO, which this creates: it checks the
/// foreground once that is open.
pub fn job(film: &Film, path: &Path, slave: &File) -> Command {
    let mut play = cordboard();
    play.args(["play", film.audio.to_str().unwrap(), fifo(path), "--json"])
        .args(["--audio-to", "/dev/null", "--video-to", "/dev/null"])
        .args(["--frame", "3000", "--fps", "0.0001"])
        .stdin(slave.try_clone().unwrap())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    play
}

/// The signal does not stop an orphaned process group (setpgid(2)), which no
/// shell could continue: no SIGCONT follows after which it could take the
/// terminal again.
#[test]
fn the_keys_are_still_heard_where_the_signal_stops_nothing() {
    let film = Film::new(0);
    let path = film.path("fifo");
    let (mut master, slave) = terminal();
    let mut play = job(&film, &path, &slave);
    let before = modes(&slave);
    assert!(testkit::child::in_a_child(|| {
        setsid().unwrap();
        ioctl_tiocsctty(&slave).unwrap();
        let mut child = play.start();
        let film = begun(&path, &slave, before);
        let keys = modes(&slave);
        for by in [Signal::TSTP, Signal::USR1] {
            signal(child.id(), by);
        }
        let mut line = [0; 256];
        let n = child.stderr.as_mut().unwrap().read(&mut line).unwrap();
        let heard = line[..n].starts_with(b"0 frames") && modes(&slave) == keys;
        match heard {
            true => master.write_all(b"q").unwrap(),
            false => child.kill().unwrap(),
        }
        let ended = child.wait().unwrap().code() == Some(0);
        drop(film);
        ended && modes(&slave) == before
    }));
}

/// As a shell does with its jobs: Ctrl-Z stops this one, it continues in the
/// background, then in the foreground, and ends.
#[test]
fn the_terminal_is_given_back_while_it_is_stopped_and_in_the_background() {
    let film = Film::new(0);
    let path = film.path("fifo");
    let (mut master, slave) = terminal();
    let mut play = job(&film, &path, &slave);
    play.process_group(0);
    let before = modes(&slave);
    assert!(testkit::child::in_a_child(|| {
        // Failures go straight to standard error: locks may be held.
        let is = |so: bool, what: &str| {
            so || {
                let _ = rustix::io::write(rustix::stdio::stderr(), what.as_bytes());
                false
            }
        };
        setsid().unwrap();
        ioctl_tiocsctty(&slave).unwrap();
        // Taking the foreground from another process does not stop this one.
        // SAFETY: takes integers; the process is a child of its own.
        unsafe { libc::signal(libc::SIGTTOU, libc::SIG_IGN) };
        let mut child = play.start();
        let pid = Pid::from_child(&child);
        tcsetpgrp(&slave, pid).unwrap();
        // It does not check the foreground before that.
        let film = begun(&path, &slave, before);
        let keys = modes(&slave);
        let given_back = || modes(&slave) == before;
        let id = child.id();
        let next = || next_of(id);
        let back_again = || {
            signal(id, Signal::CONT);
            until("keys again", || (modes(&slave) == keys).then_some(()));
        };

        master.write_all(b"\x1a").unwrap();
        let by = next().stopping_signal();
        if !is(by == Some(Signal::TSTP.as_raw()), "not stopped\n")
            || !is(given_back(), "the modes of a stopped job\n")
        {
            return false;
        }
        tcsetpgrp(&slave, getpgrp()).unwrap();
        signal(id, Signal::CONT);
        // It prints the line only once it has handled the signal before.
        signal(id, Signal::USR1);
        let mut line = [0; 256];
        let stderr = child.stderr.as_mut().unwrap();
        let n = stderr.read(&mut line).unwrap();
        if !is(line[..n].starts_with(b"0 frames"), "not told\n")
            || !is(given_back(), "the modes of a job in the background\n")
        {
            return false;
        }
        // Input is for the foreground job: reading it would stop the film. The
        // film checks that before it reports the frame the second time.
        let mut tells = || {
            signal(id, Signal::USR1);
            let told = until("a line, or a stop", || {
                let now = Timespec::default();
                let mut told = [PollFd::new(&*stderr, PollFlags::IN)];
                let told = poll(&mut told, Some(&now)).unwrap() > 0;
                let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
                let stopped = waitid(WaitId::Pid(pid), options).unwrap().is_some();
                (told || stopped).then_some(told && !stopped)
            });
            told.then(|| {
                let n = stderr.read(&mut line).unwrap();
                line[..n].starts_with(b"1 frame")
            })
        };
        (&film).write_all(&bytes(FRAME)).unwrap();
        until("a frame", || (tells() != Some(false)).then_some(()));
        master.write_all(b"typed\n").unwrap();
        let mut goes_on = || tells() == Some(true);
        if !is(goes_on() && goes_on(), "stopped by what was typed\n") {
            return false;
        }
        tcsetpgrp(&slave, pid).unwrap();
        back_again();
        master.write_all(b"\x1a").unwrap();
        if !is(next().stopped() && given_back(), "the second time\n") {
            return false;
        }
        back_again();
        master.write_all(b"q").unwrap();
        let code = next().exit_status();
        drop(film);
        is(code == Some(0) && given_back(), "the end\n")
    }));
}

/// A frame that no pipe can hold, with a reader that does not read.
#[test]
fn the_key_for_the_end_is_heard_while_a_frame_is_stuck() {
    const LARGE: usize = 3 << 20;
    let film = Film::new(2 * LARGE);
    let path = film.path("fifo");
    let name = fifo(&path).to_owned();
    let reader = std::thread::spawn(move || File::open(name).unwrap());
    let more = ["--frame", "3M", "--fps", "25"];
    let (child, mut master, _slave) = at_terminal(&film, path.to_str().unwrap(), &more);
    let mut reader = reader.join().unwrap();
    until("a part of the frame", || {
        let there = rustix::io::ioctl_fionread(&reader).unwrap();
        (there > 0).then_some(())
    });
    master.write_all(b"q").unwrap();
    let run = end(child);
    assert_eq!(run.code(), 0, "{}", run.stderr());
    let mut seen = Vec::new();
    reader.read_to_end(&mut seen).unwrap();
    assert!(seen == bytes(LARGE)[..seen.len()]);
    let json = run.json();
    assert_eq!(
        (&json["ended"], &json["frames"]),
        (&"cancelled".into(), &0.into())
    );
    // What was read and not written was returned to the file.
    counts(&json, "video", seen.len(), seen.len());
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
