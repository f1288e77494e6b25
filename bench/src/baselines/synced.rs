//! Runs a program and then `fsync(2)` of its output, as one process: for
//! programs without an option for it.

use std::fs::File;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Runs `words`, then syncs `file`.
pub fn then_fsync(file: &str, words: &[String]) -> Result<()> {
    let (program, args) = words.split_first().context("the program is missing")?;
    let status = Command::new(program).args(args).status();
    let status = status.with_context(|| program.clone())?;
    ensure!(status.success(), "{program}: {status}");
    fsync(file)
}

/// Syncs `file`.
pub fn fsync(file: &str) -> Result<()> {
    File::options().write(true).open(file)?.sync_all()?;
    Ok(())
}
