//! Not a baseline: the library, called by this program.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::Result;
use cordboard::{Request, Size, Transfer};

use crate::harness::sys::inherited;

/// `cordboard::splice` between two endpoints: a path, `-` or `fd:N`.
pub fn splice(from: &str, to: &str) -> Result<()> {
    let source = match endpoint(from)? {
        Some(fd) => fd,
        None if from == "-" => rustix::io::dup(std::io::stdin())?,
        None => File::open(from)?.into(),
    };
    let sink = match endpoint(to)? {
        Some(fd) => fd,
        None if to == "-" => rustix::io::dup(std::io::stdout())?,
        None => File::create(to)?.into(),
    };
    cordboard::splice(&source, &sink, Size::Eof)?;
    Ok(())
}

/// Copies a file and syncs the copy.
pub fn copy_synced(from: &str, to: &str) -> Result<()> {
    let (source, sink) = (File::open(from)?, File::create(to)?);
    let request = Request {
        sync: true,
        ..Request::default()
    };
    Transfer::new(source.as_fd(), sink.as_fd(), request)?
        .run()
        .into_result()?;
    Ok(())
}

fn endpoint(word: &str) -> Result<Option<OwnedFd>> {
    match word.strip_prefix("fd:") {
        Some(number) => Ok(Some(inherited(number.parse()?)?)),
        None => Ok(None),
    }
}
