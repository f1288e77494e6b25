//! A copy that bypasses the page cache: `O_DIRECT`, with several blocks in
//! flight, each read and written in the same buffer.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, fallocate};

use crate::harness::ring::{ALIGNMENT, Ring};

/// The state of a block.
#[derive(Debug, Clone, Copy)]
enum At {
    Reading(u64),
    Writing(usize),
}

/// Copies with `depth` blocks of `block` bytes, by io_uring with registered
/// files and buffers.
pub fn file(from: &str, to: &str, block: usize, depth: usize) -> Result<()> {
    ensure!(
        block > 0 && block.is_multiple_of(ALIGNMENT) && depth > 0,
        "the block size must be a multiple of {ALIGNMENT} bytes, and the depth at least 1"
    );
    let direct = libc::O_DIRECT;
    let source = File::options().read(true).custom_flags(direct).open(from)?;
    let sink = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(direct)
        .open(to)?;
    let size = source.metadata()?.len();
    if size > 0 {
        fallocate(&sink, FallocateFlags::empty(), 0, size)?;
    }
    let mut ring = Ring::new(&source, &sink, depth, block).context("io_uring")?;
    copy(&mut ring, size, block, depth)?;
    // The last block was written up to the alignment.
    sink.set_len(size)?;
    Ok(())
}

fn copy(ring: &mut Ring, size: u64, block: usize, depth: usize) -> Result<()> {
    let mut next = (0..size).step_by(block);
    let mut at: Vec<At> = Vec::new();
    for (slot, position) in next.by_ref().take(depth).enumerate() {
        ring.read(slot, position)?;
        at.push(At::Reading(position));
    }
    while ring.under_way() > 0 {
        for done in ring.wait()? {
            let slot = done.block;
            let moved = done.result?;
            match at[slot] {
                At::Reading(position) => {
                    let wanted = (size - position).min(block as u64) as usize;
                    ensure!(moved >= wanted, "a short read: {moved} bytes of {wanted}");
                    let length = wanted.next_multiple_of(ALIGNMENT);
                    ring.write(slot, length, position)?;
                    at[slot] = At::Writing(length);
                }
                At::Writing(length) => {
                    ensure!(moved == length, "a short write: {moved} bytes of {length}");
                    if let Some(position) = next.next() {
                        ring.read(slot, position)?;
                        at[slot] = At::Reading(position);
                    }
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{env, files};

    #[test]
    fn the_copy_is_exact_for_every_length() {
        let dir = tempfile::tempdir().unwrap();
        if env::filesystem(dir.path()) == "overlayfs" {
            eprintln!("SKIPPED: no direct I/O on overlayfs");
            return;
        }
        for size in [0, 1, 4096, (1 << 20) + 123, 3 << 20] {
            let (from, to) = (dir.path().join("from"), dir.path().join("to"));
            let made = files::make(&from, size).unwrap();
            let words = [&from, &to].map(|p| p.to_str().unwrap().to_owned());
            match file(&words[0], &words[1], 64 << 10, 3) {
                Ok(()) => assert_eq!(files::content(&to).unwrap(), made, "{size}"),
                Err(error) => {
                    eprintln!("SKIPPED: {error:#}");
                    return;
                }
            }
        }
    }
}
