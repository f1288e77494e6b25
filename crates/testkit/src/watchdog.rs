//! A watchdog that names the step that hangs. It asserts no duration.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// Returns how long a step may take before the process is aborted: a minute, times
/// `CORDBOARD_TEST_PATIENCE`, which the tools for sanitizers and emulators set.
pub fn patience() -> Duration {
    let times = std::env::var("CORDBOARD_TEST_PATIENCE");
    let times = times.ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    Duration::from_secs(60) * times
}

/// Whether a thread waits for a process that has a watchdog of its own, and when it last
/// did.
#[derive(Debug, Default)]
struct Waits {
    now: bool,
    until: Option<Instant>,
}

thread_local! {
    static WAITS: Arc<Mutex<Waits>> = Arc::default();
}

/// Runs `wait`, during which the steps of the calling thread may take any time: it waits
/// for a process that watches itself, and whose watchdog should come first.
pub fn while_another_watches<T>(wait: impl FnOnce() -> T) -> T {
    let set = |now| {
        WAITS.with(|waits| {
            *waits.lock().unwrap_or_else(PoisonError::into_inner) = Waits {
                now,
                until: Some(Instant::now()),
            };
        });
    };
    set(true);
    let done = wait();
    set(false);
    done
}

/// A step that is watched until this is dropped.
#[derive(Debug)]
pub struct Watched(#[allow(dead_code, reason = "dropped, not read")] mpsc::Sender<()>);

/// Watches a step of this name. If it takes longer than [`patience`], the process is
/// aborted with the name on standard error.
///
/// Each step has a thread of its own, so that no child of `fork(2)` inherits a held
/// lock. The thread runs when this returns: one that starts late would take memory
/// that a test counts.
pub fn watch(name: impl Into<String>) -> Watched {
    let (step, ended) = mpsc::channel();
    let (started, starts) = mpsc::channel();
    let name = name.into();
    let (start, waits) = (Instant::now(), WAITS.with(Arc::clone));
    std::thread::spawn(move || {
        let _ = started.send(());
        let mut left = patience();
        while ended.recv_timeout(left) == Err(mpsc::RecvTimeoutError::Timeout) {
            let waits = waits.lock().unwrap_or_else(PoisonError::into_inner);
            left = match waits.now {
                true => patience(),
                false => {
                    let since = waits.until.map_or(start, |until| until.max(start));
                    patience().saturating_sub(since.elapsed())
                }
            };
            if left.is_zero() {
                abort(&name);
            }
        }
    });
    let _ = starts.recv();
    Watched(step)
}

/// Aborts the process, whose step of this name hangs.
pub(crate) fn abort(name: &str) -> ! {
    // The harness captures what `eprintln!` writes here too.
    let mut out = std::io::stderr().lock();
    let _ = writeln!(out, "HANGS: {name}");
    // Twice: a thread that makes progress is seen in two places.
    for pause in [Duration::from_secs(1), Duration::ZERO] {
        for line in tasks() {
            let _ = writeln!(out, "{line}");
        }
        std::thread::sleep(pause);
    }
    crate::owned::kill_all();
    std::process::abort();
}

/// Describes where each thread of this process sleeps: its name, system call and kernel
/// function.
fn tasks() -> Vec<String> {
    let entries = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let describe = |entry: std::fs::DirEntry| {
        let read = |file| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        let [name, call, place] = ["comm", "syscall", "wchan"].map(read);
        let thread = entry.file_name();
        let (thread, name, call) = (thread.display(), name.trim(), call.trim());
        format!("thread {thread} {name}: {call} in {place}")
    };
    entries.flatten().map(describe).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_thread_is_described() {
        let own = rustix::thread::gettid().as_raw_nonzero().to_string();
        assert!(super::tasks().iter().any(|line| line.contains(&own)));
    }
}
