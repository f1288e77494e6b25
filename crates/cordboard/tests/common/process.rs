//! The process of a test: another one for a single test, descriptors, hangs.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Once;

use testkit::owned::{Owned, Start};
use testkit::watchdog::{Watched, watch};

/// Aborts the process if the test hangs.
pub fn watchdog(name: impl Into<String>) -> Watched {
    report_variables();
    watch(name)
}

/// Reports the variables of the user that change paths, since the tests expect the defaults.
fn report_variables() {
    static REPORTED: Once = Once::new();
    REPORTED.call_once(|| {
        for variable in testkit::environment::set() {
            // The harness captures what `eprintln!` writes.
            let mut out = std::io::stderr().lock();
            let _ = writeln!(out, "{variable} is set: tests may fail");
        }
    });
}

/// The name of the calling test, as `--exact` takes it. Expands to an expression
/// that must stand in the test's own function, outside any closure.
macro_rules! this_test {
    () => {{
        fn here() {}
        $crate::common::process::test_of(std::any::type_name_of_val(&here))
    }};
}
pub(crate) use this_test;

/// Runs the calling test again, alone in another process. For a test that
/// changes process-wide state (limits, signal handlers, descriptors, user,
/// filters of all threads), and for a test that forks, whose child would inherit
/// the descriptors of concurrent tests. True in the new process; false in the
/// first one, once the new one has succeeded.
macro_rules! alone {
    () => {
        $crate::common::process::is_alone($crate::common::this_test!())
    };
}
pub(crate) use alone;

/// The name of a test, from the path of a function in it: without the crate and
/// that function.
pub fn test_of(inner: &'static str) -> &'static str {
    let name = inner.split_once("::").map(|(_, name)| name);
    let name = name.and_then(|name| name.strip_suffix("::here"));
    name.expect("the path of a function in a test")
}

/// The command that runs the test of this name alone.
pub fn command_of(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    command
}

const CHILD: &str = "CORDBOARD_TEST_CHILD";

/// The function of [`alone!`].
pub fn is_alone(name: &'static str) -> bool {
    if std::env::var(CHILD).is_ok_and(|child| child == name) {
        return true;
    }
    let mut command = command_of(name);
    command.env(CHILD, name).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    passes(command.start(), "1 passed");
    false
}

/// Waits for a child that runs tests of this program, which must pass and print these words.
/// Repeats the reasons of skips.
pub fn passes(child: Owned, words: &str) {
    // Its own watchdog comes first, and ends no other test.
    let output = testkit::watchdog::while_another_watches(|| child.wait_with_output()).unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}", output.status);
    assert!(text.contains(words), "not {words}\n{text}");
    // The name of the test may precede the reason.
    for (at, _) in text.match_indices("SKIPPED: ") {
        let line = text[at..].lines().next().unwrap_or_default();
        // The harness captures what `eprintln!` writes.
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    }
}

/// Returns the threads of this process that have one of these names.
pub fn threads(names: &[&str]) -> Vec<PathBuf> {
    let all = names.iter().map(|name| testkit::locked::threads(name));
    all.flatten().collect()
}

/// Returns how often the threads of these names have gone to sleep.
pub fn switches(names: &[&str]) -> u64 {
    let all = threads(names);
    let of = |task: &PathBuf| testkit::locked::switches(task);
    all.iter().filter_map(of).sum()
}

/// Waits until the threads of these names sleep, of which one exists or is being started.
pub fn asleep(names: &[&str]) {
    // A new thread has the name of its creator at first.
    while threads(names).is_empty() {
        std::thread::yield_now();
    }
    until_all_sleep(|| threads(names));
}

/// Waits until every thread of this process but the calling one sleeps.
pub fn others_asleep() {
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    until_all_sleep(|| {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let others = tasks.filter(|task| task.file_name() != *own);
        others.map(|task| task.path()).collect()
    });
}

/// Waits until no thread has run between two looks. One may wake another, so their states alone
/// are not enough.
fn until_all_sleep(threads: impl Fn() -> Vec<PathBuf>) {
    let mut before = Vec::new();
    loop {
        let now: Vec<_> = threads().iter().filter_map(|task| state(task)).collect();
        if now == before && now.iter().all(|(state, _)| *state == 'S') {
            return;
        }
        before = now;
        std::thread::yield_now();
    }
}

/// Returns a thread's state and its count of voluntary switches; `None` if it has ended.
fn state(task: &Path) -> Option<(char, u64)> {
    let status = std::fs::read_to_string(task.join("status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("State:"))?;
    let state = line.trim().chars().next()?;
    Some((state, testkit::locked::switches_of(&status)?))
}

/// Raises the limit of open files to this number, or as far as possible, and returns it.
pub fn allow_files(want: u64) -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    for limit in [want, most.min(want)] {
        let raised = Rlimit {
            current: Some(limit),
            maximum: Some(most.max(limit)),
        };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            break;
        }
    }
    getrlimit(Resource::Nofile)
        .current
        .unwrap_or(want)
        .min(want)
}

/// Returns how many times `each` descriptors, beside `others`, the limit of open files allows,
/// and reports the test as skipped if that is less than `most`. `None`: too few to test.
pub fn allowed(most: usize, each: usize, others: usize) -> Option<usize> {
    /// The fixed cost of an engine would count for more than a few of them.
    const LEAST: usize = 100;
    let files = usize::try_from(allow_files((most * each + others) as u64)).unwrap();
    let count = files.saturating_sub(others) / each;
    if count < most {
        testkit::skip::here(format!("{count} of {most}: the limit of open files"));
    }
    (count >= LEAST).then_some(count)
}

/// Returns the pages of address space of the process once its other threads sleep: a
/// thread that starts reserves an arena, or extends the heap (`arena_get2`,
/// malloc/arena.c).
pub fn settled_pages() -> u64 {
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let sleeps = |task: &std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The state follows the name, which may contain parentheses.
        stat.rsplit(") ")
            .next()
            .is_none_or(|rest| !rest.starts_with('R'))
    };
    let others_sleep = || {
        let mut tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        tasks.all(|task| task.file_name() == *own || sleeps(&task))
    };
    let pages = || -> u64 {
        let all = std::fs::read_to_string("/proc/self/statm").unwrap();
        all.split(' ').next().unwrap().parse().unwrap()
    };
    let (mut found, mut same) = (pages(), 0);
    while same < 100 {
        std::thread::yield_now();
        let now = pages();
        same = if now == found && others_sleep() {
            same + 1
        } else {
            0
        };
        found = now;
    }
    found
}

/// The number of open descriptors of this process.
pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Makes the library's calls of `socketpair(2)` fail, in this thread and the
/// threads that it starts. The library then puts no socket pair between two
/// pipes, and inspects the bytes.
pub fn refuse_own_socket_pairs() {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    testkit::refuse::refuse_where(libc::SYS_socketpair, 1, kind as u32, libc::EPERM);
}
