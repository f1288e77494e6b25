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
    let allowed = rustix::thread::sched_getaffinity(None).ok();
    let is_allowed = |cpu: usize| allowed.as_ref().is_none_or(|set| set.is_set(cpu));
    idle_of(&std::fs::read_to_string("/proc/stat").ok()?, is_allowed)
}

/// Adds up the lines `cpu0 user nice system idle iowait …` of these processors.
fn idle_of(text: &str, is_allowed: impl Fn(usize) -> bool) -> Option<Idle> {
    let (mut ticks, mut processors) = (0, 0);
    for line in text.lines() {
        let Some(line) = line.strip_prefix("cpu") else {
            continue;
        };
        let mut words = line.split_ascii_whitespace();
        // The first line is the sum of all processors, and has no number.
        let Some(cpu) = words.next().filter(|_| !line.starts_with(' ')) else {
            continue;
        };
        if is_allowed(cpu.parse().ok()?) {
            let mut times = words.skip(3).map_while(|word| word.parse::<u64>().ok());
            ticks += times.next()? + times.next().unwrap_or(0);
            processors += 1;
        }
    }
    (processors > 0).then(|| Idle {
        time: Duration::from_millis(ticks * (1000 / TICKS)),
        processors,
    })
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
        let idle = |allowed: fn(usize) -> bool| idle_of(text, allowed);
        let of = |ticks: u64, processors| Idle {
            time: Duration::from_millis(ticks * 10),
            processors,
        };
        assert_eq!(idle(|_| true), Some(of(59, 2)));
        assert_eq!(idle(|cpu| cpu == 1), Some(of(36, 1)));
        assert_eq!(idle(|_| false), None);
        assert_eq!(idle_of("cpu0 1 2", |_| true), None);
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
