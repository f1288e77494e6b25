//! XXH3 of 64 bits without a seed, as `xxhsum -H3` prints it.

use super::inspect::Inspect;

#[derive(Default)]
pub(super) struct Xxh3(xxhash_rust::xxh3::Xxh3Default);

impl Inspect for Xxh3 {
    fn name(&self) -> &'static str {
        "xxh3"
    }

    fn inspect(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn digest(&self) -> Option<String> {
        Some(format!("{:016x}", self.0.digest()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::inspect::known;
    use super::*;

    /// As `xxhsum -H3` prints them.
    #[test]
    fn known_values() {
        known(Xxh3::default, b"", "2d06800538d394c2");
        known(Xxh3::default, b"abc", "78af5f94892f3950");
    }
}
