//! The terminal at standard input, while this process has set its modes. The
//! modes are restored while the process is stopped (Ctrl-Z, SIGTSTP), and at
//! its end by any signal (Ctrl-\, SIGQUIT) but SIGKILL and SIGSTOP, which have
//! no handler.
//!
//! Modes are set only in the foreground: in the background, the terminal
//! belongs to another process. A shell sends SIGCONT to a stopped job that comes to
//! the foreground, and may send none to a running one: see [`take_back`].

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, write};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{
    Action, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcflow, tcgetattr, tcsetattr,
};

use crate::bounded_write::has_room;
use crate::sys;

struct Modes {
    before: Termios,
    ours: Termios,
    /// The bytes that are written to standard output when these modes are set, and restored.
    screen: Option<Screen>,
}

/// The bytes of the alternate screen.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    /// They enter it.
    pub enter: &'static [u8],
    /// They set its modes again. Entered twice, it would keep the second position of the cursor.
    pub again: &'static [u8],
    /// They leave it.
    pub leave: &'static [u8],
}

static MODES: OnceLock<Modes> = OnceLock::new();
/// This process sets its modes whenever it is in the foreground.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// The terminal has the modes of this process, unless another process has changed them.
static IS_SET: AtomicBool = AtomicBool::new(false);
/// The alternate screen is shown.
static ON_SCREEN: AtomicBool = AtomicBool::new(false);
/// The alternate screen was entered since the last call of [`was_entered`], or another process
/// may have written to it.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// Returns the modes in which each key is read at once, without echo. Keys still send signals
/// (^C, ^Z).
pub fn of_keys(before: &Termios) -> Termios {
    let mut each = before.clone();
    each.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
    // A terminal polls readable from VMIN bytes on (`input_available_p`, drivers/tty/n_tty.c).
    each.special_codes[SpecialCodeIndex::VMIN] = 1;
    each.special_codes[SpecialCodeIndex::VTIME] = 0;
    each
}

/// Sets modes, until [`give_back`]. A process does this once.
pub fn take(before: Termios, ours: Termios) -> Result<(), Errno> {
    take_modes(Modes {
        before,
        ours,
        screen: None,
    })
}

/// As [`take`]. Also enters the alternate screen, which is left whenever the modes are
/// restored.
pub fn take_screen(before: Termios, ours: Termios, screen: Screen) -> Result<(), Errno> {
    take_modes(Modes {
        before,
        ours,
        screen: Some(screen),
    })
}

/// Returns whether the contents of the alternate screen are unknown since the last call: it was
/// entered, or the process was continued.
pub fn was_entered() -> bool {
    ENTERED.swap(false, Ordering::SeqCst)
}

/// As [`was_entered`], without ending the time since the last call.
pub fn is_entered() -> bool {
    ENTERED.load(Ordering::SeqCst)
}

fn take_modes(modes: Modes) -> Result<(), Errno> {
    if MODES.set(modes).is_err() {
        return Err(Errno::BUSY);
    }
    for signal in [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU] {
        sys::handle_unless_ignored(signal, on_suspend);
    }
    sys::handle(libc::SIGCONT, on_continue);
    (1..=libc::SIGRTMAX())
        .filter(|signal| ends(*signal))
        .for_each(|signal| sys::handle(signal, on_end));
    TAKEN.store(true, Ordering::SeqCst);
    let done = loop {
        // Not in a handler: Ctrl-C ends a write that waits.
        match enter(write_waiting) {
            // In the background, the call has stopped this process (SIGTTOU). The
            // handlers have then entered the screen in the foreground.
            Err(Errno::INTR) => {}
            done => break done,
        }
    };
    if done.is_err() {
        give_back();
    }
    done
}

/// Restores the modes.
pub fn give_back() {
    // Cleared first, or a handler could set the modes again.
    if TAKEN.swap(false, Ordering::SeqCst) {
        sys::without_signals(leave);
    }
}

/// Restores the modes with signals blocked, as in a handler: SIGTTOU would stop
/// this process in the background. There the terminal belongs to another
/// process, unless it still has the modes of this one.
pub(super) fn leave() {
    if is_foreground() || has_ours() {
        let _ = restore();
    }
}

/// Whether the terminal has the modes that this process has set.
fn has_ours() -> bool {
    let all = |modes: &Termios| {
        let (input, output) = (modes.input_modes, modes.output_modes);
        (input, output, modes.control_modes, modes.local_modes)
    };
    match (MODES.get(), tcgetattr(stdin())) {
        (Some(modes), Ok(now)) => all(&now) == all(&modes.ours),
        _ => false,
    }
}

/// Whether this signal ends the process by default (signal(7)), and has that
/// disposition.
fn ends(signal: libc::c_int) -> bool {
    const OTHERS: [libc::c_int; 9] = [
        libc::SIGKILL,
        libc::SIGSTOP,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGCONT,
        libc::SIGCHLD,
        libc::SIGURG,
        libc::SIGWINCH,
    ];
    !OTHERS.contains(&signal) && sys::is_by_default(signal)
}

/// Whether this process may read the terminal. A terminal that does not control
/// the job has no foreground.
pub fn is_foreground() -> bool {
    sys::is_foreground(stdin())
}

/// Returns whether the terminal has the modes of this process.
pub fn is_set() -> bool {
    IS_SET.load(Ordering::SeqCst)
}

/// Calls `set` if the process is in the foreground. In the background, setting the modes would
/// stop the process (SIGTTOU).
fn in_foreground(set: impl Fn() -> Result<(), Errno>) {
    if is_foreground() {
        let _ = set();
    }
}

/// Sets the modes of this process, and enters the alternate screen, by `write_all`.
fn enter(write_all: fn(&'static [u8])) -> Result<(), Errno> {
    let Some(modes) = MODES.get() else {
        return Ok(());
    };
    tcsetattr(stdin(), OptionalActions::Now, &modes.ours)?;
    IS_SET.store(true, Ordering::SeqCst);
    if let Some(screen) = modes.screen {
        // SIGSTOP has no handler that leaves it. A shell then writes to it.
        match ON_SCREEN.swap(true, Ordering::SeqCst) {
            false => write_all(screen.enter),
            true => write_all(screen.again),
        }
        ENTERED.store(true, Ordering::SeqCst);
    }
    Ok(())
}

/// Restores the modes, and leaves the alternate screen.
fn restore() -> Result<(), Errno> {
    let Some(modes) = MODES.get() else {
        return Ok(());
    };
    IS_SET.store(false, Ordering::SeqCst);
    let restored = tcsetattr(stdin(), OptionalActions::Now, &modes.before);
    if let Some(screen) = modes.screen
        && ON_SCREEN.swap(false, Ordering::SeqCst)
    {
        // Ctrl-S may have stopped the output. Only what this call has stopped is started again by
        // `TCOON` (`n_tty_ioctl_helper`, drivers/tty/tty_ioctl.c).
        let _ = tcflow(stdin(), Action::OOff);
        let _ = tcflow(stdin(), Action::OOn);
        write_without_waiting(screen.leave);
    }
    restored
}

fn write_waiting(bytes: &'static [u8]) {
    let _ = write(stdout(), bytes);
}

/// Writes to standard output. The terminal may have no room, without a reader: a write that
/// waits could be ended only by SIGKILL, because all other signals are blocked.
fn write_without_waiting(bytes: &'static [u8]) {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    // A description of its own: others use that of standard output.
    match open(c"/proc/self/fd/1", flags, Mode::empty()) {
        Ok(own) => {
            let _ = write(&own, bytes);
        }
        // Of another user, or without procfs.
        Err(_) if has_room(stdout(), Some(Duration::ZERO)) == Ok(true) => {
            let _ = write(stdout(), bytes);
        }
        Err(_) => {}
    }
}

/// Stops the process as the signal would have done, which informs the shell.
extern "C" fn on_suspend(signal: libc::c_int) {
    sys::keeping_errno(|| {
        if TAKEN.load(Ordering::SeqCst) {
            in_foreground(restore);
        }
        sys::raise_by_default(signal);
        // The process continues, or was never stopped, as in an orphaned
        // process group (setpgid(2)): then no SIGCONT follows.
        sys::handle(signal, on_suspend);
        take_again();
    });
}

/// Ends the process as the signal would have done, which informs its parent.
extern "C" fn on_end(signal: libc::c_int) {
    sys::keeping_errno(|| {
        leave();
        sys::raise_by_default(signal);
        // The signal does not end the init process of a container. There the
        // default disposition stays: with a handler, a fault would occur again
        // and again.
        take_again();
    });
}

extern "C" fn on_continue(_: libc::c_int) {
    sys::keeping_errno(take_again);
}

fn take_again() {
    // In the background, the terminal has the modes of the shell.
    IS_SET.store(false, Ordering::SeqCst);
    take_back();
}

/// Sets the modes again, and enters the alternate screen, if they were restored and the process
/// is in the foreground. A shell may send no SIGCONT to a job that runs in the background when it
/// brings it to the foreground (`start_job` in jobs.c of bash).
pub fn take_back() {
    if TAKEN.load(Ordering::SeqCst) && !IS_SET.load(Ordering::SeqCst) {
        in_foreground(|| enter(write_without_waiting));
    }
}
