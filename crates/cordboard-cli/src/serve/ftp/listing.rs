//! The lines of LIST, NLST, MLSD and MLST.

use std::io;

use super::budget::Share;
use super::errors;
use super::pattern::Pattern;
use super::root::{About, Place, Root};
use super::time::{Utc, now};

/// The kind of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// As `ls -l`.
    Long,
    /// Names only.
    Names,
    /// Machine-readable facts (RFC 3659).
    Machine,
}

/// Removes options of ls(1), which many clients send. A name that begins with `-` is no option
/// if it exists.
pub fn without_options<'a>(root: &Root, here: &Place, argument: &'a [u8]) -> io::Result<&'a [u8]> {
    let mut rest = argument;
    while rest.first() == Some(&b'-') {
        match root.listed_metadata(&here.join(rest)) {
            Ok(_) => break,
            // The file may exist: without the word, another directory would be listed.
            Err(error) if errors::is_temporary(&error) => return Err(error),
            Err(_) => {}
        }
        let end = rest.iter().position(|byte| *byte == b' ');
        let (word, after) = match end {
            Some(at) => (&rest[..at], &rest[at + 1..]),
            None => (rest, &[][..]),
        };
        if !is_option(word) {
            break;
        }
        rest = after;
        if word == b"--" {
            break;
        }
    }
    Ok(rest)
}

/// `-la`, `--all`, `--sort=size`, or `--`, which ends the options.
fn is_option(word: &[u8]) -> bool {
    match word {
        [b'-', b'-', name @ ..] => name
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-=".contains(byte)),
        [b'-', letters @ ..] => {
            !letters.is_empty() && letters.iter().all(u8::is_ascii_alphanumeric)
        }
        _ => false,
    }
}

/// Returns the listing of a directory, of one file, or of the files whose names match a
/// pattern, in the order of the names. `share`: that of the memory of all listings, which is returned
/// with what the listing uses.
pub fn listing(
    (root, share): (&Root, Share),
    here: &Place,
    path: &[u8],
    kind: Kind,
    writes: bool,
) -> io::Result<(Vec<u8>, Share)> {
    let place = here.join(path);
    let mut lines = Lines {
        kind,
        writes,
        all: Vec::new(),
        share,
    };
    match root.listed_metadata(&place) {
        Ok(about) if about.is_dir() => {
            root.list(&place, |name, about| lines.add(&beneath(path), name, about))?
        }
        // As by ls(1). The name of the file alone is `place`.
        Ok(_) if path.ends_with(b"/") || path.ends_with(b"/.") => {
            return Err(rustix::io::Errno::NOTDIR.into());
        }
        Ok(_) if kind == Kind::Machine => return Err(rustix::io::Errno::NOTDIR.into()),
        Ok(about) => {
            let (folder, _) = split(path);
            lines.add(folder, place.name().unwrap_or_default(), &about)?;
        }
        Err(error) => {
            let (folder, last) = split(path);
            let pattern = Pattern::new(last).filter(|_| kind != Kind::Machine);
            let Some(pattern) = pattern else {
                return Err(error);
            };
            root.list(&here.join(folder), |name, about| {
                match pattern.matches(name) {
                    true => lines.add(folder, name, about),
                    false => Ok(()),
                }
            })?;
            if lines.all.is_empty() {
                return Err(error);
            }
        }
    }
    Ok(lines.text())
}

/// Splits a path before its last component.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let at = path.iter().rposition(|byte| *byte == b'/');
    path.split_at(at.map_or(0, |at| at + 1))
}

/// Returns what precedes the names in a directory, so that they are paths from the same place
/// as the path of the directory.
fn beneath(path: &[u8]) -> Vec<u8> {
    let mut prefix = path.to_vec();
    match path {
        b"" | b"." | b"./" => prefix.clear(),
        [.., b'/'] => {}
        _ => prefix.push(b'/'),
    }
    prefix
}

/// The lines of a listing, with the names by which they are sorted.
struct Lines {
    kind: Kind,
    writes: bool,
    all: Vec<(Vec<u8>, Vec<u8>)>,
    share: Share,
}

/// An estimate of the memory of a line besides its bytes: its two vectors, and the overhead of their
/// allocations.
const OVERHEAD: usize = size_of::<(Vec<u8>, Vec<u8>)>() + 32;

impl Lines {
    /// Adds a line. `prefix`: the path of the directory. Clients pass the names of NLST to
    /// other commands as they are (RFC 1123, 4.1.2.7).
    fn add(&mut self, prefix: &[u8], name: &[u8], about: &About) -> io::Result<()> {
        // A name with a line break would become two lines.
        if name.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
            return Ok(());
        }
        let shown = match self.kind {
            Kind::Names => [prefix, name].concat(),
            Kind::Long | Kind::Machine => name.to_vec(),
        };
        let line = line(self.kind, &shown, about, self.writes);
        if !(self.share).add((name.len() + line.len() + OVERHEAD) as u64) {
            let text = "the listings need too much memory";
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
        }
        self.all.push((name.to_vec(), line));
        Ok(())
    }

    fn text(mut self) -> (Vec<u8>, Share) {
        self.all.sort();
        let size = self.all.iter().map(|(_, line)| line.len() + 2).sum();
        let mut text = Vec::with_capacity(size);
        for (_, line) in self.all {
            text.extend_from_slice(&line);
            text.extend_from_slice(b"\r\n");
        }
        (text, self.share)
    }
}

/// Returns the facts about one file or directory, without the end of the line. A path that ends
/// with `/`, `.` or `..`, or that is empty, names the directory to which a symlink leads.
pub fn facts(root: &Root, here: &Place, path: &[u8], writes: bool) -> io::Result<Vec<u8>> {
    let place = here.join(path);
    let (_, last) = split(path);
    let about = match last {
        b"" | b"." | b".." => root.metadata(&place)?,
        _ => root.metadata_or_link(&place)?,
    };
    Ok(line(Kind::Machine, &place.shown(), &about, writes))
}

fn line(kind: Kind, name: &[u8], about: &About, writes: bool) -> Vec<u8> {
    // A client would take the name as one that ends before the arrow.
    let target = (about.target.as_deref()).filter(|_| !has_arrow(name));
    let mut line = match kind {
        Kind::Names => Vec::new(),
        Kind::Long => long(about, name).into_bytes(),
        Kind::Machine => machine(about, writes).into_bytes(),
    };
    line.extend_from_slice(name);
    if let (Kind::Long, Some(target)) = (kind, target) {
        line.extend_from_slice(ARROW);
        let printed = |byte: &u8| match byte {
            b'\r' | b'\n' => b'?',
            byte => *byte,
        };
        line.extend(target.iter().map(printed));
    }
    line
}

/// What separates the name of a symlink and its target (ls(1)).
const ARROW: &[u8] = b" -> ";

fn has_arrow(name: &[u8]) -> bool {
    name.windows(ARROW.len()).any(|window| window == ARROW)
}

fn long(about: &About, name: &[u8]) -> String {
    let letter = match () {
        () if about.is_dir() => 'd',
        () if about.is_symlink() && !has_arrow(name) => 'l',
        () => '-',
    };
    let mut mode = String::from(letter);
    for bit in (0..9).rev() {
        let set = about.mode >> bit & 1 != 0;
        mode.push(if set { ['x', 'w', 'r'][bit % 3] } else { '-' });
    }
    let time = Utc::of(about.modified.0).listed(now(), about.modified.0);
    format!(
        "{mode} {:3} {:<8} {:<8} {:>12} {time} ",
        about.links, about.user, about.group, about.length
    )
}

fn machine(about: &About, writes: bool) -> String {
    let (kind, permissions) = match (about.is_dir(), about.is_file(), writes) {
        (true, _, true) => ("dir", "cdeflmp"),
        (true, _, false) => ("dir", "el"),
        (_, true, true) => ("file", "adfrw"),
        (_, true, false) => ("file", "r"),
        // Only the name can be removed or changed.
        (_, _, true) => ("OS.unix=special", "df"),
        (_, _, false) => ("OS.unix=special", ""),
    };
    // RFC 3659, 7.5.1.5.
    let link = (about.target.as_ref()).map(|target| format!("OS.unix=slink:{}", escaped(target)));
    let kind = link.as_deref().unwrap_or(kind);
    if about.is_unknown() {
        return format!("type={kind};perm={permissions}; ");
    }
    // The length of a symlink is not that of a file.
    let size = match about.is_dir() || link.is_some() {
        true => String::new(),
        false => format!("size={};", about.length),
    };
    let modified = Utc::of(about.modified.0).digits();
    let modified = modified.map_or(String::new(), |digits| format!("modify={digits};"));
    format!(
        "type={kind};{size}{modified}perm={permissions};unique={:x}g{:x}; ",
        about.id.0, about.id.1
    )
}

/// Returns a target as the value of a fact, which contains no space, semicolon or control
/// character (RFC 3659, 7.2). Other bytes are percent-encoded.
fn escaped(target: &[u8]) -> String {
    let mut text = String::with_capacity(target.len());
    for &byte in target {
        match byte {
            b'%' | b';' => {}
            0x21..=0x7e => {
                text.push(char::from(byte));
                continue;
            }
            _ => {}
        }
        text.push_str(&format!("%{byte:02X}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::budget::Budget;
    use super::*;

    #[test]
    fn the_memory_of_all_listings_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        for name in 0..3 {
            std::fs::write(folder.path().join(format!("f{name}")), b"").unwrap();
        }
        let root = Root::open(folder.path()).unwrap();
        let budget = Budget::new(6 * (OVERHEAD as u64 + 4));
        let names = |host: u8, path: &[u8]| {
            let share = Share::none_of(&budget, [10, 0, 0, host].into());
            listing((&root, share), &Place::default(), path, Kind::Names, false)
        };
        let (text, share) = names(1, b"").unwrap();
        assert_eq!(text, b"f0\r\nf1\r\nf2\r\n");
        // The address has half, and another one needs more than is left.
        let (_, other) = names(2, b"f0").unwrap();
        for (host, path) in [(1, &b"f1"[..]), (2, b""), (2, b"*"), (3, b"*")] {
            let error = names(host, path).err().unwrap();
            assert_eq!(errors::code(&error), 451, "{error}");
        }
        drop(share);
        assert!(names(1, b"*").is_ok());
        drop(other);
    }

    /// A client would delete or copy the target of such a link.
    #[test]
    fn links_to_directories_forge_no_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let forged = "x\r\n; type=file;size=1; y";
        for name in ["keep", forged] {
            std::fs::create_dir(path(name)).unwrap();
        }
        for (target, name) in [(".", "loop"), ("keep", "a -> keep"), (forged, "forged")] {
            std::os::unix::fs::symlink(target, path(name)).unwrap();
        }
        let root = Root::open(folder.path()).unwrap();
        let of = |kind, writes| {
            let share = Share::none_of(&Budget::new(2000), [10, 0, 0, 1].into());
            let text = listing((&root, share), &Place::default(), b"", kind, writes);
            let text = String::from_utf8(text.unwrap().0).unwrap();
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            assert_eq!(lines.len(), 4, "{text}");
            lines
        };
        let long = of(Kind::Long, false);
        assert!(long[0].starts_with("-rwx") && long[0].ends_with(" a -> keep"));
        assert!(
            long[1].ends_with(" forged -> x??; type=file;size=1; y"),
            "{long:?}"
        );
        assert!(long[3].starts_with("lrwx") && long[3].ends_with(" loop -> ."));
        for (writes, permissions) in [(true, ";perm=df;"), (false, ";perm=;")] {
            let facts = of(Kind::Machine, writes);
            for (at, kind) in [
                (0, "type=OS.unix=slink:keep;modify="),
                (
                    1,
                    "type=OS.unix=slink:x%0D%0A%3B%20type=file%3Bsize=1%3B%20y;modify=",
                ),
                (3, "type=OS.unix=slink:.;modify="),
            ] {
                let line = &facts[at];
                assert!(
                    line.starts_with(kind) && line.contains(permissions),
                    "{line}"
                );
            }
        }
    }
}
