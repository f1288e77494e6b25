//! Progress at a terminal that is read from.

use std::process::Stdio;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;

use super::common::*;
use super::{more, terminal_of};

/// Drawn lines would mix with what is typed.
#[test]
fn no_progress_where_the_terminal_is_the_source() {
    let (mut master, theirs) = terminal_of(0);
    let child = cordboard()
        .args(["splice", "-", "/dev/null"])
        .stdin(theirs.try_clone().unwrap())
        .stdout(Stdio::null())
        .stderr(theirs)
        .start();
    std::io::Write::write_all(&mut master, b"typed\n").unwrap();
    let pid = child.id();
    until("handlers", || {
        (handles(pid, 10) && handles(pid, 14)).then_some(())
    });
    // Until it has run for longer than it takes to draw.
    let mut screen = String::new();
    while !screen.contains(" written, 1.") {
        signal(pid, Signal::USR1);
        let time = rustix::event::Timespec::try_from(deadline()).unwrap();
        let mut fds = [PollFd::new(&master, PollFlags::IN)];
        assert_eq!(poll(&mut fds, Some(&time)), Ok(1), "no line for a signal");
        assert!(more(&mut master, &mut screen), "{screen}");
    }
    std::io::Write::write_all(&mut master, b"\x04").unwrap();
    let run = end(child);
    while more(&mut master, &mut screen) {}
    assert_eq!(run.code(), 0, "{screen}");
    assert!(screen.contains("\n6 bytes written, "), "{screen}");
    assert!(!screen.contains("  by "), "{screen}");
    assert!(!screen.contains("moved "), "{screen}");
}
