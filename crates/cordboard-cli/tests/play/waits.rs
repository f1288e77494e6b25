//! The calls that the player waits with are refused, or fail: the film
//! continues, or reports why not.

use std::io::{BufRead, BufReader};

use rustix::process::Signal;
use testkit::refuse::{refuse, refuse_where};

use crate::common::*;
use crate::film::*;

const FRAMES: usize = 30;

/// The result of a film that is played without some calls.
fn whole(film: &Film, without: impl FnOnce() + Send) {
    let out = film.path("out");
    let child = apart(|| {
        without();
        film.play("/dev/null", out.to_str().unwrap(), &[])
    });
    let json = end(child).ok().json();
    assert_eq!(
        (&json["ended"], &json["frames"]),
        (&"eof".into(), &FRAMES.into()),
        "{json}"
    );
    counts(&json, "audio", 50_000, 50_000);
    assert!(read(out) == bytes(FRAMES * FRAME));
}

#[test]
fn a_timer_that_cannot_be_had_or_set() {
    let film = Film::new(FRAMES * FRAME);
    for call in [libc::SYS_timerfd_create, libc::SYS_timerfd_settime] {
        for errno in [libc::EPERM, libc::ENOSYS, libc::EINVAL] {
            whole(&film, || refuse(&[call], errno));
        }
    }
}

#[test]
fn without_a_timer_a_signal_still_ends_it() {
    let film = Film::new(3 * FRAME);
    let out = film.path("out");
    let mut child = apart(|| {
        refuse(&[libc::SYS_timerfd_settime], libc::EINVAL);
        film.play("/dev/null", out.to_str().unwrap(), &["--fps", "0.0001"])
    });
    until("a frame", || (read_if(&out).len() == FRAME).then_some(()));
    until("sleep", || sleeping(child.id()).then_some(()));
    signal(child.id(), Signal::USR1);
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.starts_with("1 frame, lateness "), "{line}");
    signal(child.id(), Signal::TERM);
    assert_eq!(end(child).code(), 143);
}

/// The descriptor of the audio's end never becomes readable: no eventfd is
/// written to. The audio ends last.
#[test]
fn an_end_that_no_descriptor_tells() {
    let film = Film::new(FRAMES * FRAME);
    whole(&film, || refuse_where(libc::SYS_write, 2, 8, libc::EPERM));
}

/// The C library starts without `ppoll(2)` where there is `poll(2)`.
#[cfg(target_arch = "x86_64")]
mod no_poll {
    use std::io::{Read, Write};

    use super::*;
    use crate::steering::at_terminal;

    /// Audio from a pipe, which ends after the video.
    fn start(film: &Film, calls: &[libc::c_long], errno: i32) -> Owned {
        apart(|| {
            refuse(calls, errno);
            let (video, out) = (film.video.to_str().unwrap(), film.path("out"));
            play(["-", video, "-", out.to_str().unwrap()], &[])
        })
    }

    #[test]
    fn the_film_goes_on() {
        let film = Film::new(FRAMES * FRAME);
        for errno in [libc::EPERM, libc::ENOSYS] {
            let mut child = start(&film, &[libc::SYS_ppoll], errno);
            let out = film.path("out");
            until("the video", || {
                (read_if(&out).len() == FRAMES * FRAME).then_some(())
            });
            feed(&mut child, b"la");
            let mut la = Vec::new();
            child.stdout.take().unwrap().read_to_end(&mut la).unwrap();
            let json = end(child).json();
            assert_eq!((&json["ended"], &la[..]), (&"eof".into(), &b"la"[..]));
        }
    }

    #[test]
    fn keys_are_read() {
        let film = Film::new(200 * FRAME);
        for errno in [libc::EPERM, libc::ENOSYS] {
            let (child, mut master, _slave) = apart(|| {
                refuse(&[libc::SYS_ppoll], errno);
                at_terminal(&film, "/dev/null", &["--frame", "3000", "--fps", "0.0001"])
            });
            master.write_all(b"q").unwrap();
            let run = end(child);
            assert_eq!(run.code(), 0, "{}", run.stderr());
            assert_eq!(run.json()["ended"], "cancelled");
        }
    }

    /// It neither spins, nor ends the film. The C library starts if both calls fail with
    /// `EINVAL`.
    #[test]
    fn nor_any_sleep_is_a_failure() {
        let film = Film::new(FRAMES * FRAME);
        let calls = [
            libc::SYS_ppoll,
            libc::SYS_poll,
            libc::SYS_nanosleep,
            libc::SYS_clock_nanosleep,
        ];
        let run = end(start(&film, &calls, libc::EINVAL));
        run.fails(1, &["EINVAL", "waiting for the time of a frame"]);
        let json = run.json();
        assert_eq!(
            (&json["ended"], &json["errno"]),
            (&"error".into(), &"EINVAL".into())
        );
    }
}

/// The reader of the list may have stopped reading: a signal ends it.
#[test]
fn a_list_without_a_reader() {
    let film = Film::new(3000 * FRAME);
    let list = film.path("list");
    fifo(&list);
    let name = list.clone();
    let reader = std::thread::spawn(move || std::fs::File::open(name).unwrap());
    let more = ["--fps", "1000000", "--lateness", list.to_str().unwrap()];
    let child = film.play("/dev/null", "/dev/null", &more);
    let reader = reader.join().unwrap();
    let pid = child.id();
    until("a full list", || {
        let there = rustix::io::ioctl_fionread(&reader).unwrap();
        (there > 60_000 && sleeping(pid)).then_some(())
    });
    signal(pid, Signal::TERM);
    let run = end(child);
    assert_eq!(run.code(), 143, "{}", run.stderr());
    assert_eq!(run.json()["ended"], "cancelled");
}
