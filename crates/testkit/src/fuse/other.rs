//! [`Served::other`](super::Served::other).

use super::{
    FILE, FLUSH, FSYNC, GETATTR, LOOKUP, OPEN, OTHER, READ, RELEASE, SETATTR, SIZE, WRITE,
    attributes, double, entry, keep, word, words,
};

/// Answers a request.
pub(super) fn answer(opcode: u32, body: &[u8], file: &mut Vec<u8>) -> Result<Vec<u8>, i32> {
    // Its number is not that of the file.
    let numbered = |mut out: Vec<u8>, at: usize| {
        out[at..][..8].copy_from_slice(&OTHER.to_ne_bytes());
        out
    };
    match opcode {
        LOOKUP => Ok(numbered(entry(OTHER, file.len() as u64), 40)),
        SETATTR | GETATTR => {
            if opcode == SETATTR && word(body, 0) & SIZE != 0 {
                file.resize(double(body, 16) as usize, 0);
            }
            Ok(numbered(attributes(file.len() as u64, FILE), 16))
        }
        OPEN => Ok(words(&[0; 4])),
        READ => {
            let from = file.len().min(double(body, 8) as usize);
            let to = file.len().min(from + word(body, 16) as usize);
            Ok(file[from..to].to_vec())
        }
        WRITE => {
            let length = word(body, 16);
            keep(file, double(body, 8), &body[40..][..length as usize]);
            Ok(words(&[length, 0]))
        }
        FSYNC | RELEASE | FLUSH => Ok(Vec::new()),
        _ => Err(-libc::ENOSYS),
    }
}
