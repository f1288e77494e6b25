//! The loop that handles records and keys, and draws.

use std::time::{Duration, Instant};

use cordboard::{Errno, poll_for};
use rustix::event::{PollFd, PollFlags};
use rustix::stdio::stdin;

use super::fleet::Fleet;
use super::keys::{Action, Keys};
use super::screen::Screen;
use super::view::frame;
use crate::keyboard::{Decoder, Key, OPEN};
use crate::polling::timespec;
use crate::problem::Problem;
use crate::signals::terminal;

/// The interval at which the status of all transfers is requested, and the directory is read.
const EVERY: Duration = Duration::from_millis(500);

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
    let mut typed_at = Duration::ZERO;
    loop {
        let now = start.elapsed();
        if now >= due {
            due = now + EVERY;
            fleet.scan()?;
            fleet.ask();
        }
        if let Some(message) = fleet.receive(now) {
            keys.message = Some(message);
        }
        let size = screen.size();
        let note = fleet.left_out().map(ToString::to_string);
        let lines = frame(&fleet.rows(), &mut keys, note.as_deref(), size);
        screen.draw(size, lines).map_err(failed)?;
        let now = start.elapsed();
        let left = due.saturating_sub(now);
        let typed = match decoder.is_open() {
            true => wait(&fleet, left.min((typed_at + OPEN).saturating_sub(now))),
            false => wait(&fleet, left),
        };
        let now = start.elapsed();
        let pressed: Vec<Key> = match typed {
            Typed::Gone => return Ok(()),
            Typed::Failed(errno) => return Err(failed(errno)),
            Typed::Bytes(bytes) => {
                typed_at = now;
                let keys = bytes.iter().filter_map(|byte| decoder.key(*byte));
                keys.collect()
            }
            // A record, or a change of the size, does not end a key.
            Typed::Nothing => {
                let closed = decoder.close_after(now.saturating_sub(typed_at));
                closed.into_iter().collect()
            }
        };
        for key in pressed {
            if key == Key::Redraw {
                screen.forget();
                continue;
            }
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
    /// The terminal has hung up.
    Gone,
    /// No key can be waited for.
    Failed(Errno),
}

/// Waits for a key or a record, for at most this time. A change of the size ends the wait.
fn wait(fleet: &Fleet, time: Duration) -> Typed {
    // In the background, reading would stop the process (SIGTTIN).
    let typed = terminal::is_foreground().then(stdin);
    let keys = usize::from(typed.is_some());
    let mut fds: Vec<PollFd<'_>> = (typed.into_iter().chain(fleet.sockets()))
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    match poll_for(&mut fds, Some(&timespec(time))) {
        Ok(_) => {}
        Err(rustix::io::Errno::INTR) => return Typed::Nothing,
        Err(errno) => return Typed::Failed(errno.into()),
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
