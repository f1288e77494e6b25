//! Bytes whose order shows if one is in the wrong place.

use std::sync::OnceLock;

/// The pattern repeats after this many bytes: a prime just past 2^20, so that
/// a block that lands a power of two away never matches.
pub const PERIOD: usize = 1_048_583;

/// One period of the pattern.
pub fn base() -> &'static [u8] {
    static BASE: OnceLock<Vec<u8>> = OnceLock::new();
    BASE.get_or_init(|| {
        let mut state = 0x0c0d_b0a2_d000_0001_u64;
        let mut bytes = Vec::with_capacity(PERIOD + 8);
        while bytes.len() < PERIOD {
            bytes.extend_from_slice(&split_mix(&mut state).to_le_bytes());
        }
        bytes.truncate(PERIOD);
        bytes
    })
}

/// One step of the SplitMix64 generator.
pub fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Bytes that do not compress.
pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Returns the pattern from `offset` on to the end of its period; never empty.
pub fn piece(offset: u64) -> &'static [u8] {
    let start = usize::try_from(offset % PERIOD as u64).unwrap_or(0);
    &base()[start..]
}

/// Returns `length` bytes of the pattern from `offset` on.
pub fn bytes(offset: u64, length: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(length);
    while out.len() < length {
        let piece = piece(offset + out.len() as u64);
        out.extend_from_slice(&piece[..piece.len().min(length - out.len())]);
    }
    out
}

/// Checks that `found` is the pattern from `offset` on. Fails with the index of the
/// first byte that differs.
pub fn check(offset: u64, found: &[u8]) -> Result<(), usize> {
    let mut done = 0;
    while done < found.len() {
        let piece = piece(offset + done as u64);
        let length = piece.len().min(found.len() - done);
        let part = &found[done..done + length];
        if part != &piece[..length] {
            let wrong = part.iter().zip(piece).position(|(a, b)| a != b);
            return Err(done + wrong.unwrap_or(0));
        }
        done += length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misplaced_byte_shows() {
        let far = PERIOD as u64 * 3 - 100;
        let mut found = bytes(far, 1000);
        assert_eq!(check(far, &found), Ok(()));
        assert!(check(far + 4096, &found).is_err());
        found[777] ^= 1;
        assert_eq!(check(far, &found), Err(777));
    }
}
