//! Signals: SIGINT, SIGTERM, SIGHUP and an [alarm] end the transfer with its
//! report, SIGUSR1 asks for a line of progress.
//!
//! The handlers do not restart system calls. A signal can still come just
//! before the call that then sleeps, so each request also starts an interval
//! timer whose SIGALRM interrupts the thread again until somebody noticed:
//! that is what [`Control::interrupting`] asks for.
//!
//! A second signal to stop ends the process, whatever it waits for.

mod alarm;
mod stuck;
pub mod terminal;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use alarm::set_timer;
use cordboard::Control;
use rustix::io::Errno;

use crate::endpoint::Removable;
use crate::problem::{Problem, status};
use crate::{patient, sys};

static CONTROL: OnceLock<Control> = OnceLock::new();
/// The same, for whoever is not to sleep inside system calls.
static POLLED: OnceLock<Control> = OnceLock::new();
/// Written by the handler that ends the process while a name is looked up.
static LAST_WORDS: OnceLock<Vec<u8>> = OnceLock::new();
static AT_ONCE: AtomicBool = AtomicBool::new(false);
/// The first signal to stop in the low eight bits, and above them the time when
/// it came, in milliseconds.
static STOP: AtomicI64 = AtomicI64::new(0);
static SHOW: AtomicBool = AtomicBool::new(false);
/// SIGPIPE was neither ignored nor blocked when we were started.
static SIGPIPE_KILLS: AtomicBool = AtomicBool::new(false);

/// The status of a command whose standard output has no reader: 128 + SIGPIPE.
pub const READER_LEFT: u8 = 141;

/// A socket's file that is ours to remove, and whether it is there.
static SOCKET_FILE: OnceLock<Removable> = OnceLock::new();
static REMOVE: AtomicBool = AtomicBool::new(false);

/// What asks us to stop.
const STOPPING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
const AGAIN: Duration = Duration::from_millis(20);
/// `timeout(1)` and shells may send one interrupt twice: to us, and to our group.
const SAME_MILLIS: i64 = 250;

/// The signal that asked us to stop.
pub fn stop() -> Option<i32> {
    match STOP.load(Ordering::SeqCst) {
        0 => None,
        first => Some((first & 0xff) as i32),
    }
}

/// The same for an account that is closed now: also a signal that another
/// thread is just taking.
pub fn stop_so_far() -> Option<i32> {
    stuck::settle();
    stop()
}

/// Reads the disposition of SIGPIPE. It is called before `main`, and before the
/// runtime ignores the signal.
pub fn look_at_sigpipe() {
    let kills = !sys::ignores(libc::SIGPIPE) && !sys::blocks(libc::SIGPIPE);
    SIGPIPE_KILLS.store(kills, Ordering::Relaxed);
}

/// Whether another command here would die of writing to a pipe without a
/// reader.
pub fn sigpipe_kills() -> bool {
    SIGPIPE_KILLS.load(Ordering::Relaxed)
}

/// Ends as other commands do when their standard output has no reader.
pub fn die_of_sigpipe() {
    sys::by_default(libc::SIGPIPE);
}

/// Asked before anything that a stop leaves out.
///
/// # Errors
///
/// A signal to stop has come. Code that leaves something out because of it
/// passes this error on to the session, which ends as cancelled.
pub fn go_on() -> Result<(), Problem> {
    match stop() {
        None => Ok(()),
        Some(_) => Err(Problem::interrupted()),
    }
}

/// The exit status of a command that this signal has ended.
pub fn status_of(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(130)
}

/// The name of a signal that asks us to stop.
pub fn name(signal: i32) -> &'static str {
    match signal {
        libc::SIGTERM => "SIGTERM",
        libc::SIGHUP => "SIGHUP",
        libc::SIGALRM => "SIGALRM",
        _ => "SIGINT",
    }
}

/// Whether a line of progress was asked for; asking is taking.
pub fn take_show() -> bool {
    SHOW.load(Ordering::Relaxed) && SHOW.swap(false, Ordering::Relaxed)
}

/// Interrupts this thread once every `interval`, beginning then; zero: no more;
/// more often while there are signals that were not handled yet.
pub fn tick(interval: Duration) {
    set_timer(interval);
    // One that came just before has lost its timer by this.
    if interval != AGAIN && (SHOW.load(Ordering::SeqCst) || stop().is_some()) {
        set_timer(AGAIN);
    }
}

/// Writes a status line where no other timer interrupts a write that blocks.
pub fn briefly<T>(write: impl FnOnce() -> T) -> T {
    tick(AGAIN);
    let done = write();
    tick(Duration::ZERO);
    done
}

/// Installs the handlers, and returns the control that they use. `zero` is
/// what to print if a signal ends us where nothing can be interrupted.
///
/// If no descriptor is available for the control, or a filter refuses its
/// calls, the control is polled.
pub fn install(zero: Vec<u8>) -> &'static Control {
    if CONTROL.get().is_none() {
        let control =
            Control::of_one_descriptor().unwrap_or_else(|_| Control::without_descriptor());
        let _ = POLLED.set(control.clone());
        let _ = CONTROL.set(control.interrupting());
        let _ = LAST_WORDS.set(zero);
        // A handler starts the timer, whose signal needs a handler too: no signal
        // comes before all handlers are in place.
        sys::without_signals(|| {
            for signal in STOPPING {
                handle_unless_ignored(signal, on_stop);
            }
            handle_unless_ignored(libc::SIGUSR1, on_show);
            alarm::adopt();
            sys::handle_told(libc::SIGALRM, on_alarm);
        });
        // Whoever started us may have blocked them, and a mask is inherited;
        // one that is pending shall find its handler.
        sys::unblock(&[libc::SIGUSR1, libc::SIGALRM]);
        sys::unblock(&STOPPING);
        let mut heeded = STOPPING.to_vec();
        heeded.retain(|signal| !sys::ignores(*signal));
        stuck::watch(&heeded, on_stop);
    }
    CONTROL.get().expect("set above")
}

/// The control that [`install`] returned, for a transfer that others end too,
/// who do not interrupt its thread.
pub fn polled() -> &'static Control {
    POLLED.get().expect("handlers come first")
}

/// Runs a system call again and again while a signal interrupts it, until it
/// is done or we are asked to stop.
pub fn interruptible<T>(
    mut call: impl FnMut() -> Result<T, Errno>,
) -> Result<Result<T, Errno>, Problem> {
    go_on()?;
    match call() {
        Err(Errno::INTR) => {}
        done => return Ok(done),
    }
    let done = undisturbed(|| {
        go_on()?;
        if is_interrupted() && take_show() {
            briefly(|| status("0 bytes written: still waiting for an endpoint"));
        }
        Ok(call())
    })?;
    if matches!(done, Err(Errno::INTR)) {
        go_on()?;
    }
    Ok(done)
}

/// Whether signals reach this thread. It has the timer, and tells of progress.
fn is_interrupted() -> bool {
    !sys::blocks(libc::SIGALRM)
}

/// Repeats a call that was interrupted until it succeeds or fails, with the timer
/// that draws progress switched off: a call that takes longer than the timer's
/// interval would be interrupted each time. Other signals have a timer of their
/// own.
///
/// The process has one timer, and only the main thread's calls are interrupted
/// by it. The threads of `copy` block all signals, and here it is another who
/// has answered `EINTR`, such as a file server. They leave the timer alone: two
/// threads that saved it and set it back would lose it.
fn undisturbed<T, E>(
    mut call: impl FnMut() -> Result<Result<T, Errno>, E>,
) -> Result<Result<T, Errno>, E> {
    if !is_interrupted() {
        loop {
            match call() {
                Ok(Err(Errno::INTR)) if stop().is_none() => {}
                done => return done,
            }
        }
    }
    let before = set_timer(Duration::ZERO);
    let done = loop {
        match call() {
            Ok(Err(Errno::INTR)) if stop().is_none() => {}
            done => break done,
        }
        // A line of progress that was asked for is printed after the call.
        set_timer(Duration::ZERO);
    };
    if !before.is_zero() {
        tick(before);
    } else if SHOW.load(Ordering::SeqCst) || stop().is_some() {
        set_timer(AGAIN);
    }
    done
}

/// Repeats a call that a signal has interrupted. A file system, such as one in
/// user space, may fail any call with `EINTR`, and does while a timer draws
/// progress. Once a signal to stop has come, the result is `EINTR`: a problem that
/// [is a stop](Problem::is_a_stop).
pub fn again<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    match call() {
        Err(Errno::INTR) if stop().is_none() => {}
        done => return done,
    }
    let done = undisturbed(|| match stop() {
        None => Ok(call()),
        Some(_) => Err(Errno::INTR),
    });
    done.unwrap_or_else(Err)
}

/// Runs something that cannot be interrupted; a signal then ends the process
/// with the report of nothing.
pub fn at_once<T>(call: impl FnOnce() -> T) -> Result<T, Problem> {
    AT_ONCE.store(true, Ordering::SeqCst);
    // One that came before that has only been noted.
    let done = go_on().map(|()| call());
    AT_ONCE.store(false, Ordering::SeqCst);
    done
}

/// Has the handler that ends the process remove this file too, until
/// [`keep_file`]. `false`: there was one before, and the handler knows no other.
pub fn remove_at_exit(file: Removable) -> bool {
    let ours = SOCKET_FILE.set(file).is_ok();
    if ours {
        REMOVE.store(true, Ordering::SeqCst);
    }
    ours
}

/// The file is no longer ours to remove.
pub fn keep_file() {
    REMOVE.store(false, Ordering::SeqCst);
}

/// Ends the process from a handler: nothing of ours is dropped.
fn leave(signal: libc::c_int) -> ! {
    if REMOVE.load(Ordering::SeqCst)
        && let Some(file) = SOCKET_FILE.get()
    {
        file.remove();
    }
    terminal::leave();
    sys::exit_at_once(128 + signal);
}

/// A signal that was ignored when we were started stays ignored: `nohup`, and
/// background jobs of a shell without job control, mean it.
fn handle_unless_ignored(signal: libc::c_int, handler: sys::Handler) {
    if !sys::ignores(signal) {
        sys::handle(signal, handler);
    }
}

fn now_millis() -> i64 {
    i64::try_from(sys::now().as_millis()).unwrap_or(i64::MAX)
}

extern "C" fn on_stop(signal: libc::c_int) {
    sys::keeping_errno(|| {
        let now = now_millis();
        let this = now << 8 | i64::from(signal);
        let first = STOP.compare_exchange(0, this, Ordering::SeqCst, Ordering::SeqCst);
        if let Err(first) = first {
            if now - (first >> 8) < SAME_MILLIS {
                return;
            }
            leave(signal);
        }
        // The report of a background job does not stop it (`stty tostop`).
        sys::ignore(libc::SIGTTOU);
        tick(AGAIN);
        if AT_ONCE.load(Ordering::SeqCst) {
            if let Some(words) = LAST_WORDS.get() {
                // It interrupts a write that blocks, within this handler too.
                sys::unblock(&[libc::SIGALRM]);
                let _ = patient::within(rustix::stdio::stderr(), words, patient::GRACE);
            }
            leave(signal);
        }
        if let Some(control) = CONTROL.get() {
            control.cancel();
        }
    });
}

extern "C" fn on_show(_: libc::c_int) {
    sys::keeping_errno(|| {
        SHOW.store(true, Ordering::Relaxed);
        if let Some(control) = CONTROL.get() {
            control.wake();
        }
        tick(AGAIN);
    });
}

extern "C" fn on_alarm(signal: libc::c_int, info: &libc::siginfo_t, _: *mut libc::c_void) {
    sys::keeping_errno(|| {
        // sigaction(2): those of a process are not positive.
        if alarm::is_to_stop(info.si_code <= 0) {
            on_stop(signal);
        }
        if let Some(control) = CONTROL.get() {
            control.wake();
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// A handler that opens a file to find the clock also allocates, and hangs
    /// where the signal came in an allocation: before Linux 6.4, rustix's first
    /// look at a clock does so.
    #[test]
    fn a_handler_opens_nothing() {
        const NAME: &str = "signals::tests::a_handler_opens_nothing";
        const ALONE: &str = "CORDBOARD_TEST_ALONE";
        const PR_GET_AUXV: u32 = 0x4155_5856;
        if std::env::var_os(ALONE).is_none() {
            // Nothing has looked at a clock in a process of its own.
            let program = std::env::current_exe().unwrap();
            let mut command = std::process::Command::new(program);
            let run = command.args(["--exact", NAME, "--nocapture"]);
            let run = run.env(ALONE, "").output().unwrap();
            assert!(run.status.success(), "{run:?}");
            assert!(String::from_utf8_lossy(&run.stdout).contains("1 passed"));
            return;
        }
        let (raised, opened) = (AtomicBool::new(false), AtomicI64::new(0));
        let held = testkit::midst::at_each(
            testkit::refuse::OPEN,
            || {
                testkit::refuse::refuse_where(libc::SYS_prctl, 0, PR_GET_AUXV, libc::EINVAL);
                install(Vec::new());
                raised.store(true, Ordering::SeqCst);
                testkit::child::raise(libc::SIGINT);
                raised.store(false, Ordering::SeqCst);
            },
            || {
                if raised.load(Ordering::SeqCst) {
                    opened.fetch_add(1, Ordering::SeqCst);
                }
            },
        );
        match held {
            Some(_) => assert_eq!((stop(), opened.into_inner()), (Some(libc::SIGINT), 0)),
            None => testkit::skip::here("no seccomp_unotify(2) here"),
        }
    }

    /// Both are interrupted; the thread of `copy` ends between two calls of the
    /// main thread's.
    #[test]
    fn a_thread_that_no_signal_reaches_leaves_the_timer_alone() {
        let hour = Duration::from_secs(3600);
        // The timer is the process's.
        assert!(testkit::child::in_a_child(|| {
            sys::set_timer(hour, hour);
            let ((begun, has_begun), (end, ends)) = (channel(), channel());
            SHOW.store(true, Ordering::Relaxed);
            let other = sys::without_signals(|| {
                std::thread::spawn(move || {
                    let mut calls = 0;
                    let call = || {
                        calls += 1;
                        if calls == 1 {
                            return Err(Errno::INTR);
                        }
                        begun.send(()).unwrap();
                        ends.recv().unwrap();
                        Ok(())
                    };
                    interruptible(call).is_ok_and(|done| done.is_ok())
                })
            });
            has_begun.recv().unwrap();
            // Nor does it tell of progress, which is for the main thread.
            let untold = take_show();
            let (mut calls, mut other) = (0, Some(other));
            let done = again(|| {
                calls += 1;
                if calls == 2 {
                    end.send(()).unwrap();
                    let other = other.take().unwrap();
                    assert!(other.join().unwrap());
                }
                if calls < 3 { Err(Errno::INTR) } else { Ok(()) }
            });
            let hour_left = set_timer(Duration::ZERO) == hour;
            untold && done == Ok(()) && calls == 3 && hour_left
        }));
    }
}
