//! Copies all files of a directory into another one at the same time.

use std::fs::{self, File};
use std::sync::mpsc::channel;
use std::time::Instant;

use anyhow::{Result, ensure};

use super::figures::{Memory, print_fairness};
use super::movers::{AtEnd, Mover, Transfer};
use crate::harness::figures::print;
use crate::harness::usage::Usage;

/// Copies the files and prints the figures.
pub fn run(mover: &str, from: &str, to: &str, sync: bool) -> Result<()> {
    let mover = Mover::named(mover)?;
    let mut pairs = Vec::new();
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let sink = fs::canonicalize(to)?.join(entry.file_name());
        pairs.push((entry.path(), sink));
    }
    let memory = Memory::now()?;
    let (mine, all) = (Usage::of_thread()?, Usage::of_process()?);
    let started = Instant::now();
    let (sender, receiver) = channel();
    let mut running = Vec::new();
    for (source, sink) in &pairs {
        let sender = sender.clone();
        let at_end: AtEnd = Box::new(move || {
            let _ = sender.send(started.elapsed().as_secs_f64());
        });
        let (source, sink) = (File::open(source)?.into(), File::create(sink)?.into());
        running.push(Transfer::start(mover, source, sink, sync, Some(at_end))?);
    }
    drop(sender);
    let mut ends = vec![receiver.recv()?];
    let progress: Vec<f64> = running.iter().map(|one| one.written() as f64).collect();
    let count = running.len();
    memory.print_pipes(count)?;
    for (one, (source, _)) in running.into_iter().zip(&pairs) {
        let written = one.wait()?;
        let size = fs::metadata(source)?.len();
        ensure!(written == size, "{written} bytes of {size}");
    }
    ends.extend(receiver);
    ensure!(
        ends.len() == count,
        "{} of {count} reported their end",
        ends.len()
    );
    let others = (Usage::of_process()? - all).switches - (Usage::of_thread()? - mine).switches;
    memory.print_resident(count)?;
    print_fairness(&progress, &ends);
    print("wake-ups", others);
    Ok(())
}
