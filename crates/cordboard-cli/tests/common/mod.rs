//! What all tests of the command share.
#![allow(dead_code, missing_docs)]

pub mod mounted;
pub mod overlay;

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub use tempfile::TempDir;
pub use testkit::owned::{Owned, Start};

/// No step of these tests takes this long unless it hangs.
pub fn deadline() -> Duration {
    testkit::watchdog::patience()
}

pub fn cordboard() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cordboard"));
    testkit::environment::defaults(&mut command)
        // The terminals of tests interpret escape sequences.
        .env_remove("TERM")
        // Entries of tests do not appear in the list of the user who runs them.
        .env("CORDBOARD_RUNTIME_DIR", env!("CARGO_TARGET_TMPDIR"))
        .stdin(Stdio::null());
    command
}

/// A file without an end is copied in small steps, so that the disk does not fill up.
pub const SMALL_STEPS: [&str; 6] = [
    "--route",
    "read/write",
    "--sparse",
    "never",
    "--block",
    "512",
];

/// Starts a command with pipes for its standard descriptors.
pub fn piped(command: &mut Command) -> Owned {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start()
}

/// The path between two pipes.
pub fn between_pipes() -> &'static str {
    match testkit::needs::Need::Splice.is_met() {
        true => "splice",
        false => "read/write",
    }
}

/// Runs a command; fails the test if it hangs.
pub fn run(command: &mut Command) -> Run {
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start();
    end(child)
}

/// `cordboard` with these arguments.
pub fn call<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Run {
    run(cordboard().args(args))
}

/// Runs a command whose standard output no process reads.
pub fn run_unread(command: &mut Command) -> Run {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.start();
    drop(child.stdout.take());
    end(child)
}

/// Makes a FIFO. Returns its name.
pub fn fifo(path: &Path) -> &str {
    rustix::fs::mkfifoat(rustix::fs::CWD, path, 0o644.into()).unwrap();
    path.to_str().unwrap()
}

/// Waits for the end of a child; kills it and fails if it hangs.
pub fn end(child: Owned) -> Run {
    let pid = child.id();
    let (done, timer) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        if timer.recv_timeout(deadline()) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            panic!("it hangs");
        }
    });
    let output = child.wait_with_output().unwrap();
    drop(done);
    watch.join().expect("it hangs");
    Run(output)
}

/// The result of a run.
pub struct Run(pub Output);

impl Run {
    pub fn code(&self) -> i32 {
        self.0.status.code().unwrap_or(-1)
    }

    pub fn stdout(&self) -> &[u8] {
        &self.0.stdout
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    /// The last line of standard error, as JSON.
    pub fn json(&self) -> serde_json::Value {
        let stderr = self.stderr();
        let line = stderr.lines().last().unwrap_or_else(|| panic!("no line"));
        serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {stderr}"))
    }

    /// The totals line of several files.
    pub fn sum(&self) -> Option<String> {
        self.stderr().lines().find(|l| is_sum(l)).map(String::from)
    }

    #[track_caller]
    pub fn ok(&self) -> &Run {
        assert_eq!(self.code(), 0, "{}", self.stderr());
        self
    }

    /// Checks for exactly one line that contains this, besides the totals of
    /// several files and the report.
    #[track_caller]
    pub fn fails(&self, code: i32, says: &[&str]) -> &Run {
        let stderr = self.stderr();
        assert_eq!(self.code(), code, "{stderr}");
        let beside = |l: &&str| !l.starts_with('{') && !is_sum(l);
        let lines: Vec<&str> = stderr.lines().filter(beside).collect();
        assert_eq!(lines.len(), 1, "one line: {stderr}");
        for words in says {
            assert!(lines[0].contains(words), "`{words}` in: {stderr}");
        }
        self
    }
}

fn is_sum(line: &str) -> bool {
    let ends = [" failed", ", the rest left out"];
    line.contains(" copied, ") && ends.iter().any(|end| line.ends_with(end))
}

/// Bytes that differ everywhere and do not repeat soon.
pub fn bytes(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

pub fn dir() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A file with these bytes.
pub fn file(dir: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

pub fn read(path: impl AsRef<Path>) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

/// Waits until the condition holds.
#[track_caller]
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < deadline(), "{what} did not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Feeds a child's standard input, and closes it.
pub fn feed(child: &mut Child, bytes: &[u8]) {
    child.stdin.take().unwrap().write_all(bytes).unwrap();
}

/// Whether the first thread of the process sleeps (state S of `proc(5)`, `stat`).
pub fn sleeping(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ")
        .next()
        .is_some_and(|rest| rest.starts_with('S'))
}

/// Whether all threads of the process are stopped (SIGSTOP).
pub fn is_stopped(pid: u32) -> bool {
    let stops = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(task.unwrap().path().join("stat"));
        let stat = stat.unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|s| s.starts_with('T'))
    };
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    tasks.is_ok_and(|mut tasks| tasks.all(stops))
}

/// Whether the process handles this signal yet (`proc(5)`, `SigCgt`).
pub fn handles(pid: u32, signal: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| {
        line.strip_prefix("SigCgt:\t")
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
    })
}

/// Reads two lines of `--progress lines`, ends the command by SIGTERM, and returns all that
/// it has written. A line has no control characters.
pub fn lines_until_stopped(mut child: Owned) -> String {
    use std::io::{BufRead, BufReader, Read};
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut lines = String::new();
    for _ in 0..2 {
        stderr.read_line(&mut lines).unwrap();
    }
    signal(child.id(), rustix::process::Signal::TERM);
    stderr.read_to_string(&mut lines).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(!lines.contains(['\r', '\x1b']), "{lines}");
    lines
}

/// The next change of the state of this job. One that has ended stays, so that its number
/// is not used again before its guard is dropped.
pub fn next_of(job: u32) -> rustix::process::WaitIdStatus {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let job = Pid::from_raw(job as i32).unwrap();
    let next = |what| waitid(WaitId::Pid(job), what).unwrap().unwrap();
    let both = WaitIdOptions::EXITED | WaitIdOptions::STOPPED;
    let status = next(both | WaitIdOptions::NOWAIT);
    if status.stopped() {
        next(WaitIdOptions::STOPPED);
    }
    status
}

pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Copies a program to `to`, to run it from there. Another process copies it: a child of
/// this one that another test starts could hold the file open for writing, and running
/// the program would be `ETXTBSY`.
pub fn install(program: &str, to: &Path) {
    let copied = Command::new("cp").arg(program).arg(to).status().unwrap();
    assert!(copied.success());
}

/// Skips a test that needs root, with a message; the skips are counted.
pub fn root(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        testkit::skip::here(format!("{what} needs root"));
    }
    root
}

/// As [`testkit::refuse::apart`]. The thread that watches the children is started before, so
/// that it does not inherit the filters.
pub fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    testkit::owned::watching();
    testkit::refuse::apart(work)
}

/// Skips a test that mounts a file system if that is not possible here.
pub fn can_mount() -> bool {
    use testkit::needs::{Need, missing};
    !missing(&testkit::skip::this_test(), &[Need::Mounts])
}

/// A terminal of this number of columns; 0 if it does not know. Its output
/// appears on the first descriptor.
pub fn terminal_of(columns: u16) -> (std::fs::File, std::fs::File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let size = rustix::termios::Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(&master, size).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let terminal = std::fs::File::options()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap();
    (std::fs::File::from(master), terminal)
}

/// The next output on a terminal; `false` once no process has it open any more
/// (`EIO`).
pub fn more(master: &mut std::fs::File, screen: &mut String) -> bool {
    let mut piece = [0; 256];
    let n = std::io::Read::read(master, &mut piece).unwrap_or(0);
    *screen += std::str::from_utf8(&piece[..n]).unwrap();
    n > 0
}

/// Sends bytes that the command does not read. On return they have arrived.
pub fn send_unread(peer: &mut std::net::TcpStream) {
    use std::os::fd::AsFd;
    peer.write_all(b"greeting").unwrap();
    until("an acknowledgement", || {
        (testkit::stalled::untaken(peer.as_fd()) == 0).then_some(())
    });
}
