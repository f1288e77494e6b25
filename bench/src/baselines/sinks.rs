//! Readers of standard input, which print the number of bytes.

use std::fs::OpenOptions;

use anyhow::Result;
use rustix::pipe::SpliceFlags;

use crate::harness::digest::{Content, digest_of};

const BUFFER: usize = 128 << 10;
const STEP: usize = 1 << 20;

/// A reader that reads.
pub fn read() -> Result<()> {
    let input = std::io::stdin();
    let mut buffer = vec![0; BUFFER];
    let mut bytes = 0;
    loop {
        match rustix::io::read(&input, &mut buffer)? {
            0 => break,
            n => bytes += n as u64,
        }
    }
    println!("{bytes}");
    Ok(())
}

/// A reader that splices into `/dev/null`.
pub fn splice() -> Result<()> {
    let input = std::io::stdin();
    let null = OpenOptions::new().write(true).open("/dev/null")?;
    let mut bytes = 0;
    loop {
        match rustix::pipe::splice(&input, None, &null, None, STEP, SpliceFlags::empty())? {
            0 => break,
            n => bytes += n as u64,
        }
    }
    println!("{bytes}");
    Ok(())
}

/// A reader that computes the digest.
pub fn digest() -> Result<()> {
    print_content(digest_of(std::io::stdin())?);
    Ok(())
}

/// Prints the number of bytes and the digest for the harness.
pub fn print_content(content: Content) {
    println!("{} {}", content.bytes, content.digest);
}
