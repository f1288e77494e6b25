//! Starts a process and waits for it, with its processor time.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use super::cpu::Cpu;
use super::sys;

/// A process that takes longer is killed, and its run has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process to start. Standard input and output are `/dev/null` by default;
/// standard error is kept for the error message.
#[derive(Debug)]
pub struct Job {
    command: Command,
    what: String,
    complaints: File,
}

/// A running process.
#[derive(Debug)]
pub struct Running {
    pid: u32,
    what: String,
    complaints: File,
    output: Option<OwnedFd>,
}

/// The results of a process that succeeded.
#[derive(Debug)]
pub struct Finished {
    /// Its processor time.
    pub cpu: Cpu,
    /// Its standard output, if it was kept.
    pub output: String,
    /// Its standard error.
    pub complaints: String,
}

/// Reads the number of bytes that a process has counted, and their digest if it has computed
/// one.
pub fn counts(text: &str) -> Result<(u64, Option<u64>)> {
    let mut words = text.split_whitespace().map(str::parse::<u64>);
    let bytes = words.next().context("no count was printed")??;
    Ok((bytes, words.next().transpose()?))
}

impl Job {
    /// A process with this program and arguments.
    pub fn new(words: &[OsString]) -> Result<Job> {
        let (program, args) = words.split_first().context("an empty command line")?;
        let complaints = tempfile::tempfile()?;
        let mut command = Command::new(program);
        command
            .args(args)
            .env("LC_ALL", "C")
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(complaints.try_clone()?);
        Ok(Job {
            command,
            what: Path::new(program)
                .file_name()
                .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
            complaints,
        })
    }

    /// Sets its standard input.
    pub fn stdin(mut self, fd: impl Into<Stdio>) -> Job {
        self.command.stdin(fd);
        self
    }

    /// Sets its standard output.
    pub fn stdout(mut self, fd: impl Into<Stdio>) -> Job {
        self.command.stdout(fd);
        self
    }

    /// Keeps its standard output, which must be short, for [`Finished`].
    pub fn keep_output(mut self) -> Job {
        self.command.stdout(Stdio::piped());
        self
    }

    /// Sets its working directory.
    pub fn directory(mut self, path: &Path) -> Job {
        self.command.current_dir(path);
        self
    }

    /// The descriptors that it inherits as 3, 4, …
    pub fn hand_over(mut self, descriptors: Vec<OwnedFd>) -> Job {
        sys::hand_over(&mut self.command, descriptors);
        self
    }

    /// Starts it. This process closes the descriptors that it passed.
    pub fn start(mut self) -> Result<Running> {
        let mut child = self
            .command
            .spawn()
            .with_context(|| format!("cannot start {}", self.what))?;
        Ok(Running {
            pid: child.id(),
            what: self.what,
            complaints: self.complaints,
            output: child.stdout.take().map(OwnedFd::from),
        })
    }

    /// Starts it and waits; its results and the wall time in seconds.
    pub fn run(self) -> Result<(Finished, f64)> {
        let started = Instant::now();
        let running = self.start()?;
        let ended = running.reap()?;
        let wall = started.elapsed().as_secs_f64();
        Ok((ended.check()?, wall))
    }
}

/// A process that has ended.
#[derive(Debug)]
pub struct Reaped {
    running: Running,
    status: std::process::ExitStatus,
    cpu: Cpu,
    late: bool,
}

impl Running {
    /// Waits for the end only: reading the output must not add to the measured
    /// time.
    pub fn reap(self) -> Result<Reaped> {
        let late = !self.ended_in_time();
        let (status, cpu) = sys::wait_with_usage(self.pid)?;
        Ok(Reaped {
            running: self,
            status,
            cpu,
            late,
        })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Ends it by `SIGTERM`; its processor time. For a process that does not end
    /// by itself.
    pub fn end(self) -> Result<Cpu> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        kill_process(pid.context("no process number")?, Signal::TERM)?;
        let what = self.what.clone();
        let reaped = self.reap()?;
        ensure!(!reaped.late, "{what}: killed {PATIENCE:?} after SIGTERM");
        Ok(reaped.cpu)
    }

    fn ended_in_time(&self) -> bool {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let Some(Ok(pidfd)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else {
            return true; // before Linux 5.3: no time limit
        };
        let patience = Timespec::try_from(PATIENCE).expect("fits");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
            match poll(&mut fds, Some(&patience)) {
                Ok(1..) => return true,
                _ if Instant::now() >= deadline => break,
                _ => {}
            }
        }
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
        false
    }
}

impl Reaped {
    /// Its results; an error if it failed.
    pub fn check(mut self) -> Result<Finished> {
        let mut complaints = Vec::new();
        self.running.complaints.rewind()?;
        self.running.complaints.read_to_end(&mut complaints)?;
        let complaints = String::from_utf8_lossy(&complaints).into_owned();
        if self.late {
            bail!("{}: killed after {PATIENCE:?}", self.running.what);
        }
        if !self.status.success() {
            let lines: Vec<&str> = complaints
                .lines()
                .filter(|line| !line.trim().is_empty())
                .take(3)
                .collect();
            bail!(
                "{}: {}: {}",
                self.running.what,
                self.status,
                lines.join(" / ")
            );
        }
        let mut output = String::new();
        if let Some(fd) = self.running.output.take() {
            File::from(fd).read_to_string(&mut output)?;
        }
        Ok(Finished {
            cpu: self.cpu,
            output,
            complaints,
        })
    }
}
