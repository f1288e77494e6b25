//! A fast digest that depends on every byte and its position. It detects lost,
//! duplicated, moved and stale bytes; it is not cryptographic.

use std::io;
use std::os::fd::AsFd;

const PIECE: usize = 1 << 20;
const LANES: usize = 4;
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// The data read from a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    /// The number of bytes.
    pub bytes: u64,
    /// The digest of all bytes in order.
    pub digest: u64,
}

impl Content {
    /// The length of all of these, and a digest of their digests in this order.
    pub fn of_all(all: &[Content]) -> Content {
        let fold = |sum: u64, one: &Content| sum.rotate_left(9) ^ one.digest;
        Content {
            bytes: all.iter().map(|one| one.bytes).sum(),
            digest: all.iter().fold(0, fold),
        }
    }
}

/// The state of a digest.
#[derive(Debug, Clone)]
pub struct Digest {
    lanes: [u64; LANES],
    bytes: u64,
}

impl Default for Digest {
    fn default() -> Digest {
        Digest {
            lanes: [1, 2, 3, 4],
            bytes: 0,
        }
    }
}

impl Digest {
    /// Adds a block. The length of every block but the last is a multiple of
    /// 32.
    pub fn update(&mut self, piece: &[u8]) {
        debug_assert!(self.bytes.is_multiple_of(32));
        self.bytes += piece.len() as u64;
        for block in piece.chunks(8 * LANES) {
            for (lane, word) in self.lanes.iter_mut().zip(block.chunks(8)) {
                let mut bytes = [0; 8];
                bytes[..word.len()].copy_from_slice(word);
                let mixed = (*lane ^ u64::from_le_bytes(bytes)).wrapping_mul(MULTIPLIER);
                *lane = mixed.rotate_left(29);
            }
        }
    }

    /// The final digest.
    pub fn finish(self) -> Content {
        let digest = self.lanes.iter().fold(self.bytes, |sum, lane| {
            (sum ^ lane).wrapping_mul(MULTIPLIER).rotate_left(31)
        });
        Content {
            bytes: self.bytes,
            digest,
        }
    }
}

/// Reads a descriptor to the end of file.
pub fn digest_of(source: impl AsFd) -> io::Result<Content> {
    let mut digest = Digest::default();
    let mut buffer = vec![0; PIECE];
    loop {
        let filled = fill(&source, &mut buffer)?;
        digest.update(&buffer[..filled]);
        if filled < buffer.len() {
            return Ok(digest.finish());
        }
    }
}

/// Reads until the buffer is full, or to the end of file.
fn fill(source: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match rustix::io::read(&source, &mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Content {
        let mut digest = Digest::default();
        digest.update(bytes);
        digest.finish()
    }

    #[test]
    fn swapped_and_missing_bytes_change_the_digest() {
        let plain: Vec<u8> = (0..=255).collect();
        let mut swapped = plain.clone();
        swapped.swap(3, 200);
        assert_ne!(of(&plain), of(&swapped));
        assert_ne!(of(&plain).digest, of(&plain[..255]).digest);
        assert_ne!(of(&[0; 32]).digest, of(&[0; 64]).digest);
    }

    #[test]
    fn the_digest_does_not_depend_on_block_sizes() {
        let plain = [7; 96];
        let mut digest = Digest::default();
        digest.update(&plain[..64]);
        digest.update(&plain[64..]);
        assert_eq!(digest.finish(), of(&plain));
    }
}
