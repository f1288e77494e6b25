//! Tests that are skipped on this machine or for this user.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Mutex;

use crate::filesystem::{OVERLAYFS, temporary_kind};

static SKIPPED: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());

/// Counts something as skipped, and prints the reason the first time. It is written to
/// the descriptor, since the harness captures what `eprintln!` writes.
pub fn report(what: &str, reason: &str) {
    let line = format!("SKIPPED: {what}: {reason}");
    let mut skipped = SKIPPED.lock().unwrap_or_else(|e| e.into_inner());
    let times = skipped.entry(line.clone()).or_insert(0);
    *times += 1;
    if *times == 1 {
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    }
}

/// Reports the running test, or the rest of it, as skipped.
pub fn here(reason: impl AsRef<str>) {
    report(&this_test(), reason.as_ref());
}

/// Returns the name of the running test: that of its thread, or, on the first thread,
/// the argument of `--exact`.
pub fn this_test() -> String {
    let thread = std::thread::current();
    let named = thread.name().filter(|name| *name != "main");
    let mut arguments = std::env::args().skip_while(|argument| argument != "--exact");
    let asked = || arguments.nth(1).unwrap_or_else(|| "a test".into());
    named.map_or_else(asked, str::to_owned)
}

/// Whether the temporary directory is on overlayfs; reports the test as skipped then, for
/// this reason.
pub fn on_overlayfs(reason: &str) -> bool {
    let overlay = temporary_kind() == OVERLAYFS;
    if overlay {
        here(format!("on overlayfs {reason}"));
    }
    overlay
}

/// Returns how many times anything was skipped in this process.
pub fn count() -> u32 {
    let skipped = SKIPPED.lock().unwrap_or_else(|e| e.into_inner());
    skipped.values().sum()
}

/// Whether this process has root's rights: loop devices, mounts.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
