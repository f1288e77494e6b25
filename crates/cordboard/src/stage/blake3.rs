//! BLAKE3 of 256 bits, on the transfer's own thread.

use super::inspect::Inspect;

#[derive(Default)]
pub(super) struct Blake3(Box<blake3::Hasher>);

impl Inspect for Blake3 {
    fn name(&self) -> &'static str {
        "blake3"
    }

    fn inspect(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn digest(&self) -> Option<String> {
        Some(self.0.finalize().to_hex().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::super::inspect::known;
    use super::*;

    /// The official test vectors: of nothing, and of the bytes 0, 1, 2.
    #[test]
    fn known_values() {
        let nothing = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        known(Blake3::default, b"", nothing);
        let three = "e1be4d7a8ab5560aa4199eea339849ba8e293d55ca0a81006726d184519e647f";
        known(Blake3::default, &[0, 1, 2], three);
    }
}
