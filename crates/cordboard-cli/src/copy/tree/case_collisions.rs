//! Names that differ in case only: one file, if the destination's file system
//! is case-insensitive (vfat, exfat, NTFS, and case-folding directories of
//! ext4, f2fs and tmpfs).

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The hashes of such names of one directory; usually none.
#[derive(Debug, Default)]
pub struct CaseCollisions(BTreeSet<u64>);

impl CaseCollisions {
    /// Finds them. Two other names with the same hash only cost a needless
    /// check.
    pub fn among<'a>(names: impl Iterator<Item = &'a CStr>) -> CaseCollisions {
        let mut hashes: Vec<u64> = names.map(hash).collect();
        hashes.sort_unstable();
        let twice = hashes.windows(2).filter(|pair| pair[0] == pair[1]);
        CaseCollisions(twice.map(|pair| pair[0]).collect())
    }

    /// Whether this is one of them.
    pub fn has(&self, name: &CStr) -> bool {
        !self.0.is_empty() && self.0.contains(&hash(name))
    }
}

fn hash(name: &CStr) -> u64 {
    let mut hasher = DefaultHasher::new();
    match name.to_str() {
        Ok(text) if !text.is_ascii() => {
            // Upper case first: some letters have two lower ones (σ, ς).
            let folded = text.chars().flat_map(char::to_uppercase);
            let folded = folded.flat_map(char::to_lowercase);
            folded.for_each(|letter| letter.hash(&mut hasher));
        }
        _ => {
            let bytes = name.to_bytes().iter();
            bytes.for_each(|byte| char::from(byte.to_ascii_lowercase()).hash(&mut hasher));
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_case_alone() {
        let names = [
            c"README",
            c"b",
            c"readme",
            c"Ä",
            c"ä",
            c"\xff\xfeA",
            c"a",
            c"K",
        ];
        let collisions = CaseCollisions::among(names.into_iter());
        let found: Vec<_> = names
            .into_iter()
            .filter(|name| collisions.has(name))
            .collect();
        assert_eq!(found, [c"README", c"readme", c"Ä", c"ä"]);
        // The kelvin sign is a K in lower case.
        let kelvin = CaseCollisions::among([c"K", c"\u{212a}", c"σ", c"ς"].into_iter());
        assert!(kelvin.has(c"k") && kelvin.has(c"Σ"));
        assert!(!CaseCollisions::among([c"a", c"b"].into_iter()).has(c"a"));
        assert!(!CaseCollisions::default().has(c"a"));
    }
}
