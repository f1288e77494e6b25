//! The loop: what comes from the sockets and the keys is drawn.

use std::time::{Duration, Instant};

use cordboard::Errno;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::stdio::stdin;

use super::fleet::Fleet;
use super::keys::{Action, Keys};
use super::once::unreadable;
use super::screen::Screen;
use super::view::frame;
use crate::keyboard::{Decoder, Key};
use crate::problem::Problem;
use crate::signals::terminal;

/// How often all are asked for their status, and new ones are looked for.
const EVERY: Duration = Duration::from_millis(500);
/// The longest time between the bytes of one key.
const OPEN: Duration = Duration::from_millis(50);

/// Shows the transfers until the user quits.
pub fn show(mut fleet: Fleet) -> Result<(), Problem> {
    let failed = |errno: Errno| {
        Problem::unsided(
            "standard input",
            errno,
            format!("{errno} using the terminal"),
        )
    };
    let mut screen = Screen::open().map_err(failed)?;
    let mut keys = Keys::default();
    let mut decoder = Decoder::default();
    let start = Instant::now();
    let mut due = Duration::ZERO;
    loop {
        let now = start.elapsed();
        if now >= due {
            due = now + EVERY;
            fleet.scan().map_err(unreadable)?;
            fleet.ask();
        }
        if let Some(message) = fleet.receive(now) {
            keys.message = Some(message);
        }
        let size = screen.size();
        let lines = frame(&fleet.rows(), &mut keys, size);
        screen.draw(size, lines).map_err(failed)?;
        let left = due.saturating_sub(start.elapsed());
        let typed = match decoder.is_open() {
            true => wait(&fleet, left.min(OPEN)),
            false => wait(&fleet, left),
        };
        let pressed: Vec<Key> = match typed {
            Typed::Gone => return Ok(()),
            Typed::Bytes(bytes) => (bytes.iter())
                .filter_map(|byte| decoder.key(*byte))
                .collect(),
            Typed::Nothing => decoder.close().into_iter().collect(),
        };
        for key in pressed {
            match keys.press(key, &fleet.rows()) {
                Action::Quit => return Ok(()),
                Action::Send(id, command) => fleet.send(id, command),
                Action::Nothing => {}
            }
        }
    }
}

enum Typed {
    Bytes(Vec<u8>),
    Nothing,
    /// The terminal has gone.
    Gone,
}

/// Waits for a key, a record, or the time. A change of the size interrupts it.
fn wait(fleet: &Fleet, time: Duration) -> Typed {
    // In the background, reading would stop the process (SIGTTIN).
    let typed = terminal::is_foreground().then(stdin);
    let keys = usize::from(typed.is_some());
    let mut fds: Vec<PollFd<'_>> = (typed.into_iter().chain(fleet.sockets()))
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    let timeout = Timespec::try_from(time).ok();
    if poll(&mut fds, timeout.as_ref()).is_err() {
        return Typed::Nothing;
    }
    match fds[..keys].first().map(PollFd::revents) {
        Some(events) if !events.is_empty() && terminal::is_foreground() => read(),
        _ => Typed::Nothing,
    }
}

fn read() -> Typed {
    let mut bytes = vec![0; 256];
    match rustix::io::read(stdin(), &mut bytes[..]) {
        Ok(n @ 1..) => {
            bytes.truncate(n);
            Typed::Bytes(bytes)
        }
        Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Typed::Nothing,
        Ok(_) | Err(_) => Typed::Gone,
    }
}
