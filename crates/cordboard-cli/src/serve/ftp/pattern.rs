//! The patterns of names in LIST and NLST: those of a shell (glob(7)).

use std::str::Chars;

/// A pattern of a name with `*`, `?` or `[`, which clients send for several files.
pub struct Pattern {
    /// Of characters. `None`: the pattern is not UTF-8.
    text: Option<Vec<Part>>,
    /// Of bytes, for a pattern or a name that is not UTF-8. A character is one byte, as in the
    /// C locale.
    bytes: Vec<Part>,
}

/// A part of a pattern.
enum Part {
    /// `*`
    Any,
    /// `?`
    One,
    Char(char),
    /// `[a-z]`, or `[!a-z]` and `[^a-z]`, which are negated. Ranges with both ends.
    Set {
        is_negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Pattern {
    /// Returns `None` if the name is no pattern, or has a class of characters.
    pub fn new(name: &[u8]) -> Option<Pattern> {
        if !name.iter().any(|byte| b"*?[".contains(byte)) {
            return None;
        }
        let bytes = parse(&byte_by_byte(name))?;
        let text = std::str::from_utf8(name).ok();
        Some(Pattern {
            text: text.and_then(parse),
            bytes,
        })
    }

    /// Returns whether a name matches. Bytes that are not UTF-8 match themselves only: a client may
    /// delete what it has found.
    pub fn matches(&self, name: &[u8]) -> bool {
        match (&self.text, std::str::from_utf8(name)) {
            (Some(pattern), Ok(name)) => matches(pattern, name),
            _ => matches(&self.bytes, &byte_by_byte(name)),
        }
    }
}

/// Returns `None` if a set has a class of characters.
fn parse(pattern: &str) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    let mut rest = pattern.chars();
    while let Some(first) = rest.next() {
        parts.push(match first {
            '*' => Part::Any,
            '?' => Part::One,
            '\\' => Part::Char(rest.next().unwrap_or('\\')),
            // Without its end, it is a character.
            '[' => match set(rest.clone()) {
                Ok((set, after)) => {
                    rest = after;
                    set
                }
                Err(NoSet::Endless) => Part::Char('['),
                Err(NoSet::Class) => return None,
            },
            other => Part::Char(other),
        });
    }
    Some(parts)
}

/// Why what follows a `[` is no set.
enum NoSet {
    Endless,
    /// It has a class of characters, such as `[:alpha:]`. Which ones are letters depends on the
    /// locale, and a client may delete what it has found.
    Class,
}

/// Returns the set behind `[`, and what follows it.
fn set(mut rest: Chars<'_>) -> Result<(Part, Chars<'_>), NoSet> {
    let is_negated = rest.as_str().starts_with(['!', '^']);
    if is_negated {
        rest.next();
    }
    let mut ranges = Vec::new();
    loop {
        let first = match rest.next().ok_or(NoSet::Endless)? {
            // The first one is a member.
            ']' if !ranges.is_empty() => return Ok((Part::Set { is_negated, ranges }, rest)),
            '[' if rest.as_str().starts_with([':', '.', '=']) => return Err(NoSet::Class),
            '\\' => rest.next().ok_or(NoSet::Endless)?,
            first => first,
        };
        let mut after = rest.clone();
        let last = match (after.next(), after.next()) {
            (Some('-'), Some('\\')) => after.next(),
            // A `-` before the end is a member.
            (Some('-'), last) => last.filter(|last| *last != ']'),
            _ => None,
        };
        if last.is_some() {
            rest = after;
        }
        ranges.push((first, last.unwrap_or(first)));
    }
}

/// A pattern does not match hidden files, unless it begins with a dot.
fn matches(pattern: &[Part], name: &str) -> bool {
    if name.starts_with('.') && !matches!(pattern.first(), Some(Part::Char('.'))) {
        return false;
    }
    let (mut parts, mut rest) = (pattern, name.chars());
    // What follows the last `*` in the pattern, and in the name.
    let mut last = None;
    loop {
        let mut after = rest.clone();
        match (parts, after.next()) {
            ([], None) => return true,
            ([Part::Any, behind @ ..], _) => {
                parts = behind;
                last = Some((behind, rest.clone()));
                continue;
            }
            ([one, behind @ ..], Some(char)) if one.takes(char) => {
                (parts, rest) = (behind, after);
                continue;
            }
            _ => {}
        }
        // The last `*` takes one more character.
        let Some((behind, from)) = &mut last else {
            return false;
        };
        if from.next().is_none() {
            return false;
        }
        (parts, rest) = (*behind, from.clone());
    }
}

impl Part {
    /// Returns whether one character matches.
    fn takes(&self, char: char) -> bool {
        match self {
            Part::Any | Part::One => true,
            Part::Char(own) => *own == char,
            Part::Set { is_negated, ranges } => {
                let is_in = |(first, last): &(char, char)| (*first..=*last).contains(&char);
                ranges.iter().any(is_in) != *is_negated
            }
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

    /// A client deletes the names that it gets.
    #[test]
    fn a_pattern_matches_as_in_a_shell() {
        let names = ["abc", "bcd", "^x", "!x", "a-c", "]x", "*", "a[c", "a\\c"];
        for (pattern, expected) in [
            ("[^a]*", &["bcd", "^x", "!x", "]x", "*"][..]),
            ("[!a]*", &["bcd", "^x", "!x", "]x", "*"]),
            ("[a^]*", &["abc", "^x", "a-c", "a[c", "a\\c"]),
            ("[\\^a]*", &["abc", "^x", "a-c", "a[c", "a\\c"]),
            ("a**c*", &["abc", "a-c", "a[c", "a\\c"]),
            ("a*c*?", &[]),
            ("*c", &["abc", "a-c", "a[c", "a\\c"]),
            ("\\*", &["*"]),
            ("a\\\\?", &["a\\c"]),
            ("a[\\\\[]c", &["a[c", "a\\c"]),
            ("a[c*", &["a[c"]),
            ("[]^]*", &["^x", "]x"]),
            ("[!]a-z]*", &["^x", "!x", "*"]),
            ("a[a-]*", &["a-c"]),
            ("[:a]bc", &["abc"]),
            ("[a-b]??", &["abc", "bcd", "a-c", "a[c", "a\\c"]),
            ("a[\\--\\[]c", &["a-c", "a[c"]),
        ] {
            let found: Vec<&str> = (names.into_iter())
                .filter(|name| matches(pattern.as_bytes(), name.as_bytes()))
                .collect();
            assert_eq!(found, expected, "{pattern}");
        }
        assert!(matches(b"[^\xe8]*", b"\xe9") && !matches(b"[^\xe9]*", b"\xe9"));
        assert!(!matches(b"[^a]*", b".a") && matches(b"\\.*", b".a"));
        for class in ["[[:alpha:]]*", "a[b[.-.]]", "[[=a=]]"] {
            assert!(Pattern::new(class.as_bytes()).is_none(), "{class}");
        }
        // A set may begin with these characters.
        assert!(matches(b"i[0-9][.]txt", b"i1.txt") && !matches(b"i[0-9][.]txt", b"i1-txt"));
        assert!(matches(b"\\[[:]*", b"[:x") && matches(b"[a][=]", b"a="));
    }
}
