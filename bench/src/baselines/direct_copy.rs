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
    use std::io;
    use std::path::Path;

    use super::*;
    use crate::harness::{env, files};

    const BLOCK: usize = 64 << 10;
    const DEPTH: usize = 3;

    /// Returns the feature that the copy needs and that is missing here. Any other error of the
    /// copy fails the test.
    fn missing(dir: &Path) -> Option<String> {
        if env::filesystem(dir) == "overlayfs" {
            return Some("no direct I/O on overlayfs".to_owned());
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        let opened = options.custom_flags(libc::O_DIRECT).open(dir.join("tried"));
        // Not supported by the file system: open(2).
        let file = unless(opened, "O_DIRECT", &[libc::EINVAL]);
        // Not supported by the file system: fallocate(2).
        let tried = |file| {
            let reserved = fallocate(&file, FallocateFlags::empty(), 0, ALIGNMENT as u64);
            let reserved = reserved.map_err(io::Error::from);
            unless(reserved, "fallocate(2)", &[libc::EOPNOTSUPP])?;
            // No io_uring, or no IORING_SETUP_DEFER_TASKRUN (before Linux 6.1), or a limit of
            // locked memory: io_uring_setup(2), io_uring_register(2).
            let none = [libc::ENOSYS, libc::EPERM, libc::EINVAL, libc::ENOMEM];
            unless(Ring::new(&file, &file, DEPTH, BLOCK), "io_uring", &none)
        };
        file.and_then(tried).err()
    }

    /// Returns the reason if one of these errors shows that a feature is missing.
    fn unless<T>(tried: io::Result<T>, what: &str, none: &[i32]) -> std::result::Result<T, String> {
        tried.map_err(|error| match error.raw_os_error() {
            Some(errno) if none.contains(&errno) => format!("no {what} here: {error}"),
            _ => panic!("{what}: {error}"),
        })
    }

    #[test]
    fn the_copy_is_exact_for_every_length() {
        let dir = tempfile::tempdir().unwrap();
        if let Some(reason) = missing(dir.path()) {
            return testkit::skip::here(reason);
        }
        for size in [0, 1, 4096, (1 << 20) + 123, 3 << 20] {
            let (from, to) = (dir.path().join("from"), dir.path().join("to"));
            let made = files::make(&from, size).unwrap();
            let words = [&from, &to].map(|p| p.to_str().unwrap().to_owned());
            file(&words[0], &words[1], BLOCK, DEPTH).unwrap();
            assert_eq!(files::content(&to).unwrap(), made, "{size}");
        }
    }
}
