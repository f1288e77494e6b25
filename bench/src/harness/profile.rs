//! Where a contestant spends its time: by perf, or, if perf does not work, its
//! system calls by strace.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

const SHOWN: usize = 5;

/// A tool that profiles a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profiler {
    /// Samples of processor time, by symbol.
    Perf,
    /// The number of system calls.
    Strace,
}

impl Profiler {
    /// The best one that works here.
    pub fn find(scratch: &Path) -> Option<Profiler> {
        [Profiler::Perf, Profiler::Strace]
            .into_iter()
            .find(|profiler| {
                let words = profiler.prefix(&scratch.join("profile-probe"));
                let ran = Command::new(&words[0])
                    .args(&words[1..])
                    .arg("true")
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status();
                ran.is_ok_and(|status| status.success())
            })
    }

    /// The prefix of a command line that profiles it.
    pub fn prefix(self, output: &Path) -> Vec<OsString> {
        let words: &[&str] = match self {
            Profiler::Perf => &["perf", "record", "-q", "-F", "5000", "-o"],
            Profiler::Strace => &["strace", "-f", "-c", "-o"],
        };
        let mut words: Vec<OsString> = words.iter().map(OsString::from).collect();
        words.push(output.into());
        if self == Profiler::Perf {
            words.push("--".into());
        }
        words
    }

    /// The largest entries of a profile.
    pub fn top(self, output: &Path) -> Vec<String> {
        match self {
            Profiler::Strace => top_calls(&std::fs::read_to_string(output).unwrap_or_default()),
            Profiler::Perf => {
                let ran = Command::new("perf")
                    .args(["report", "--stdio", "-q", "--sort", "symbol", "-i"])
                    .arg(output)
                    .stdin(Stdio::null())
                    .output();
                ran.map_or(Vec::new(), |o| {
                    top_symbols(&String::from_utf8_lossy(&o.stdout))
                })
            }
        }
    }

    /// The unit of the numbers.
    pub fn unit(self) -> &'static str {
        match self {
            Profiler::Perf => "perf, share of its processor time",
            Profiler::Strace => "strace, number of calls",
        }
    }
}

/// `    41.18%  [k] rep_movs_alternative` → `41.18% rep_movs_alternative`.
fn top_symbols(report: &str) -> Vec<String> {
    report
        .lines()
        .filter_map(|line| {
            let (share, symbol) = line.trim().split_once("%  [")?;
            // After `k] ` or `.] `. A bar would end the cell of the table.
            let symbol = symbol.get(3..)?.trim().replace('|', "/");
            Some(format!("{share}% {symbol}"))
        })
        .take(SHOWN)
        .collect()
}

/// `97.01    0.102030      12      8192         splice` → `8192 splice`.
fn top_calls(table: &str) -> Vec<String> {
    let mut calls: Vec<(u64, &str)> = table
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let name = words
                .last()
                .filter(|w| !w.starts_with('-') && **w != "total")?;
            Some((words.get(3)?.parse().ok()?, *name))
        })
        .collect();
    calls.sort_by_key(|call| std::cmp::Reverse(call.0));
    calls
        .into_iter()
        .take(SHOWN)
        .map(|(n, name)| format!("{n} {name}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perf_output_is_parsed() {
        let report =
            "\n    75.43%  [k] rep_movs_alternative   \n     3.22%  [.] <a::B as c::D>::e  \n";
        assert_eq!(
            top_symbols(report),
            ["75.43% rep_movs_alternative", "3.22% <a::B as c::D>::e"]
        );
    }

    #[test]
    fn strace_output_is_parsed() {
        let table = "% time     seconds  usecs/call     calls    errors syscall\n\
                     ------ ----------- ----------- --------- --------- ----------------\n\
                     60.00    0.102030          12        12         2 read\n\
                     40.00    0.102030          12      8192           splice\n\
                     ------ ----------- ----------- --------- --------- ----------------\n\
                     100.00    0.2                      8204         2 total\n";
        assert_eq!(top_calls(table), ["8192 splice", "12 read"]);
    }
}
