//! Files to move, and their pages in the page cache.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::Advice;

use super::digest::{Content, Digest, digest_of};

const PIECE: usize = 1 << 20;

/// Pseudo-random numbers, which do not compress (xorshift64*).
#[derive(Debug)]
pub struct Noise(u64);

impl Noise {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Noise {
        Noise(seed.wrapping_mul(2) + 1)
    }

    /// Fills a buffer whose length is a multiple of 8.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for word in buffer.chunks_exact_mut(8) {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            word.copy_from_slice(&self.0.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
        }
    }
}

/// Writes a file of `bytes` random bytes and syncs it.
pub fn make(path: &Path, bytes: u64) -> Result<Content> {
    let mut file = File::create(path).context("cannot create the source file")?;
    let mut noise = Noise::new(bytes);
    let mut digest = Digest::default();
    let mut buffer = vec![0; PIECE];
    let mut left = bytes;
    while left > 0 {
        noise.fill(&mut buffer);
        let piece = &buffer[..PIECE.min(usize::try_from(left)?)];
        file.write_all(piece)
            .context("cannot write the source file")?;
        digest.update(piece);
        left -= piece.len() as u64;
    }
    file.sync_all()?;
    Ok(digest.finish())
}

/// The length and the digest of a file.
pub fn content(path: &Path) -> Result<Content> {
    let file = File::open(path).context("cannot open the copy")?;
    Ok(digest_of(file)?)
}

/// The length and the digest of all files of a directory, in the order of
/// names.
pub fn content_of_all(directory: &Path) -> Result<Content> {
    let mut names: Vec<_> = fs::read_dir(directory)?.collect::<Result<_, _>>()?;
    names.sort_by_key(fs::DirEntry::file_name);
    let mut all = Digest::default();
    let mut bytes = 0;
    for entry in names {
        let one = content(&entry.path())?;
        bytes += one.bytes;
        let name = entry.file_name();
        let mut line = [0; 32];
        line[..8].copy_from_slice(&one.digest.to_le_bytes());
        let short = &name.as_encoded_bytes()[..name.len().min(24)];
        line[8..8 + short.len()].copy_from_slice(short);
        all.update(&line);
    }
    Ok(Content {
        bytes,
        digest: all.finish().digest,
    })
}

/// Reads the file into the page cache.
pub fn cache(path: &Path) -> Result<()> {
    let file = File::open(path)?;
    rustix::fs::fadvise(&file, 0, None, Advice::Sequential)?;
    let mut buffer = vec![0; PIECE];
    while rustix::io::read(&file, &mut buffer)? > 0 {}
    Ok(())
}

/// Evicts the pages of this file; with `all` those of all files, if permitted.
pub fn evict(path: &Path, all: bool) -> Result<()> {
    let file = File::open(path)?;
    rustix::fs::fsync(&file)?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    if all {
        drop_caches();
    }
    Ok(())
}

/// Drops all caches, if permitted.
pub fn drop_caches() {
    let _ = fs::write("/proc/sys/vm/drop_caches", "3");
}

/// Syncs the file system, so that the next run does not wait for writeback.
pub fn sync(directory: &Path) -> Result<()> {
    let directory = File::open(directory)?;
    rustix::fs::syncfs(directory.as_fd())?;
    Ok(())
}

/// Removes a file or a directory if it exists.
pub fn remove(path: &Path) {
    if path.is_dir() {
        let _ = fs::remove_dir_all(path);
    } else {
        let _ = fs::remove_file(path);
    }
}

/// A size as text: `2 GiB`, `64 MiB`, `4 KiB`.
pub fn size_text(bytes: u64) -> String {
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if bytes >= 1 << shift {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_digest_it_was_made_with() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let made = make(&path, (1 << 20) + 12_345).unwrap();
        assert_eq!(made.bytes, (1 << 20) + 12_345);
        assert_eq!(content(&path).unwrap(), made);
    }

    #[test]
    fn sizes_as_text() {
        assert_eq!(size_text(2 << 30), "2 GiB");
        assert_eq!(size_text(4096), "4 KiB");
        assert_eq!(size_text(1), "1 B");
    }
}
