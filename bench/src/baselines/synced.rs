//! A program and then `fsync(2)` of what it has written, as one process: for
//! those that have no option for it.

use std::fs::File;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Runs `words`, then has `file` on the medium.
pub fn then_fsync(file: &str, words: &[String]) -> Result<()> {
    let (program, args) = words.split_first().context("which program?")?;
    let status = Command::new(program).args(args).status();
    let status = status.with_context(|| program.clone())?;
    ensure!(status.success(), "{program}: {status}");
    fsync(file)
}

/// Has `file` on the medium.
pub fn fsync(file: &str) -> Result<()> {
    File::options().write(true).open(file)?.sync_all()?;
    Ok(())
}
