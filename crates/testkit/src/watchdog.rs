//! A watchdog that names the step that hangs. It asserts no duration.

use std::io::Write;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Returns how long a step may take before the process is aborted: a minute, times
/// `CORDBOARD_TEST_PATIENCE`, which the tools for sanitizers and emulators set.
pub fn patience() -> Duration {
    let times = std::env::var("CORDBOARD_TEST_PATIENCE");
    let times = times.ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    Duration::from_secs(60) * times
}

static RUNNING: Mutex<Vec<(u64, String, Instant)>> = Mutex::new(Vec::new());

/// A step that is watched until this is dropped.
#[derive(Debug)]
pub struct Watched(u64);

/// Watches a step of this name. If it takes longer than [`patience`], the process is
/// aborted with the name on standard error.
pub fn watch(name: impl Into<String>) -> Watched {
    static STARTED: OnceLock<()> = OnceLock::new();
    static NEXT: Mutex<u64> = Mutex::new(0);
    STARTED.get_or_init(|| {
        std::thread::spawn(patrol);
    });
    let id = {
        let mut next = NEXT.lock().unwrap_or_else(|e| e.into_inner());
        *next += 1;
        *next
    };
    let mut running = RUNNING.lock().unwrap_or_else(|e| e.into_inner());
    running.push((id, name.into(), Instant::now()));
    Watched(id)
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut running = RUNNING.lock().unwrap_or_else(|e| e.into_inner());
        running.retain(|(id, ..)| *id != self.0);
    }
}

fn patrol() {
    let patience = patience();
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let running = RUNNING.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((_, name, _)) = running.iter().find(|(_, _, at)| at.elapsed() > patience) {
            // The harness captures what `eprintln!` writes here too.
            let _ = writeln!(std::io::stderr().lock(), "HANGS: {name}");
            std::process::abort();
        }
    }
}
