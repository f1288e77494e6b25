//! Text in columns of the terminal.

use std::fmt::Write as _;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::output::affects_line;

/// Returns the number of columns of a text.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Returns a name without characters that affect the terminal or the order of the other
/// columns: they are escaped. Without UTF-8, characters other than ASCII become `?`.
pub fn clean(name: &str, unicode: bool) -> String {
    let mut out = String::new();
    for c in name.chars() {
        match c {
            c if affects_line(c) => {
                let _ = write!(out, "{}", c.escape_default());
            }
            c if !unicode && !c.is_ascii() => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

/// Returns a text of exactly this number of columns. The middle of a longer text is omitted,
/// because the start and the end of a label have the names of the source and the sink.
pub fn fixed(text: &str, columns: usize, unicode: bool) -> String {
    let mut out = match width(text) <= columns {
        true => text.to_owned(),
        false => shortened(text, columns, if unicode { '…' } else { '~' }),
    };
    let missing = columns.saturating_sub(width(&out));
    out.extend(std::iter::repeat_n(' ', missing));
    out
}

fn shortened(text: &str, columns: usize, mark: char) -> String {
    let Some(room) = columns.checked_sub(1) else {
        return String::new();
    };
    let starts = text
        .char_indices()
        .map(|(at, c)| &text[..at + c.len_utf8()]);
    let mut start = last_that_fits(starts, room / 2);
    let ends = text.char_indices().rev().map(|(at, _)| &text[at..]);
    let end = last_that_fits(ends, room - width(start));
    // A mark belongs to the character before it.
    let end = end.trim_start_matches(|c: char| c.width() == Some(0));
    loop {
        let out = format!("{start}{mark}{end}");
        // The three may join into a wider text.
        match start.char_indices().next_back() {
            Some((at, _)) if width(&out) > columns => start = &start[..at],
            _ => return out,
        }
    }
}

/// Returns the last of these ever longer pieces that has no more than these columns. The columns
/// of a text are not the sum of those of its characters: some have two because of the next one.
fn last_that_fits<'a>(pieces: impl Iterator<Item = &'a str>, columns: usize) -> &'a str {
    let near = pieces.take_while(|piece| width(piece) <= columns + 2);
    let fits = near.filter(|piece| width(piece) <= columns);
    fits.last().unwrap_or("")
}

/// Joins the pieces that fit, in order, with so many spaces between them. None is cut:
/// half a number is a wrong one.
pub fn join(pieces: &[String], gap: usize, columns: usize) -> String {
    let mut line = String::new();
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        let gap = if line.is_empty() { 0 } else { gap };
        if width(&line) + gap + width(piece) <= columns {
            line.extend(std::iter::repeat_n(' ', gap));
            line += piece;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_harmless() {
        assert_eq!(
            clean("a\x1b[2J\n\u{202e}b", true),
            "a\\u{1b}[2J\\n\\u{202e}b"
        );
        assert_eq!(clean("für", true), "für");
        assert_eq!(clean("für", false), "f?r");
    }

    #[test]
    fn columns_are_exact() {
        assert_eq!(fixed("ab", 4, true), "ab  ");
        assert_eq!(fixed("/a/long/name -> /b/x", 11, true), "/a/lo… /b/x");
        assert_eq!(fixed("abcdef", 5, false), "ab~ef");
        for columns in 0..12 {
            for text in [
                "abcdefghijklmnop",
                "日本語の名前です",
                "e\u{301}e\u{301}e\u{301}abcdefgh",
                // Characters whose columns depend on the next one.
                "❤\u{fe0f}❤\u{fe0f}❤\u{fe0f}❤\u{fe0f}❤\u{fe0f}❤\u{fe0f}❤\u{fe0f}",
                "👩\u{200d}👧👩\u{200d}👧 👩\u{200d}👧👩\u{200d}👧 1\u{fe0f}\u{20e3}🇩🇪🇫🇷",
            ] {
                assert_eq!(
                    width(&fixed(text, columns, true)),
                    columns,
                    "{text} {columns}"
                );
            }
        }
    }

    #[test]
    fn pieces_are_whole() {
        let pieces = ["aaa", "bbbbbb", "", "cc"].map(str::to_owned);
        assert_eq!(join(&pieces, 2, 80), "aaa  bbbbbb  cc");
        assert_eq!(join(&pieces, 2, 8), "aaa  cc");
        assert_eq!(join(&pieces, 2, 2), "cc");
    }
}
