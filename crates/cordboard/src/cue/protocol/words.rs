//! Words of 32 bits, and the first word of a command or a record.

use crate::request::Aim;

/// The length of a word in bytes.
pub(super) const WORD: usize = 4;
/// The most words that follow the first one.
pub(super) const MOST: usize = 32;

/// The first word of `code` with this many words behind it. `sort`: the letter that
/// distinguishes commands from records.
pub(super) fn first(sort: u8, words: usize, code: u16) -> u32 {
    u32::from(sort) << 24 | (words as u32 & 0xff) << 16 | u32::from(code)
}

/// Splits a first word into the number of words behind it and the code. `None`: it is
/// none of this sort.
pub(super) fn split(sort: u8, word: u32) -> Option<(usize, u16)> {
    let [letter, words, ..] = word.to_be_bytes();
    let words = usize::from(words);
    (letter == sort && words <= MOST).then_some((words, word as u16))
}

pub(super) fn put(bytes: &mut Vec<u8>, word: u32) {
    bytes.extend_from_slice(&word.to_le_bytes());
}

/// Appends both halves of a number, the lower one first.
pub(super) fn put_long(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

/// Returns the words of `bytes`, whose length is a multiple of theirs.
pub(super) fn words(bytes: &[u8]) -> Vec<u32> {
    let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    bytes.chunks_exact(WORD).map(word).collect()
}

/// Returns the words of an aim: its kind and its weight.
pub(super) fn aim_words(aim: Aim) -> (u32, u32) {
    match aim {
        Aim::Throughput => (0, 0),
        Aim::Background => (1, 0),
        Aim::Share(weight) => (2, weight.get()),
    }
}

/// Returns the aim of these words.
pub(super) fn aim_of(kind: u32, weight: u32) -> Option<Aim> {
    match (kind, weight) {
        (0, 0) => Some(Aim::Throughput),
        (1, 0) => Some(Aim::Background),
        (2, weight) => Aim::share(weight),
        _ => None,
    }
}

/// Returns the number of one word, or of two, the lower half first.
pub(super) fn number(words: &[u32]) -> Option<u64> {
    match words {
        [low] => Some(u64::from(*low)),
        [low, high] => Some(u64::from(*high) << 32 | u64::from(*low)),
        _ => None,
    }
}
