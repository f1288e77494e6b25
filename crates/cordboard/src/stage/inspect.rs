//! Stages that inspect the bytes and leave them unchanged.

/// A stage that inspects the bytes and leaves them unchanged.
pub trait Inspect: Send {
    /// Returns its name in the report.
    fn name(&self) -> &'static str;

    /// Inspects the next bytes. The boundaries between calls have no meaning.
    fn inspect(&mut self, bytes: &[u8]);

    /// Inspects a hole of `count` bytes, as zeros.
    fn inspect_zeros(&mut self, mut count: u64) {
        const ZEROS: [u8; 16 << 10] = [0; 16 << 10];
        while count > 0 {
            let now = count.min(ZEROS.len() as u64);
            self.inspect(&ZEROS[..now as usize]);
            count -= now;
        }
    }

    /// Returns the result over all bytes so far, for the report.
    fn digest(&self) -> Option<String> {
        None
    }
}

/// Checks a hash of known bytes, split in any way, and of a hole.
#[cfg(test)]
#[allow(dead_code, reason = "for the hashes, each behind a feature")]
pub(super) fn known<S: Inspect>(new: fn() -> S, bytes: &[u8], digest: &str) {
    for split in 0..=bytes.len() {
        let mut stage = new();
        stage.inspect(&bytes[..split]);
        stage.inspect(&bytes[split..]);
        assert_eq!(stage.digest().as_deref(), Some(digest), "split at {split}");
    }
    let (mut hole, mut zeros) = (new(), new());
    hole.inspect_zeros(100_001);
    zeros.inspect(&vec![0; 100_001]);
    assert_eq!(hole.digest(), zeros.digest());
}
