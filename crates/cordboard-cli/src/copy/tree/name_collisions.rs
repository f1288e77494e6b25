//! Different names that may be one file in the destination's directory.
//!
//! | difference | file systems |
//! |---|---|
//! | case | vfat, exfat, NTFS, and case-folding directories of ext4, f2fs and tmpfs |
//! | composed and decomposed characters | case-folding directories, HFS+, ZFS with `normalization` |
//! | characters that show nothing | case-folding directories (`utf8_casefold`, fs/unicode/utf8-norm.c), HFS+ |
//! | dots and spaces at the end | vfat and exfat (`vfat_striptail_len`, fs/fat/namei_vfat.c) |
//! | a short name with `~1` | vfat finds a file also by its short name, which it has made |

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::hash::{DefaultHasher, Hash, Hasher};

use unicode_normalization::UnicodeNormalization;

/// The hashes of such names of one directory; usually none.
#[derive(Debug, Default)]
pub struct NameCollisions {
    hashes: BTreeSet<u64>,
    /// A name may be the short name of any other one.
    all: bool,
}

impl NameCollisions {
    /// Finds them. Two other names with the same hash only cost a needless
    /// check.
    pub fn among<'a>(names: impl Iterator<Item = &'a CStr>) -> NameCollisions {
        let mut all = false;
        let mut hashes: Vec<u64> = names
            .inspect(|name| all |= is_short(name.to_bytes()))
            .map(hash)
            .collect();
        hashes.sort_unstable();
        let twice = hashes.windows(2).filter(|pair| pair[0] == pair[1]);
        NameCollisions {
            hashes: twice.map(|pair| pair[0]).collect(),
            all: all && hashes.len() > 1,
        }
    }

    /// Whether this is one of them.
    pub fn has(&self, name: &CStr) -> bool {
        self.all || !self.hashes.is_empty() && self.hashes.contains(&hash(name))
    }
}

/// Whether vfat could have made this name for a longer one: up to eight characters that end
/// with `~` and a number, and an extension of up to three (`vfat_create_shortname`,
/// fs/fat/namei_vfat.c).
fn is_short(name: &[u8]) -> bool {
    let (base, extension) = match name.iter().position(|byte| *byte == b'.') {
        Some(dot) => (&name[..dot], &name[dot + 1..]),
        None => (name, &[][..]),
    };
    let digits = base.iter().rev().take_while(|byte| byte.is_ascii_digit());
    let tilde = base.len().checked_sub(digits.clone().count() + 1);
    let is_numbered = digits.count() > 0 && tilde.is_some_and(|tilde| base[tilde] == b'~');
    is_numbered && base.len() <= 8 && extension.len() <= 3 && !extension.contains(&b'.')
}

/// Returns whether file systems leave this character out when they compare names
/// (Default_Ignorable_Code_Point).
fn is_ignored(letter: char) -> bool {
    matches!(letter, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

fn hash(name: &CStr) -> u64 {
    let mut hasher = DefaultHasher::new();
    match name.to_str() {
        Ok(text) if !text.is_ascii() => {
            // σ and ς have the same upper case, and ẞ is SS in upper case by way of ß only.
            let folded = text.trim_end_matches(['.', ' ']).nfd();
            let folded = folded.filter(|letter| !is_ignored(*letter));
            let folded = folded.flat_map(char::to_lowercase);
            let folded = folded.flat_map(char::to_uppercase);
            let folded = folded.flat_map(char::to_lowercase).nfd();
            folded.for_each(|letter| letter.hash(&mut hasher));
        }
        _ => {
            let bytes = name.to_bytes();
            let end = bytes.iter().rposition(|byte| !matches!(byte, b'.' | b' '));
            let bytes = &bytes[..end.map_or(bytes.len(), |end| end + 1)];
            let lower = bytes.iter().map(|byte| byte.to_ascii_lowercase());
            lower.for_each(|byte| char::from(byte).hash(&mut hasher));
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
        let collisions = NameCollisions::among(names.into_iter());
        let found: Vec<_> = names
            .into_iter()
            .filter(|name| collisions.has(name))
            .collect();
        assert_eq!(found, [c"README", c"readme", c"Ä", c"ä"]);
        // The kelvin sign is a K in lower case.
        let kelvin = NameCollisions::among([c"K", c"\u{212a}", c"σ", c"ς"].into_iter());
        assert!(kelvin.has(c"k") && kelvin.has(c"Σ"));
        assert!(!NameCollisions::among([c"a", c"b"].into_iter()).has(c"a"));
        assert!(!NameCollisions::default().has(c"a"));
    }

    #[test]
    fn names_that_differ_in_what_file_systems_leave_out() {
        for [one, other] in [
            [c"foo", c"foo."],
            [c"foo. .", c"FOO"],
            [c"caf\u{e9}", c"cafe\u{301}"],
            [c"gro\u{1e9e}", c"gross"],
            [c"\u{1e9e}", c"\u{df}"],
            [c"\u{c5}", c"\u{212b}"],
            [c"\u{ac00}", c"\u{1100}\u{1161}"],
            [c"soft\u{ad}hyphen", c"softhyphen"],
            [c"\u{feff}é", c"e\u{301}."],
        ] {
            let collisions = NameCollisions::among([one, other, c"third"].into_iter());
            assert!(
                collisions.has(one) && collisions.has(other),
                "{one:?} {other:?}"
            );
            assert!(!collisions.has(c"third"));
        }
        assert!(!NameCollisions::among([c".", c".."].into_iter()).has(c"a"));
        assert!(!NameCollisions::among([c"a.b", c"ab", c".a", c" a"].into_iter()).has(c"a.b"));
    }

    #[test]
    fn a_short_name_may_be_that_of_any_other() {
        for short in [c"LONGFI~1.TXT", c"longfi~1.txt", c"A~12", c"LONGF~10.C"] {
            assert!(is_short(short.to_bytes()), "{short:?}");
        }
        for other in [
            c"a.~1~",
            c"file~",
            c"~",
            c"1",
            c"longname~1",
            c"a~1.jpeg",
            c"a~1.b.c",
            c"~x",
        ] {
            assert!(!is_short(other.to_bytes()), "{other:?}");
        }
        let collisions = NameCollisions::among([c"LONGFI~1.TXT", c"longfilename.txt"].into_iter());
        assert!(collisions.has(c"longfilename.txt"));
        assert!(!NameCollisions::among([c"LONGFI~1.TXT"].into_iter()).has(c"LONGFI~1.TXT"));
    }
}
