//! Tests that this machine or this user cannot run.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Mutex;

static SKIPPED: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());

/// Counts something as skipped; its reason is printed the first time. Written
/// past the test harness's capture, so that it shows in a passing run too.
pub fn report(what: &str, reason: &str) {
    let line = format!("SKIPPED: {what}: {reason}");
    let mut skipped = SKIPPED.lock().unwrap_or_else(|e| e.into_inner());
    let times = skipped.entry(line.clone()).or_insert(0);
    *times += 1;
    if *times == 1 {
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    }
}

/// The same of the test that this is, or the rest of it.
pub fn here(reason: impl AsRef<str>) {
    report(&this_test(), reason.as_ref());
}

/// A test's thread has its name; the first thread runs only the test that is
/// asked for by its exact name.
pub fn this_test() -> String {
    let thread = std::thread::current();
    let named = thread.name().filter(|name| *name != "main");
    let mut arguments = std::env::args().skip_while(|argument| argument != "--exact");
    let asked = || arguments.nth(1).unwrap_or_else(|| "a test".into());
    named.map_or_else(asked, str::to_owned)
}

/// How many times anything was skipped in this process.
pub fn count() -> u32 {
    let skipped = SKIPPED.lock().unwrap_or_else(|e| e.into_inner());
    skipped.values().sum()
}

/// Whether this process may do what root does here: loop devices, mounts.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
