//! The lines of LIST, NLST, MLSD and MLST.

use std::io;

use cap_std::fs::{Metadata, MetadataExt};

use super::root::{Place, Root};
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

/// Returns the listing of a directory, or of one file.
pub fn listing(root: &Root, place: &Place, kind: Kind, writes: bool) -> io::Result<Vec<u8>> {
    let mut lines: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let about = root.metadata(place)?;
    if !about.is_dir() {
        if kind == Kind::Machine {
            return Err(rustix::io::Errno::NOTDIR.into());
        }
        let name = place.name().unwrap_or_default();
        lines.push((name.to_vec(), line(kind, name, &about, writes)));
    } else {
        root.list(place, |name, about| {
            // A name with a line break would become two lines.
            if !name.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
                lines.push((name.to_vec(), line(kind, name, about, writes)));
            }
            Ok(())
        })?;
        lines.sort();
    }
    let mut text = Vec::new();
    for (_, line) in lines {
        text.extend_from_slice(&line);
        text.extend_from_slice(b"\r\n");
    }
    Ok(text)
}

/// Returns the facts about one file or directory, without the end of the line.
pub fn facts(root: &Root, place: &Place, writes: bool) -> io::Result<Vec<u8>> {
    let about = root.metadata(place)?;
    Ok(line(Kind::Machine, &place.shown(), &about, writes))
}

fn line(kind: Kind, name: &[u8], about: &Metadata, writes: bool) -> Vec<u8> {
    let mut line = match kind {
        Kind::Names => Vec::new(),
        Kind::Long => long(about).into_bytes(),
        Kind::Machine => machine(about, writes).into_bytes(),
    };
    line.extend_from_slice(name);
    line
}

fn long(about: &Metadata) -> String {
    let letter = match () {
        () if about.is_dir() => 'd',
        () if about.is_symlink() => 'l',
        () => '-',
    };
    let mut mode = String::from(letter);
    for bit in (0..9).rev() {
        let set = about.mode() >> bit & 1 != 0;
        mode.push(if set { ['x', 'w', 'r'][bit % 3] } else { '-' });
    }
    let time = Utc::of(about.mtime()).listed(now(), about.mtime());
    format!(
        "{mode} {:3} {:<8} {:<8} {:>12} {time} ",
        about.nlink(),
        about.uid(),
        about.gid(),
        about.len()
    )
}

fn machine(about: &Metadata, writes: bool) -> String {
    let (kind, permissions) = match (about.is_dir(), writes) {
        (true, true) => ("dir", "cdeflmp"),
        (true, false) => ("dir", "el"),
        (false, true) => ("file", "adfrw"),
        (false, false) => ("file", "r"),
    };
    let size = match about.is_dir() {
        true => String::new(),
        false => format!("size={};", about.len()),
    };
    let kind = match about.is_file() || about.is_dir() {
        true => kind,
        false => "OS.unix=special",
    };
    format!(
        "type={kind};{size}modify={};perm={permissions};unique={:x}g{:x}; ",
        Utc::of(about.mtime()).digits(),
        about.dev(),
        about.ino()
    )
}
