//! What must come out of a source.

use crate::pattern;
use std::sync::Arc;

/// What must come out of a source.
#[derive(Debug, Clone)]
pub enum Expect {
    /// This many bytes of the pattern.
    Pattern(u64),
    /// Exactly these bytes.
    Exact(Arc<[u8]>),
    /// This many zeros.
    Zeros(u64),
    /// This many bytes of any value.
    Any(u64),
    /// This many `signalfd_siginfo`s, each with its index as the value.
    Signals(u64),
}

/// The size of one `signalfd_siginfo`, in bytes.
pub const SIGNAL_RECORD: u64 = 128;

/// The size of a `struct inotify_event` with a name of up to 15 bytes, in bytes.
pub const INOTIFY_RECORD: u64 = 32;

impl Expect {
    /// Returns the number of bytes.
    pub fn len(&self) -> u64 {
        match self {
            Expect::Pattern(n) | Expect::Zeros(n) | Expect::Any(n) => *n,
            Expect::Exact(bytes) => bytes.len() as u64,
            Expect::Signals(n) => n * SIGNAL_RECORD,
        }
    }

    /// Whether no bytes are expected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks that `found` is the start of the expected bytes.
    ///
    /// # Errors
    ///
    /// A message that says where it differs.
    pub fn check(&self, found: &[u8]) -> Result<(), String> {
        self.check_at(0, found)
    }

    /// Checks that `found` is the part of the expected bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// A message that says where it differs.
    pub fn check_at(&self, offset: u64, found: &[u8]) -> Result<(), String> {
        let end = offset + found.len() as u64;
        if end > self.len() {
            return Err(format!("{} bytes too many", end - self.len()));
        }
        let wrong = |at: usize| format!("wrong byte at {}", offset + at as u64);
        match self {
            Expect::Pattern(_) => pattern::check(offset, found).map_err(wrong),
            Expect::Any(_) => Ok(()),
            Expect::Zeros(_) => match found.iter().position(|byte| *byte != 0) {
                Some(at) => Err(wrong(at)),
                None => Ok(()),
            },
            Expect::Exact(bytes) => {
                let start = usize::try_from(offset).map_err(|e| e.to_string())?;
                let wanted = &bytes[start..start + found.len()];
                match wanted.iter().zip(found).position(|(a, b)| a != b) {
                    Some(at) => Err(wrong(at)),
                    None => Ok(()),
                }
            }
            Expect::Signals(_) => signals(offset, found),
        }
    }

    /// Returns all bytes; `None` if their values are not known.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.len()).ok()?;
        match self {
            Expect::Pattern(_) => Some(pattern::bytes(0, length)),
            Expect::Zeros(_) => Some(vec![0; length]),
            Expect::Exact(bytes) => Some(bytes.to_vec()),
            Expect::Any(_) | Expect::Signals(_) => None,
        }
    }

    /// Returns the sum of its first `length` bytes as 64-bit numbers, as an event
    /// counter adds them; `None` if it is not known.
    pub fn sum(&self, length: u64) -> Option<u128> {
        let length = usize::try_from(length).ok()?;
        let bytes = self.bytes()?;
        let bytes = bytes.get(..length)?;
        let words = bytes.chunks_exact(8);
        Some(words.map(|w| u128::from(u64_at(w, 0))).sum())
    }
}

/// Checks the structure and order of signal records: signal, code, and the value that
/// was queued (`ssi_int`, at byte 44).
fn signals(offset: u64, found: &[u8]) -> Result<(), String> {
    if !offset.is_multiple_of(SIGNAL_RECORD) {
        return Err("a signal record is cut".to_owned());
    }
    let first = offset / SIGNAL_RECORD;
    for (index, record) in (first..).zip(found.chunks(SIGNAL_RECORD as usize)) {
        if record.len() < SIGNAL_RECORD as usize {
            return Err(format!("signal record {index} is cut"));
        }
        let value = u64::from(u32_at(record, 44));
        let signal = u32_at(record, 0);
        if value != index || i64::from(signal) < 32 {
            return Err(format!(
                "signal record {index} is signal {signal}, value {value}"
            ));
        }
    }
    Ok(())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(word)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(word)
}
