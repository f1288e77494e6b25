//! Random rounds of the command: signals at random moments of copies of many
//! files, of pipelines and of `cat`, and the exit status, the report and the
//! files afterwards. `testkit::rounds` explains how to run them for longer.
#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;
mod work;

use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::time::{Duration, Instant};

use common::*;
use fastrand::Rng;
use rustix::process::{Pid, Signal, kill_process};
use work::{Trees, Work};

/// The number of rounds of an ordinary run.
const FRESH: u32 = 60;

const SIGNALS: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

/// Waits for a random time. Nothing depends on its length.
fn linger(rng: &mut Rng) {
    let power = rng.u32(0..16);
    let time = Duration::from_micros(rng.u64(0..1 << power));
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Sends up to two signals, and returns them.
fn interrupt(rng: &mut Rng, child: &Child, work: &Work) -> Vec<Signal> {
    let mut sent = Vec::new();
    let some = rng.usize(..4);
    if some > 0 && rng.bool() {
        work.is_under_way(child.id(), rng.usize(..20));
    }
    for _ in 0..some.min(2) {
        linger(rng);
        let signal = SIGNALS[rng.usize(..SIGNALS.len())];
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        // The child is not waited for yet, so its number is valid.
        kill_process(pid, signal).unwrap();
        sent.push(signal);
    }
    sent
}

fn round(rng: &mut Rng, trees: &Trees) {
    let (mut work, child) = Work::start(rng, trees);
    let sent = interrupt(rng, &child, &work);
    let run = end(child);
    let what = format!("{}, signals {sent:?}: {}", work.what, run.stderr());
    work.settle();
    match (run.0.status.code(), run.0.status.signal()) {
        (Some(0), _) => {
            let json = run.json();
            assert_eq!(json["ended"], "eof", "{what}");
            assert!(work.is_whole(&json), "{what}");
        }
        (Some(code), _) => {
            let told = sent.iter().any(|signal| 128 + signal.as_raw() == code);
            assert!(told, "exit status {code}: {what}");
            let json = run.json();
            assert_eq!(json["ended"], "cancelled", "{what}");
            assert!(json["errno"].is_null(), "{what}");
            assert!(work.is_as_told(&json), "{what}");
        }
        // Before the handlers are installed, or by the second signal.
        (None, killed) => {
            let known = sent.iter().any(|signal| Some(signal.as_raw()) == killed);
            assert!(known, "killed by {killed:?}: {what}");
            assert!(work.is_a_part(), "{what}");
        }
    }
}

#[test]
fn the_status_the_account_and_the_files_agree() {
    let trees = Trees::new();
    testkit::rounds::run(include_str!("seeds.txt"), FRESH, |rng| round(rng, &trees));
}
