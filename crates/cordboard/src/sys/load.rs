//! The load of the processors and of disks, from procfs and sysfs.

use std::path::PathBuf;
use std::time::Duration;

/// Ticks of `/proc/stat` in a second (`USER_HZ`, the same on all architectures of
/// Linux that Rust supports).
const TICKS: u64 = 100;
/// The length of a sector in the statistics of block devices. It does not depend on the
/// device.
const SECTOR: u64 = 512;

/// The idle time of the processors that the calling thread may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Idle {
    /// The sum over all these processors since the start of the system, in steps of
    /// 10 ms.
    pub(crate) time: Duration,
    /// The number of these processors.
    pub(crate) processors: u32,
}

/// Returns the idle time, including the time in which a processor waited for a disk
/// (`iowait`). `None`: procfs is not mounted.
pub(crate) fn idle() -> Option<Idle> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let all = processors(&text)?;
    let Ok(set) = rustix::thread::sched_getaffinity(None) else {
        return sum(&all);
    };
    idle_of(&all, |cpu| set.is_set(cpu), set.count() as usize)
}

/// Adds up the times of the processors that are allowed, whose number is `count`.
fn idle_of(all: &[(usize, u64)], is_allowed: impl Fn(usize) -> bool, count: usize) -> Option<Idle> {
    let allowed: Vec<_> = (all.iter().copied())
        .filter(|(cpu, _)| is_allowed(*cpu))
        .collect();
    // The mask has the numbers of the host, and no offline processors. In a container, lxcfs
    // lists those of the container, numbered from 0 (`proc_cpuview.c`).
    let is_renumbered = allowed.len() < count;
    sum(if is_renumbered { all } else { &allowed })
}

fn sum(processors: &[(usize, u64)]) -> Option<Idle> {
    let ticks: u64 = processors.iter().map(|(_, ticks)| ticks).sum();
    (!processors.is_empty()).then(|| Idle {
        time: Duration::from_millis(ticks * (1000 / TICKS)),
        processors: processors.len() as u32,
    })
}

/// Returns the number and the idle ticks of each processor, from lines such as
/// `cpu0 user nice system idle iowait …`.
fn processors(text: &str) -> Option<Vec<(usize, u64)>> {
    let mut all = Vec::new();
    for line in text.lines() {
        let Some(line) = line.strip_prefix("cpu") else {
            continue;
        };
        let mut words = line.split_ascii_whitespace();
        // The first line is the sum of all processors, and has no number.
        let Some(cpu) = words.next().filter(|_| !line.starts_with(' ')) else {
            continue;
        };
        let mut times = words.skip(3).map_while(|word| word.parse::<u64>().ok());
        let ticks = times.next()? + times.next().unwrap_or(0);
        all.push((cpu.parse().ok()?, ticks));
    }
    Some(all)
}

/// The traffic of a block device since the start of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// Bytes read.
    pub(crate) read: u64,
    /// Bytes written.
    pub(crate) written: u64,
    /// The time in which the device had requests.
    pub(crate) busy: Duration,
}

/// Returns the traffic of the disk with this device number; for a partition, of its whole
/// disk (Documentation/block/stat.rst of the kernel). `None`: the number is not that of a
/// block device (tmpfs, a file server, btrfs), or sysfs is not mounted.
pub(crate) fn traffic(device: u64) -> Option<Traffic> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    if major == 0 {
        return None;
    }
    let mut folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    if folder.join("partition").exists() {
        folder.push("..");
    }
    traffic_of(&std::fs::read_to_string(folder.join("stat")).ok()?)
}

fn traffic_of(text: &str) -> Option<Traffic> {
    let numbers: Vec<u64> = (text.split_ascii_whitespace())
        .map_while(|word| word.parse().ok())
        .collect();
    Some(Traffic {
        read: numbers.get(2)?.wrapping_mul(SECTOR),
        written: numbers.get(6)?.wrapping_mul(SECTOR),
        busy: Duration::from_millis(*numbers.get(9)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_allowed_processors_count() {
        let text = "cpu  30 0 0 50 9 0\ncpu0 10 0 5 20 3 0 0\ncpu1 20 0 5 30 6 0 0\nintr 5\n";
        let all = processors(text).unwrap();
        let idle = |is_allowed: fn(usize) -> bool, count| idle_of(&all, is_allowed, count);
        let of = |ticks: u64, processors| Idle {
            time: Duration::from_millis(ticks * 10),
            processors,
        };
        assert_eq!(idle(|_| true, 2), Some(of(59, 2)));
        assert_eq!(idle(|cpu| cpu == 1, 1), Some(of(36, 1)));
        assert_eq!(processors("cpu0 1 2"), None);
        assert_eq!(sum(&[]), None);
        // The numbers are those of a container.
        assert_eq!(idle(|cpu| cpu == 8 || cpu == 9, 2), Some(of(59, 2)));
        assert_eq!(idle(|cpu| cpu == 0 || cpu == 8, 2), Some(of(59, 2)));
    }

    #[test]
    fn a_disk_has_bytes_and_a_busy_time() {
        let text = "  10 0 2048 5   20 1 4096 6   0 700 11 0 0 0 0 0 0\n";
        let expected = Traffic {
            read: 1 << 20,
            written: 2 << 20,
            busy: Duration::from_millis(700),
        };
        assert_eq!(traffic_of(text), Some(expected));
        assert_eq!(traffic_of("1 2 3"), None);
        assert_eq!(traffic(0), None);
    }

    #[test]
    fn this_machine_has_processors() {
        let Some(idle) = idle() else {
            return testkit::skip::here("procfs is not mounted");
        };
        assert!(idle.processors > 0);
    }
}
