//! Signals: SIGINT, SIGTERM and SIGHUP end the transfer with its report,
//! SIGUSR1 asks for a line of progress.
//!
//! The handlers do not restart system calls. A signal can still come just
//! before the call that then sleeps, so each request also starts an interval
//! timer whose SIGALRM interrupts the thread again until somebody noticed:
//! that is what [`Control::interrupting`] asks for.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering};
use std::time::Duration;

use cordboard::Control;
use rustix::io::Errno;

use crate::problem::{Problem, tell};

static CONTROL: OnceLock<Control> = OnceLock::new();
/// Written by the handler that ends the process while a name is looked up.
static LAST_WORDS: OnceLock<Vec<u8>> = OnceLock::new();
static AT_ONCE: AtomicBool = AtomicBool::new(false);
static STOP: AtomicI32 = AtomicI32::new(0);
static STOPPED_AT: AtomicI64 = AtomicI64::new(0);
static SHOW: AtomicBool = AtomicBool::new(false);

const AGAIN: Duration = Duration::from_millis(20);
/// `timeout(1)` and shells may send one interrupt twice: to us, and to our group.
const SAME_MILLIS: i64 = 250;

/// The signal that asked us to stop.
pub fn stop() -> Option<i32> {
    match STOP.load(Ordering::Relaxed) {
        0 => None,
        signal => Some(signal),
    }
}

/// The name of a signal that asks us to stop.
pub fn name(signal: i32) -> &'static str {
    match signal {
        libc::SIGTERM => "SIGTERM",
        libc::SIGHUP => "SIGHUP",
        _ => "SIGINT",
    }
}

/// Whether a line of progress was asked for; asking is taking.
pub fn take_show() -> bool {
    SHOW.load(Ordering::Relaxed) && SHOW.swap(false, Ordering::Relaxed)
}

/// Interrupts this thread once every `interval`, beginning then; zero: no more.
pub fn tick(interval: Duration) {
    let every = libc::timeval {
        tv_sec: interval.as_secs() as libc::time_t,
        tv_usec: libc::suseconds_t::from(interval.subsec_micros() as i32),
    };
    let timer = libc::itimerval {
        it_interval: every,
        it_value: every,
    };
    // SAFETY: setitimer(2) reads one itimerval, which is valid; it is a bare
    // system call and so fit for a signal handler.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
}

/// Installs the handlers, and returns the control that they use. `zero` is
/// what to print if a signal ends us where nothing can be interrupted.
pub fn install(zero: Vec<u8>) -> Result<&'static Control, cordboard::Errno> {
    if CONTROL.get().is_none() {
        let _ = CONTROL.set(Control::new()?.interrupting());
        let _ = LAST_WORDS.set(zero);
        handle(libc::SIGINT, on_stop, true);
        handle(libc::SIGTERM, on_stop, true);
        handle(libc::SIGHUP, on_stop, true);
        handle(libc::SIGUSR1, on_show, false);
        handle(libc::SIGALRM, on_alarm, false);
    }
    Ok(CONTROL.get().expect("set above"))
}

/// Runs a system call again and again while a signal interrupts it, until it
/// is done or we are asked to stop.
pub fn interruptible<T>(
    mut call: impl FnMut() -> Result<T, Errno>,
) -> Result<Result<T, Errno>, Problem> {
    loop {
        if stop().is_some() {
            return Err(Problem::interrupted());
        }
        match call() {
            Err(Errno::INTR) if take_show() => {
                tick(Duration::ZERO);
                tell("0 bytes written: still waiting for an endpoint");
            }
            Err(Errno::INTR) => {}
            done => return Ok(done),
        }
    }
}

/// Runs something that cannot be interrupted; a signal then ends the process
/// with the report of nothing.
pub fn at_once<T>(call: impl FnOnce() -> T) -> T {
    AT_ONCE.store(true, Ordering::SeqCst);
    let done = call();
    AT_ONCE.store(false, Ordering::SeqCst);
    done
}

type Handler = extern "C" fn(libc::c_int);

/// A signal that was ignored when we were started stays ignored: `nohup`, and
/// background jobs of a shell without job control, mean it.
fn handle(signal: libc::c_int, handler: Handler, keep_ignored: bool) {
    // SAFETY: all zeros is a valid sigaction: default action, empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    if keep_ignored {
        // SAFETY: reads the present action into a valid sigaction.
        unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
        if action.sa_sigaction == libc::SIG_IGN {
            return;
        }
        // SAFETY: as above.
        action = unsafe { std::mem::zeroed() };
    }
    action.sa_sigaction = handler as Handler as libc::sighandler_t;
    // One handler at a time.
    // SAFETY: fills in a signal set that is valid for writing.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    // SAFETY: the handlers below only use atomics, write(2), setitimer(2),
    // clock_gettime(2) and _exit(2), and leave errno as they found it.
    unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
}

/// Runs a handler's body with errno put back afterwards.
fn keeping_errno(body: impl FnOnce()) {
    // SAFETY: the address of this thread's errno is always valid.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { errno.read() };
    body();
    // SAFETY: as above.
    unsafe { errno.write(before) };
}

fn now_millis() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}

extern "C" fn on_stop(signal: libc::c_int) {
    keeping_errno(|| {
        let now = now_millis();
        if STOP
            .compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst)
            .is_err()
        {
            if now - STOPPED_AT.load(Ordering::SeqCst) < SAME_MILLIS {
                return;
            }
            // SAFETY: _exit(2) ends the process; it may be called anywhere.
            unsafe { libc::_exit(128 + signal) };
        }
        STOPPED_AT.store(now, Ordering::SeqCst);
        if AT_ONCE.load(Ordering::SeqCst) {
            if let Some(words) = LAST_WORDS.get() {
                let _ = rustix::io::write(rustix::stdio::stderr(), words);
            }
            // SAFETY: as above.
            unsafe { libc::_exit(128 + signal) };
        }
        if let Some(control) = CONTROL.get() {
            control.cancel();
        }
        tick(AGAIN);
    });
}

extern "C" fn on_show(_: libc::c_int) {
    keeping_errno(|| {
        SHOW.store(true, Ordering::Relaxed);
        if let Some(control) = CONTROL.get() {
            control.wake();
        }
        tick(AGAIN);
    });
}

extern "C" fn on_alarm(_: libc::c_int) {
    keeping_errno(|| {
        if let Some(control) = CONTROL.get() {
            control.wake();
        }
    });
}
