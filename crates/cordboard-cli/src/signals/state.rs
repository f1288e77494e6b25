//! What the handlers have recorded: the first signal to stop, and a request for
//! a line of progress.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use crate::sys;

/// The first signal to stop in the low seven bits, [`OF_TERMINAL`], and above them its time
/// of arrival in milliseconds.
static STOP: AtomicI64 = AtomicI64::new(0);
/// The terminal has generated that signal.
const OF_TERMINAL: i64 = 1 << 7;
static PROGRESS_REQUESTED: AtomicBool = AtomicBool::new(false);
/// The bytes written so far, for a line of progress that is requested between transfers.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// A signal to stop has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted;

/// A signal to stop, and its origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop {
    pub signal: libc::c_int,
    /// The terminal has generated it: a key (Ctrl-C), or a hangup.
    pub of_terminal: bool,
}

impl Stop {
    /// A signal with this `si_code`. The kernel sends the signals of a terminal itself
    /// (`SI_KERNEL`, sigaction(2); `isig` in drivers/tty/n_tty.c, `tty_signal_session_leader`
    /// in drivers/tty/tty_jobctrl.c). No process can send that code to another one
    /// (rt_sigqueueinfo(2)).
    pub fn of_code(signal: libc::c_int, code: libc::c_int) -> Stop {
        Stop {
            signal,
            of_terminal: code == libc::SI_KERNEL,
        }
    }

    /// A signal that the terminal has not generated.
    pub fn sent(signal: libc::c_int) -> Stop {
        Stop {
            signal,
            of_terminal: false,
        }
    }
}

/// Returns the signal to stop that arrived first.
pub fn stop() -> Option<i32> {
    match STOP.load(Ordering::SeqCst) {
        0 => None,
        first => Some((first & 0x7f) as i32),
    }
}

/// Whether the terminal has generated the signal to stop that arrived first.
pub fn is_of_terminal() -> bool {
    STOP.load(Ordering::SeqCst) & OF_TERMINAL != 0
}

/// Checks for a signal to stop, before work that such a signal leaves out.
///
/// # Errors
///
/// A signal to stop has arrived. The caller passes this error on to the session,
/// which ends as cancelled.
pub fn check_stop() -> Result<(), Interrupted> {
    match stop() {
        None => Ok(()),
        Some(_) => Err(Interrupted),
    }
}

/// Records a signal to stop. `Err`: an earlier one, recorded this number of
/// milliseconds before. Async-signal-safe.
pub fn record_stop(stop: Stop) -> Result<(), i64> {
    let now = i64::try_from(sys::now().as_millis()).unwrap_or(i64::MAX);
    let origin = if stop.of_terminal { OF_TERMINAL } else { 0 };
    let this = now << 8 | origin | i64::from(stop.signal);
    match STOP.compare_exchange(0, this, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => Ok(()),
        Err(first) => Err(now - (first >> 8)),
    }
}

/// Records a signal to stop that has arrived long ago.
#[cfg(test)]
pub fn record_old_stop(signal: libc::c_int) {
    STOP.store(1 << 8 | i64::from(signal), Ordering::SeqCst);
}

/// Records a request for a line of progress. Async-signal-safe.
pub fn request_progress() {
    PROGRESS_REQUESTED.store(true, Ordering::SeqCst);
}

/// Whether a line of progress was requested. Clears the request.
pub fn take_progress_request() -> bool {
    PROGRESS_REQUESTED.load(Ordering::Relaxed) && PROGRESS_REQUESTED.swap(false, Ordering::Relaxed)
}

/// Whether a line of progress was requested.
pub fn is_progress_requested() -> bool {
    PROGRESS_REQUESTED.load(Ordering::Relaxed)
}

/// Sets the number of bytes that the command has written.
pub fn set_written(bytes: u64) {
    WRITTEN.store(bytes, Ordering::Relaxed);
}

/// Returns the number of bytes that the command has written.
pub fn written() -> u64 {
    WRITTEN.load(Ordering::Relaxed)
}

/// Whether a signal has arrived that was not handled yet.
pub fn is_pending() -> bool {
    PROGRESS_REQUESTED.load(Ordering::SeqCst) || stop().is_some()
}

/// Whether signals reach this thread. Such a thread has the timer and reports
/// progress.
pub fn reaches_this_thread() -> bool {
    !sys::blocks(libc::SIGALRM)
}

/// The exit status of a command that this signal has ended.
pub fn status_of(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(130)
}

/// The name of a signal to stop.
pub fn name(signal: i32) -> &'static str {
    match signal {
        libc::SIGTERM => "SIGTERM",
        libc::SIGHUP => "SIGHUP",
        libc::SIGALRM => "SIGALRM",
        _ => "SIGINT",
    }
}
