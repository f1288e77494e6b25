//! Resource usage of this process or of one thread: for contestants that share
//! a process with the readers and writers at their ends.

use std::fs;
use std::ops::Sub;

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

use super::sys;

/// Usage up to a moment, or between two.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// Processor seconds.
    pub cpu: f64,
    /// Voluntary context switches: how often a thread has slept and woken.
    /// `getrusage(2)`.
    pub switches: f64,
}

impl Usage {
    /// The usage of all threads, including ended ones.
    pub fn of_process() -> Result<Usage> {
        Ok(Usage {
            cpu: seconds(ClockId::ProcessCPUTime),
            switches: sys::voluntary_switches()? as f64,
        })
    }

    /// The usage of the calling thread.
    pub fn of_thread() -> Result<Usage> {
        let status = fs::read_to_string("/proc/thread-self/status")?;
        let switches = field(&status, "voluntary_ctxt_switches").context("no switches")?;
        Ok(Usage {
            cpu: seconds(ClockId::ThreadCPUTime),
            switches,
        })
    }
}

impl Sub for Usage {
    type Output = Usage;

    fn sub(self, earlier: Usage) -> Usage {
        Usage {
            cpu: self.cpu - earlier.cpu,
            switches: self.switches - earlier.switches,
        }
    }
}

/// The resident set size, in bytes.
pub fn resident() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    Ok(field(&status, "VmRSS").context("no VmRSS")? * 1024.0)
}

/// The peak resident set size since [`forget_peak`], in bytes.
pub fn resident_peak() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    Ok(field(&status, "VmHWM").context("no VmHWM")? * 1024.0)
}

/// Resets the peak. `proc_pid_clear_refs(5)`
pub fn forget_peak() -> Result<()> {
    Ok(fs::write("/proc/self/clear_refs", "5")?)
}

/// The number in the line of this name of a `status` file.
fn field(status: &str, name: &str) -> Option<f64> {
    let mut lines = status.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(n, _)| *n == name)?;
    value.split_whitespace().next()?.parse().ok()
}

/// The sum of the capacities of all pipes of this process, in bytes.
pub fn pipe_capacity() -> Result<f64> {
    let mut seen = Vec::new();
    let mut sum = 0;
    for entry in fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let Ok(target) = fs::read_link(entry.path()) else {
            continue; // the descriptor of the directory
        };
        let number = entry.file_name().to_string_lossy().parse::<i32>();
        let (true, Ok(number)) = (target.to_string_lossy().starts_with("pipe:"), number) else {
            continue;
        };
        seen.push((target, number));
    }
    // Both ends and duplicates are the same pipe.
    seen.sort();
    seen.dedup_by(|a, b| a.0 == b.0);
    for (_, number) in seen {
        sum += sys::pipe_capacity(number).unwrap_or(0);
    }
    Ok(sum as f64)
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text =
            "VmHWM:\t    12 kB\nnonvoluntary_ctxt_switches:\t9\nvoluntary_ctxt_switches:\t7\n";
        assert_eq!(field(text, "VmHWM"), Some(12.0));
        assert_eq!(field(text, "voluntary_ctxt_switches"), Some(7.0));
        assert_eq!(field(text, "VmRSS"), None);
    }

    #[test]
    fn a_thread_s_share_is_part_of_the_process_s() {
        let process = Usage::of_process().unwrap();
        let thread = Usage::of_thread().unwrap();
        std::thread::yield_now();
        let later = Usage::of_process().unwrap() - process;
        assert!(later.cpu >= 0.0 && later.switches >= 0.0);
        assert!(thread.cpu > 0.0);
        assert!(resident().unwrap() > 0.0);
    }

    #[test]
    fn both_ends_of_a_pipe_are_counted_once() {
        let (take, put) = rustix::pipe::pipe().unwrap();
        let again = rustix::io::dup(&put).unwrap();
        let size = rustix::pipe::fcntl_getpipe_size(&take).unwrap();
        // Other tests of this process open and close pipes too: only this one
        // counts.
        let before = sys::pipe_capacity(std::os::fd::AsRawFd::as_raw_fd(&again));
        assert_eq!(before, Some(size));
        assert!(pipe_capacity().unwrap() >= size as f64);
    }
}
