//! CRC-32, the polynomial of IEEE 802.3 (RFC 1952, 8.1.1.6.2).

use super::inspect::Inspect;

#[derive(Default)]
pub(super) struct Crc32(crc32fast::Hasher);

impl Inspect for Crc32 {
    fn name(&self) -> &'static str {
        "crc32"
    }

    fn inspect(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn digest(&self) -> Option<String> {
        Some(format!("{:08x}", self.0.clone().finalize()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::inspect::known;
    use super::*;

    /// The check value of the catalogue of parametrised CRC algorithms.
    #[test]
    fn known_values() {
        known(Crc32::default, b"", "00000000");
        known(Crc32::default, b"123456789", "cbf43926");
    }
}
