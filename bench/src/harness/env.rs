//! The environment of a run. It contains nothing that identifies a machine: no
//! host name, no user name, only relative paths.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::tools::Tools;

/// The contents of `env.json`.
#[derive(Debug, Serialize)]
pub struct Environment {
    /// The date, UTC.
    pub date: String,
    /// The kind of machine, such as `2core`.
    pub host: String,
    /// `uname -r`.
    pub kernel: String,
    /// The number of processors that this program may use.
    pub cores: usize,
    /// The processor model.
    pub cpu: String,
    /// The size of the memory, in GiB.
    pub memory_gib: u64,
    /// The file system of the directory with the files.
    pub filesystem: String,
    /// The default of TCP connections (`tcp_congestion_control` in tcp(7)).
    pub congestion_control: String,
    /// The load average of the minute before the run.
    pub load_before: String,
    /// The command line, without the path of the program.
    pub command: Vec<String>,
    /// The commit, with `+` if the working tree had changes.
    pub commit: String,
    /// The version of the compiler.
    pub rustc: String,
    /// `CORDBOARD_ROUTE`, `CORDBOARD_WITHOUT` and `CORDBOARD_TUNE`, if set.
    pub switches: BTreeMap<String, String>,
    /// The versions of the programs.
    pub versions: BTreeMap<String, String>,
}

impl Environment {
    /// The current environment of a run with its files in `directory`.
    pub fn of(directory: &Path, tools: &Tools) -> Environment {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let kernel = rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned();
        Environment {
            date: today(),
            host: format!("{cores}core"),
            kernel,
            cores,
            cpu: proc_field("/proc/cpuinfo", "model name"),
            memory_gib: kib(&proc_field("/proc/meminfo", "MemTotal")) >> 20,
            filesystem: filesystem(directory),
            congestion_control: fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")
                .map_or("unknown".to_owned(), |name| name.trim().to_owned()),
            load_before: fs::read_to_string("/proc/loadavg")
                .map_or(String::new(), |l| l.split(' ').take(1).collect()),
            command: command(),
            commit: commit(),
            rustc: first_line("rustc", &["--version"]),
            switches: ["CORDBOARD_ROUTE", "CORDBOARD_WITHOUT", "CORDBOARD_TUNE"]
                .into_iter()
                .filter_map(|k| Some((k.to_owned(), std::env::var(k).ok()?)))
                .collect(),
            versions: tools.versions().into_iter().collect(),
        }
    }

    /// `DATE-HOST-KERNEL`.
    pub fn tag(&self) -> String {
        let numbers: String = self
            .kernel
            .chars()
            .take_while(|c| c.is_ascii_digit() || *c == '.')
            .collect();
        format!("{}-{}-{}", self.date, self.host, numbers)
    }
}

/// The memory that is available to a run, in bytes.
pub fn memory_available() -> u64 {
    kib(&proc_field("/proc/meminfo", "MemAvailable")) << 10
}

fn kib(text: &str) -> u64 {
    text.split(' ')
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(0)
}

fn proc_field(file: &str, field: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let value = line.and_then(|line| line.split_once(':'));
    value.map_or("unknown".to_owned(), |(_, value)| value.trim().to_owned())
}

/// The name of the file system of a path, by its magic number.
pub fn filesystem(path: &Path) -> String {
    match rustix::fs::statfs(path).map(|s| s.f_type as u64 & 0xffff_ffff) {
        Ok(0xef53) => "ext4".to_owned(),
        Ok(0x0102_1994) => "tmpfs".to_owned(),
        Ok(0x5846_5342) => "xfs".to_owned(),
        Ok(0x9123_683e) => "btrfs".to_owned(),
        Ok(0x794c_7630) => "overlayfs".to_owned(),
        Ok(0x6969) => "nfs".to_owned(),
        Ok(0x0102_1997) => "9p".to_owned(),
        Ok(0x2fc1_2fc1) => "zfs".to_owned(),
        Ok(other) => format!("{other:#x}"),
        Err(error) => error.to_string(),
    }
}

/// The command line, with absolute paths removed.
fn command() -> Vec<String> {
    let mut words = vec!["bench".to_owned()];
    words.extend(std::env::args().skip(1).map(|arg| match arg.find('/') {
        Some(at) if arg[at..].starts_with('/') => format!("{}…", &arg[..at]),
        _ => arg,
    }));
    words
}

fn commit() -> String {
    let id = first_line("git", &["rev-parse", "--short", "HEAD"]);
    let changes = first_line("git", &["status", "--porcelain", "--untracked-files=no"]);
    if changes == "unknown" {
        id
    } else {
        format!("{id}+")
    }
}

fn first_line(program: &str, args: &[&str]) -> String {
    let ran = Command::new(program).args(args).output();
    let text = ran.map_or(String::new(), |o| {
        String::from_utf8_lossy(&o.stdout).into_owned()
    });
    text.lines().next().unwrap_or("unknown").to_owned()
}

fn today() -> String {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    let (year, month, day) = civil(seconds / 86_400);
    format!("{year}-{month:02}-{day:02}")
}

/// The date `days` days after 1970-01-01.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::civil;

    #[test]
    fn dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(59), (1970, 3, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_453), (2025, 12, 31));
        assert_eq!(civil(20_778), (2026, 11, 21));
    }
}
