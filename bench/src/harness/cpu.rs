//! Processor time, and instruction counts if the machine has them.

use std::ffi::OsString;
use std::ops::Add;
use std::path::Path;
use std::process::{Command, Stdio};

/// Processor time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cpu {
    /// Seconds in user space.
    pub user: f64,
    /// Seconds in the kernel.
    pub system: f64,
}

impl Cpu {
    /// The sum of both.
    pub fn total(self) -> f64 {
        self.user + self.system
    }
}

impl Add for Cpu {
    type Output = Cpu;

    fn add(self, other: Cpu) -> Cpu {
        Cpu {
            user: self.user + other.user,
            system: self.system + other.system,
        }
    }
}

/// Runs `work`; its result, and the processor time of this process.
pub fn own_time<T>(work: impl FnOnce() -> T) -> (T, Cpu) {
    let now = || {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
    };
    let before = now();
    let value = work();
    let system = now() - before;
    (value, Cpu { user: 0.0, system })
}

/// The prefix of a command line that makes `perf stat` write its instruction
/// count to `output`.
pub fn counting_prefix(output: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = ["perf", "stat", "-x", ",", "-e", "instructions", "-o"]
        .map(OsString::from)
        .to_vec();
    words.push(output.into());
    words.push("--".into());
    words
}

/// The count in the output of `perf stat -x ,`.
pub fn parse_count(text: &str) -> Option<u64> {
    text.lines()
        .filter(|line| line.contains("instructions"))
        .filter_map(|line| line.split(',').next()?.parse::<u64>().ok())
        .next()
}

/// Whether `perf stat` can count instructions here, or why not.
pub fn counts_instructions(scratch: &Path) -> Result<(), String> {
    let output = scratch.join("perf-probe");
    let prefix = counting_prefix(&output);
    let ran = Command::new(&prefix[0])
        .args(&prefix[1..])
        .arg("true")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match ran {
        Err(error) => Err(format!("perf cannot be run: {error}")),
        Ok(_) => match std::fs::read_to_string(&output).as_deref().map(parse_count) {
            Ok(Some(_)) => Ok(()),
            _ => Err("perf cannot count instructions on this machine".to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::parse_count;

    #[test]
    fn a_count_is_parsed_and_a_refusal_is_none() {
        assert_eq!(
            parse_count("1234567,,instructions,100,100.00,,\n"),
            Some(1_234_567)
        );
        assert_eq!(
            parse_count("<not supported>,,instructions,0,100.00,,\n"),
            None
        );
        assert_eq!(parse_count(""), None);
    }
}
