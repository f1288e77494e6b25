//! Loops from a file to standard output.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::fs::{Advice, fadvise};
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, pipe};

fn open(path: &str) -> Result<File> {
    let file = File::open(path)?;
    fadvise(&file, 0, None, Advice::Sequential)?;
    Ok(file)
}

/// `read(2)` and `write(2)`: the blog post's `slow`, with 32 KiB.
pub fn read_write(path: &str, block: usize) -> Result<()> {
    let file = open(path)?;
    let mut out = File::from(rustix::io::dup(std::io::stdout())?);
    let mut buffer = vec![0; block];
    loop {
        match rustix::io::read(&file, &mut buffer)? {
            0 => return Ok(()),
            n => out.write_all(&buffer[..n])?,
        }
    }
}

/// `splice(2)` into the reader's pipe: the blog post's `fast`, with 16 KiB.
/// With `enlarge`, sets the capacity of the reader's pipe first.
pub fn splice(path: &str, block: usize, enlarge: Option<usize>) -> Result<()> {
    let file = open(path)?;
    let out = std::io::stdout();
    if let Some(capacity) = enlarge {
        fcntl_setpipe_size(&out, capacity)?;
    }
    while rustix::pipe::splice(&file, None, &out, None, block, SpliceFlags::MORE)? > 0 {}
    Ok(())
}

/// Through a private pipe of `block` bytes: the reader's pipe is locked only
/// while pages move, not while the kernel looks them up in the page cache.
pub fn broker(path: &str, block: usize, enlarge: Option<usize>) -> Result<()> {
    let file = open(path)?;
    let out = std::io::stdout();
    if let Some(capacity) = enlarge {
        fcntl_setpipe_size(&out, capacity)?;
    }
    let (take, put) = pipe()?;
    fcntl_setpipe_size(&put, block)?;
    loop {
        let mut inside =
            rustix::pipe::splice(&file, None, &put, None, block, SpliceFlags::empty())?;
        if inside == 0 {
            return Ok(());
        }
        while inside > 0 {
            let moved =
                rustix::pipe::splice(&take, None, &out, None, inside, SpliceFlags::empty())?;
            ensure!(moved > 0, "the private pipe is empty too early");
            inside -= moved;
        }
    }
}

/// The pieces of a second in [`paced`].
const PIECES: u32 = 100;

/// `splice(2)` at a rate in bytes a second: one piece every 10 ms. Sets the capacity of the reader's
/// pipe first.
pub fn paced(path: &str, rate: u64, enlarge: usize) -> Result<()> {
    let file = open(path)?;
    let out = std::io::stdout();
    fcntl_setpipe_size(&out, enlarge)?;
    let piece = usize::try_from(rate / u64::from(PIECES))?;
    let start = Instant::now();
    for number in 1.. {
        let due = start + Duration::from_secs(1) * number / PIECES;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let mut left = piece;
        while left > 0 {
            match rustix::pipe::splice(&file, None, &out, None, left, SpliceFlags::empty())? {
                0 => return Ok(()),
                moved => left -= moved,
            }
        }
    }
    Ok(())
}
