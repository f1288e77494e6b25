//! The signal handlers, and what they need to end the process.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cordboard::Control;
use rustix::process::{Signal, getpid, kill_process};

use super::state::{self, Interrupted, Stop, check_stop, stop};
use super::timer::{RETRY, tick};
use super::{alarm, blocked, terminal};
use crate::bounded_write::{GRACE, write_within};
use crate::files::ToRemove;
use crate::sys;

static CONTROL: OnceLock<Control> = OnceLock::new();
/// The same control for transfers that must not block in system calls.
static POLLED: OnceLock<Control> = OnceLock::new();
/// Written by the handler that ends the process during an uninterruptible call.
static LAST_REPORT: OnceLock<Vec<u8>> = OnceLock::new();
static UNINTERRUPTIBLE: AtomicBool = AtomicBool::new(false);

/// The files to remove at exit. A place is used once.
static FILES: [Place; 16] = [const { Place::new() }; 16];
/// The number of places that were used, or requested.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The place of a file to remove at exit.
#[derive(Debug)]
pub struct Place {
    file: OnceLock<ToRemove>,
    exists: AtomicBool,
}

/// The signals to stop.
const STOPPING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
/// `timeout(1)` and shells may send one interrupt twice: to this process and to
/// its process group.
const SAME_MILLIS: i64 = 250;

/// Returns the signal to stop for an account that is closed now, including one
/// that another thread is just recording.
pub fn stop_so_far() -> Option<i32> {
    blocked::settle();
    stop()
}

/// Installs the handlers and returns the control that they use. `last_report` is
/// printed if a signal ends the process in an uninterruptible call.
///
/// If no descriptor is available for the control, or a filter refuses its
/// calls, the control is polled.
pub fn install(last_report: Vec<u8>) -> &'static Control {
    if CONTROL.get().is_none() {
        let control =
            Control::of_one_descriptor().unwrap_or_else(|_| Control::without_descriptor());
        let _ = POLLED.set(control.clone());
        let _ = CONTROL.set(control.interrupting());
        let _ = LAST_REPORT.set(last_report);
        // A handler starts the timer, whose signal needs a handler too: no signal
        // is delivered before all handlers are in place.
        sys::without_signals(|| {
            for signal in STOPPING.into_iter().filter(|signal| !sys::ignores(*signal)) {
                sys::handle_with_origin(signal, on_stop);
            }
            sys::handle_unless_ignored(libc::SIGUSR1, on_progress_request);
            alarm::adopt();
            sys::handle_with_origin(libc::SIGALRM, on_alarm);
        });
        // The signal mask is inherited and may block them. A pending signal then
        // finds its handler.
        sys::unblock(&[libc::SIGUSR1, libc::SIGALRM]);
        sys::unblock(&STOPPING);
        let mut handled = STOPPING.to_vec();
        handled.retain(|signal| !sys::ignores(*signal));
        blocked::watch(&handled, take_stop);
    }
    CONTROL.get().expect("set above")
}

/// Returns the control that [`install`] returned, for a transfer that is also
/// cancelled by threads that do not interrupt its thread.
pub fn polled() -> &'static Control {
    POLLED.get().expect("the handlers are installed first")
}

/// Runs a call that cannot be interrupted. A signal then ends the process with
/// the report of nothing moved.
pub fn uninterruptible<T>(call: impl FnOnce() -> T) -> Result<T, Interrupted> {
    UNINTERRUPTIBLE.store(true, Ordering::SeqCst);
    // A signal that arrived before the store has only been recorded.
    let done = check_stop().map(|()| call());
    UNINTERRUPTIBLE.store(false, Ordering::SeqCst);
    done
}

impl Place {
    const fn new() -> Place {
        Place {
            file: OnceLock::new(),
            exists: AtomicBool::new(false),
        }
    }

    /// The file is not removed at exit any more.
    pub fn clear(&self) {
        self.exists.store(false, Ordering::SeqCst);
    }
}

/// Registers a file that the handler that ends the process removes, until its place is
/// [cleared](Place::clear). `None`: no place is left.
pub fn remove_at_exit(file: ToRemove) -> Option<&'static Place> {
    let place = FILES.get(USED.fetch_add(1, Ordering::SeqCst))?;
    place.file.set(file).ok()?;
    place.exists.store(true, Ordering::SeqCst);
    Some(place)
}

/// Ends the process from a handler, without running destructors.
fn leave(stop: Stop) -> ! {
    for place in &FILES {
        if place.exists.load(Ordering::SeqCst)
            && let Some(file) = place.file.get()
        {
            file.remove();
        }
    }
    terminal::leave();
    if stop.of_terminal {
        sys::raise_by_default(stop.signal);
    }
    sys::exit_at_once(128 + stop.signal);
}

extern "C" fn on_stop(signal: libc::c_int, info: &libc::siginfo_t, _: *mut libc::c_void) {
    sys::keeping_errno(|| take_stop(Stop::of_code(signal, info.si_code)));
}

/// Records a signal to stop and stops the transfers; at the second one, ends the process.
/// Async-signal-safe.
fn take_stop(stop: Stop) {
    if let Err(since_first) = state::record_stop(stop) {
        if since_first < SAME_MILLIS {
            return;
        }
        leave(stop);
    }
    begin_stop(stop);
}

/// Stops the transfers after a stop was recorded. Async-signal-safe.
fn begin_stop(stop: Stop) {
    // The report of a background job does not stop it (`stty tostop`).
    sys::ignore(libc::SIGTTOU);
    tick(RETRY);
    if UNINTERRUPTIBLE.load(Ordering::SeqCst) {
        if let Some(report) = LAST_REPORT.get() {
            // SIGALRM interrupts a write that blocks, within this handler too.
            sys::unblock(&[libc::SIGALRM]);
            let _ = write_within(rustix::stdio::stderr(), report, GRACE);
        }
        leave(stop);
    }
    if let Some(control) = CONTROL.get() {
        control.cancel();
    }
}

/// Stops the command as SIGTERM does, also if that signal is ignored or cannot be sent. Does
/// nothing if the command stops already: a second signal would end it without its report. Called
/// by threads that block signals.
pub fn cancel() {
    if state::stop().is_some() {
        return;
    }
    // The main thread runs the handler, unless it is blocked: if the handler ends the process,
    // the caller can reply to its client before. A filter may refuse kill(2).
    let is_sent = !sys::ignores(libc::SIGTERM) && kill_process(getpid(), Signal::TERM).is_ok();
    let stop = Stop::sent(libc::SIGTERM);
    if !is_sent && state::record_stop(stop).is_ok() {
        begin_stop(stop);
    }
}

extern "C" fn on_progress_request(_: libc::c_int) {
    sys::keeping_errno(|| {
        state::request_progress();
        if let Some(control) = CONTROL.get() {
            control.wake();
        }
        tick(RETRY);
    });
}

extern "C" fn on_alarm(signal: libc::c_int, info: &libc::siginfo_t, _: *mut libc::c_void) {
    sys::keeping_errno(|| {
        // sigaction(2): `si_code` is not positive if a process has sent it.
        if alarm::is_to_stop(info.si_code <= 0) {
            take_stop(Stop::sent(signal));
        }
        if let Some(control) = CONTROL.get() {
            control.wake();
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicI64;

    use super::*;
    use crate::files::{RemovableSocket, SocketId};
    use crate::registry::{Directory, Entry};

    /// A handler that opens a file to read the clock also allocates, and hangs
    /// if the signal interrupted an allocation: before Linux 6.4, the first call
    /// of rustix that reads a clock does so.
    #[test]
    fn a_handler_opens_nothing() {
        const NAME: &str = "signals::handlers::tests::a_handler_opens_nothing";
        const ALONE: &str = "CORDBOARD_TEST_ALONE";
        const PR_GET_AUXV: u32 = 0x4155_5856;
        if std::env::var_os(ALONE).is_none() {
            // In a process of its own, nothing has read a clock before.
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

    /// The handler ends the process, without destructors.
    #[test]
    fn socket_files_and_the_entry_are_removed() {
        const NAME: &str = "signals::handlers::tests::socket_files_and_the_entry_are_removed";
        const FOLDER: &str = "CORDBOARD_TEST_FOLDER";
        let Some(folder) = std::env::var_os(FOLDER) else {
            let dir = tempfile::tempdir().unwrap();
            let program = std::env::current_exe().unwrap();
            let mut command = std::process::Command::new(program);
            let run = command.args(["--exact", NAME, "--nocapture"]);
            let run = run.env(FOLDER, dir.path()).output().unwrap();
            assert_eq!(run.status.code(), Some(130), "{run:?}");
            let left = std::fs::read_dir(dir.path()).unwrap();
            let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(left, ["kept"]);
            return;
        };
        let sockets = ["first", "kept", "second"].map(|name| {
            let path = std::path::Path::new(&folder).join(name);
            let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
            let file = RemovableSocket::new(&path, SocketId::of(&path).unwrap());
            let file = ToRemove::Socket(file.unwrap());
            (socket, remove_at_exit(file).unwrap())
        });
        sockets[1].1.clear();
        let directory = Directory::at(folder.into()).unwrap();
        let entry = Entry::new("splice", "a -> b".to_owned(), "@s".into());
        let entry = directory.register(&entry).unwrap();
        entry.remove_at_exit();
        install(Vec::new());
        let _ = uninterruptible(|| testkit::child::raise(libc::SIGINT));
        unreachable!("the handler has ended the process");
    }
}
