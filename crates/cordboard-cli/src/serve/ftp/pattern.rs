//! The patterns of names in LIST and NLST.

/// As in a shell: a pattern does not match hidden files, unless it begins with a dot.
const OPTIONS: glob::MatchOptions = glob::MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// A pattern of a name with `*`, `?` or `[`, which clients send for several files.
pub struct Pattern {
    /// Of characters. `None`: the pattern is not UTF-8.
    text: Option<glob::Pattern>,
    /// Of bytes, for a pattern or a name that is not UTF-8. A character is one byte, as in the
    /// C locale.
    bytes: glob::Pattern,
}

impl Pattern {
    /// Returns `None` if the name is no pattern.
    pub fn new(name: &[u8]) -> Option<Pattern> {
        if !name.iter().any(|byte| b"*?[".contains(byte)) {
            return None;
        }
        let text = std::str::from_utf8(name).ok();
        Some(Pattern {
            text: match text {
                Some(text) => Some(glob::Pattern::new(text).ok()?),
                None => None,
            },
            bytes: glob::Pattern::new(&byte_by_byte(name)).ok()?,
        })
    }

    /// Returns whether a name matches. Bytes that are not UTF-8 match themselves only: a client may
    /// delete what it has found.
    pub fn matches(&self, name: &[u8]) -> bool {
        match (&self.text, std::str::from_utf8(name)) {
            (Some(pattern), Ok(name)) => pattern.matches_with(name, OPTIONS),
            _ => self.bytes.matches_with(&byte_by_byte(name), OPTIONS),
        }
    }
}

/// Returns a character for each byte (ISO 8859-1).
fn byte_by_byte(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &[u8], name: &[u8]) -> bool {
        Pattern::new(pattern).unwrap().matches(name)
    }

    #[test]
    fn names_that_are_not_utf8_match_byte_by_byte() {
        assert!(matches(b"caf\xe9*", b"caf\xe9.txt"));
        for other in [&b"caf\xe8.txt"[..], "caf\u{e9}.txt".as_bytes(), b"caf.txt"] {
            assert!(!matches(b"caf\xe9*", other), "{other:?}");
        }
        assert!(matches(b"caf[\xe8\xe9].txt", b"caf\xe9.txt"));
        assert!(!matches(b"caf[\xe8\xe9].txt", b"caf\xea.txt"));
        assert!(matches(b"caf?.txt", b"caf\xe9.txt"));
        assert!(!matches(b"caf??.txt", b"caf\xe9.txt"));
        assert!(!matches("caf\u{fffd}*".as_bytes(), b"caf\xe9.txt"));
    }

    #[test]
    fn a_character_of_utf8_is_one() {
        assert!(matches(b"caf?.txt", "caf\u{e9}.txt".as_bytes()));
        assert!(!matches(b"caf??.txt", "caf\u{e9}.txt".as_bytes()));
        assert!(matches(
            "caf[\u{e8}\u{e9}]*".as_bytes(),
            "caf\u{e9}".as_bytes()
        ));
    }

    #[test]
    fn hidden_names_and_plain_names_match_no_pattern() {
        assert!(!matches(b"*", b".\xe9") && matches(b".*", b".\xe9"));
        assert!(Pattern::new(b"caf\xe9").is_none());
    }
}
