//! Transfers are steered by keys.

use std::os::unix::process::ExitStatusExt;

use super::Home;
use super::common::until;
use super::tty::Tty;

#[test]
fn a_person_watches_pauses_paces_and_cancels() {
    let home = Home::make();
    let mut moving = home.moving("one", &["--rate", "1M"]);
    let mut tty = Tty::start(home.cordboard().arg("top"), 12, 80);
    // With a graph.
    tty.shows(&["> /dev/zero -> /dev/null", "running", "iB/s", "█"]);
    tty.shows(&["max 1.0 MiB/s", "pid"]);
    tty.shows(&["q quit", "p pause"]);
    tty.press("p");
    tty.shows(&["> /dev/zero -> /dev/null", "paused"]);
    assert_eq!(moving.status()["state"], "paused");
    tty.press("r");
    tty.shows(&["/dev/null", "running"]);
    tty.press(" ");
    tty.shows(&["/dev/null", "paused"]);
    tty.press(" ");
    tty.shows(&["/dev/null", "running"]);
    tty.press("+");
    tty.shows(&["max 2.0 MiB/s"]);
    // Each key begins where the last one has ended, also of those that arrive together.
    for (keys, rate) in [("++", 10 << 20), ("---", 1 << 20)] {
        tty.press(keys);
        until("the rate", || {
            (moving.status()["schedule"]["rate"] == rate).then_some(())
        });
    }
    tty.press("=64x\x7fK");
    tty.shows(&["rate of /dev/zero -> /dev/null: 64K_"]);
    tty.press("\r");
    tty.shows(&["max 64 KiB/s"]);
    tty.press("a");
    tty.shows(&["auto background"]);
    tty.press("0");
    tty.sees("no schedule", |lines| {
        !lines.iter().any(|line| line.contains("auto"))
    });
    tty.press("c");
    tty.shows(&["cancel /dev/zero -> /dev/null? y/n"]);
    tty.press("n");
    tty.shows(&["q quit"]);
    tty.press("cy");
    tty.shows(&["> /dev/zero -> /dev/null", "cancelled"]);
    let status = until("the end", || moving.child.try_wait().unwrap());
    assert_eq!(status.code(), Some(143));
    tty.shows(&["No transfers are running."]);
    assert_eq!(home.entries(), [""; 0]);
    tty.press("q");
    assert_eq!(tty.ends().code(), Some(0));
}

#[test]
fn forty_columns_have_all_that_matters() {
    let home = Home::make();
    let moving = home.moving("one", &["--rate", "1M"]);
    let mut tty = Tty::start(home.cordboard().arg("top"), 8, 40);
    tty.shows(&["> /dev/zero -> /dev/null", "running"]);
    tty.shows(&["█ ≤1.0 MiB/s read/write"]);
    let lines = tty.lines();
    assert!(
        lines[0].starts_with("cordboard top  1 transfer"),
        "{lines:?}"
    );
    assert_eq!(lines[3..7], [""; 4], "nothing wraps: {lines:?}");
    tty.press("p");
    tty.shows(&["/dev/null", "paused"]);
    assert_eq!(moving.status()["state"], "paused");
    // A wider terminal has more on a line.
    tty.resize(12, 130);
    tty.shows(&["> /dev/zero -> /dev/null", "paused", "max 1.0 MiB/s"]);
    tty.resize(3, 20);
    tty.sees("a small screen", |lines| {
        lines[2].starts_with("q quit") && lines.len() == 3
    });
    tty.press("?");
    tty.resize(20, 60);
    tty.shows(&["space", "pause or resume"]);
    tty.press("xq");
    assert_eq!(tty.ends().code(), Some(0));
}

#[test]
fn one_of_two_is_selected() {
    let home = Home::make();
    let first = home.moving("one", &["--rate", "1M"]);
    let second = home.moving("two", &["--rate", "2M"]);
    let mut tty = Tty::start(home.cordboard().arg("top"), 12, 120);
    tty.shows(&["> /dev/zero -> /dev/null", "max 1.0 MiB/s"]);
    tty.shows(&["  /dev/zero -> /dev/null", "max 2.0 MiB/s"]);
    // The arrow down, and up.
    tty.press("\x1b[Bp");
    tty.shows(&["> /dev/zero -> /dev/null", "paused", "max 2.0 MiB/s"]);
    assert_eq!(first.status()["state"], "running");
    assert_eq!(second.status()["state"], "paused");
    tty.press("\x1b[Ap");
    tty.shows(&["> /dev/zero -> /dev/null", "paused", "max 1.0 MiB/s"]);
    // A row without a process goes; the other is selected.
    drop(first);
    tty.sees("one row", |lines| {
        lines[0].contains("1 transfer ")
            && lines[1].contains("max 2.0")
            && lines[1].starts_with('>')
    });
    tty.press("r");
    tty.shows(&["> /dev/zero -> /dev/null", "running", "max 2.0 MiB/s"]);
    assert_eq!(second.status()["state"], "running");
    tty.press("\x03");
    assert_eq!(tty.ends().signal(), Some(libc::SIGINT));
}

/// A limit cannot be exceeded: the schedule stays, and the rate too.
#[test]
fn a_refusal_is_reported() {
    use std::io::Write;
    use std::os::unix::net::UnixListener;
    let home = Home::make();
    let socket = home.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    let mut tty = Tty::start(home.cordboard().arg("top").arg(&socket), 8, 80);
    let (mut peer, _) = listener.accept().unwrap();
    tty.shows(&["waiting"]);
    tty.press("p");
    // Refused: pause, EPERM.
    let words = [0x5202_0004_u32, 0x4300_0008, libc::EPERM as u32];
    for word in words {
        peer.write_all(&word.to_le_bytes()).unwrap();
    }
    tty.shows(&["pause was refused: a limit forbids it (EPERM)"]);
    tty.shows(&["silent"]);
    drop(peer);
    tty.shows(&["ended"]);
    tty.shows(&["No transfers are running."]);
    tty.press("q");
    assert_eq!(tty.ends().code(), Some(0));
}
