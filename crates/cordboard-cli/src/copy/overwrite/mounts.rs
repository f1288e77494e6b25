//! Files that mounts show below the destination and below a source.
//!
//! A directory, and a file with one name, has one place in its file system. It
//! is below the destination and below a source if mounts show this place in
//! both. Each mount shows a part of its file system. If two parts overlap, one
//! contains the root of the other, and every common file is at this root or
//! below it. A walk of the destination passes the root before it reaches such a
//! file. So only these roots are compared with what exists in the destination.
//! They are computed from the mounts of the process (`/proc/self/mountinfo`,
//! since Linux 2.6.26), before anything is written: a mount that another process
//! makes during the copy is not known.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::directory::{PATH_ONLY, parent};
use crate::files::{Id, id, if_exists, if_reachable};
use crate::signals::retry;

/// The mounts of the process, and what they show below the sources.
#[derive(Debug)]
pub struct Mounts {
    table: Vec<Mount>,
    sources: Parts,
}

/// Where mounts show files of the sources below a target.
#[derive(Debug, Default)]
pub struct Meetings {
    /// The files and directories where the trees meet, with their operands.
    pub sources: Vec<(Id, PathBuf)>,
    /// Files of the target have several names, by mounts below it.
    pub within: bool,
}

#[derive(Debug)]
struct Mount {
    id: u64,
    /// Major and minor number of the file system. Subvolumes of btrfs have the
    /// same, but different values of `st_dev`.
    device: String,
    /// The root of the mount, as a path in its file system.
    root: PathBuf,
    point: PathBuf,
}

/// What one mount shows of a file system below an operand.
#[derive(Debug)]
struct Part {
    mount: u64,
    /// A path of its root that starts at the operand.
    at: PathBuf,
    operand: PathBuf,
}

/// Parts by file system, and by their roots in it.
#[derive(Debug, Default)]
struct Parts {
    listed: BTreeMap<(String, PathBuf), Vec<Part>>,
    /// Mounts that the table does not contain: in a chroot(2), that of the root
    /// directory, unless a mount is there.
    unlisted: Vec<u64>,
}

impl Mounts {
    /// Finds the parts below these operands. A symlink is not followed. `None`:
    /// unknown, for example without procfs.
    pub fn new(operands: &[PathBuf]) -> Option<Mounts> {
        let table = std::fs::read("/proc/self/mountinfo").ok()?;
        let lines = table.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty());
        let table: Vec<Mount> = lines.map(parse).collect::<Option<_>>()?;
        let mut sources = Parts::default();
        for operand in operands {
            sources.add(&table, operand, (OFlags::NOFOLLOW, true))?;
        }
        Some(Mounts { table, sources })
    }

    /// Finds where the target of this operand meets the sources, and itself. If
    /// the target does not exist, its directory is compared. `None`: unknown.
    pub fn meetings(&self, from: &Path, to: &Path) -> Option<Meetings> {
        let mut target = Parts::default();
        let follow = OFlags::empty();
        if !target.add(&self.table, to, (follow, true))? {
            target.add(&self.table, &parent(to), (follow, false))?;
        }
        // The copy enters a mount only by a name of the source.
        let is_entered = |part: &Part| {
            let name = part.at.strip_prefix(to).unwrap_or(Path::new(""));
            let look = || rustix::fs::lstat(from.join(name));
            !matches!(if_exists(retry(look)), Ok(None))
        };
        target.listed.retain(|_, parts| {
            parts.retain(is_entered);
            !parts.is_empty()
        });
        if !self.sources.is_comparable(&target) || !target.is_comparable(&target) {
            return None;
        }
        let mut meetings = Meetings::default();
        for ((device, root), parts) in &target.listed {
            for part in parts {
                let this = (root.as_path(), part);
                for other in self.sources.overlapping(device, root) {
                    if let Some(id) = meeting(this, other)? {
                        meetings.sources.push((id, other.1.operand.clone()));
                    }
                }
                for other in target.overlapping(device, root) {
                    meetings.within = meetings.within || meeting(this, other)?.is_some();
                }
            }
        }
        Some(meetings)
    }
}

impl Parts {
    /// Adds what its mount shows at a directory, and, with `inner`, what other
    /// mounts show below it. Returns whether the directory exists; `None`:
    /// unknown.
    fn add(
        &mut self,
        table: &[Mount],
        operand: &Path,
        (follow, inner): (OFlags, bool),
    ) -> Option<bool> {
        let open = || rustix::fs::open(operand, PATH_ONLY | follow, Mode::empty());
        let Some(fd) = if_reachable(retry(open)).ok()? else {
            return Some(false);
        };
        let number = fd.as_raw_fd();
        let path = std::fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
        // Since Linux 3.15.
        let own = (info.lines()).find_map(|line| line.strip_prefix("mnt_id:"))?;
        let own = own.trim().parse::<u64>().ok()?;
        let mut is_listed = false;
        for mount in table {
            let (at, root) = if mount.id == own {
                is_listed = true;
                let below = path.strip_prefix(&mount.point).ok()?;
                // The operand may be a symlink.
                (operand.join("."), join(&mount.root, below))
            } else if let (true, Some(below)) = (inner, is_below(&mount.point, &path)) {
                (operand.join(below), mount.root.clone())
            } else {
                continue;
            };
            let place = (mount.device.clone(), root);
            self.listed.entry(place).or_default().push(Part {
                mount: mount.id,
                at,
                operand: operand.to_owned(),
            });
        }
        if !is_listed {
            self.unlisted.push(own);
        }
        Some(true)
    }

    /// Whether all parts of both that are of different mounts can be compared.
    fn is_comparable(&self, other: &Parts) -> bool {
        let alone = |parts: &Parts| parts.listed.is_empty();
        match (&self.unlisted[..], &other.unlisted[..]) {
            ([], []) => true,
            ([], _) => alone(self),
            (_, []) => alone(other),
            (some, others) => {
                alone(self) && alone(other) && some.iter().chain(others).all(|id| *id == some[0])
            }
        }
    }

    /// Returns the parts of this file system whose root contains this path, or
    /// is below it, with their roots.
    fn overlapping<'a>(
        &'a self,
        device: &'a str,
        root: &'a Path,
    ) -> impl Iterator<Item = (&'a Path, &'a Part)> {
        let place = move |path: &Path| (device.to_owned(), path.to_owned());
        let above = root.ancestors().skip(1);
        let above = above.filter_map(move |path| self.listed.get_key_value(&place(path)));
        // In the order of the components, these are one range.
        let below = self.listed.range(place(root)..);
        let below =
            below.take_while(move |((other, path), _)| other == device && path.starts_with(root));
        let all = above.chain(below);
        all.flat_map(|((_, root), parts)| parts.iter().map(move |part| (root.as_path(), part)))
    }
}

/// Returns the file or directory where two parts of one file system meet, of
/// different mounts: one that has a name in both. `Some(None)`: another mount
/// hides it. `None`: unknown.
fn meeting((root, part): (&Path, &Part), (other, of): (&Path, &Part)) -> Option<Option<Id>> {
    if part.mount == of.mount {
        return Some(None);
    }
    let (here, there) = match (root.strip_prefix(other), other.strip_prefix(root)) {
        (Ok(below), _) => (part.at.clone(), join(&of.at, below)),
        (_, Ok(below)) => (join(&part.at, below), of.at.clone()),
        _ => return Some(None),
    };
    let look = |path: &Path| if_reachable(retry(|| rustix::fs::lstat(path))).ok();
    let ids = (look(&here)?, look(&there)?);
    Some(match ids {
        (Some(here), Some(there)) if id(&here) == id(&there) => Some(id(&here)),
        _ => None,
    })
}

/// [`Path::join`], which would add a slash to the name of a file.
fn join(path: &Path, below: &Path) -> PathBuf {
    match below.as_os_str().is_empty() {
        true => path.to_owned(),
        false => path.join(below),
    }
}

/// Returns the path below this directory, if it is below it.
fn is_below<'a>(path: &'a Path, directory: &Path) -> Option<&'a Path> {
    let below = path.strip_prefix(directory).ok()?;
    (!below.as_os_str().is_empty()).then_some(below)
}

/// Parses a line of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let text = |field: Option<&[u8]>| String::from_utf8(field?.to_vec()).ok();
    let id = text(fields.next())?.parse().ok()?;
    let device = text(fields.nth(1))?;
    let mut root = unescaped(fields.next()?);
    let point = unescaped(fields.next()?);
    // Optional fields end with a hyphen.
    fields.find(|field| *field == b"-")?;
    let (kind, source) = (fields.next()?, unescaped(fields.next()?));
    // The root is always shown as `/` (`nfs_show_path`, fs/nfs/super.c), but
    // the source contains it: `server:/path`.
    let source = source.as_os_str().as_bytes();
    if [&b"nfs"[..], b"nfs4"].contains(&kind)
        && let Some(colon) = source.windows(2).position(|two| two == b":/")
    {
        root = Path::new(OsStr::from_bytes(&source[colon + 1..])).to_owned();
    }
    Some(Mount {
        id,
        device,
        root,
        point,
    })
}

/// Replaces octal numbers: a space is `\040`.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let escape = after.get(..3).filter(|_| *first == b'\\');
        let digits = escape.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_table() {
        let fields = |line: &str| {
            let mount = parse(line.as_bytes())?;
            let text = |path: PathBuf| path.to_str().unwrap().to_owned();
            Some((mount.id, mount.device, text(mount.root), text(mount.point)))
        };
        let is = |id, device: &str, root: &str, point: &str| {
            Some((id, device.to_owned(), root.to_owned(), point.to_owned()))
        };
        for (line, found) in [
            (
                "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw",
                is(36, "98:0", "/mnt1", "/mnt2"),
            ),
            (
                r"7 1 0:5 /a\040b /c\134\011d\012 rw - tmpfs a\040b rw",
                is(7, "0:5", "/a b", "/c\\\td\n"),
            ),
            (
                "8 1 0:6 / /n rw shared:1 master:2 - nfs4 [fe80::1]:/export/x rw",
                is(8, "0:6", "/export/x", "/n"),
            ),
            ("8 1 0:6 / /n rw", None),
            ("x 1 0:6 / /n rw - ext4 none rw", None),
            ("9 1 0:7 / /p rw - nfsd nfsd rw", is(9, "0:7", "/", "/p")),
        ] {
            assert_eq!(fields(line), found, "{line}");
        }
    }

    #[test]
    fn parts_that_overlap() {
        let mut parts = Parts::default();
        for (number, (device, root)) in [
            ("1:1", "/"),
            ("1:1", "/a"),
            ("1:1", "/a/b/c"),
            ("1:1", "/a/b0"),
            ("1:1", "/a/b/d"),
            ("1:1", "/z"),
            ("2:2", "/a/b"),
        ]
        .into_iter()
        .enumerate()
        {
            let part = Part {
                mount: number as u64,
                at: root.into(),
                operand: PathBuf::new(),
            };
            let at = (device.to_owned(), root.into());
            parts.listed.entry(at).or_default().push(part);
        }
        let found = |device, root| {
            let all = parts.overlapping(device, Path::new(root));
            let mut all: Vec<u64> = all.map(|(_, part)| part.mount).collect();
            all.sort_unstable();
            all
        };
        assert_eq!(found("1:1", "/a/b"), [0, 1, 2, 4]);
        assert_eq!(found("1:1", "/a/b/c"), [0, 1, 2]);
        assert_eq!(found("1:1", "/"), [0, 1, 2, 3, 4, 5]);
        assert_eq!(found("2:2", "/a/b/c"), [6]);
        assert_eq!(found("3:3", "/"), [0u64; 0]);
    }

    /// In a chroot(2), the mount of the root directory may be missing.
    #[test]
    fn a_mount_that_is_not_listed_is_compared_with_itself_alone() {
        let parts = |listed: &[u64], unlisted: &[u64]| {
            let mut parts = Parts {
                unlisted: unlisted.to_vec(),
                ..Parts::default()
            };
            for mount in listed {
                let part = Part {
                    mount: *mount,
                    at: PathBuf::new(),
                    operand: PathBuf::new(),
                };
                let place = ("1:1".to_owned(), "/".into());
                parts.listed.entry(place).or_default().push(part);
            }
            parts
        };
        for (source, target, comparable) in [
            (parts(&[1], &[]), parts(&[2], &[]), true),
            (parts(&[], &[3, 3]), parts(&[], &[3]), true),
            (parts(&[], &[3]), parts(&[], &[4]), false),
            (parts(&[], &[3, 4]), parts(&[], &[3]), false),
            (parts(&[1], &[3]), parts(&[], &[3]), false),
            (parts(&[], &[3]), parts(&[1], &[3]), false),
            (parts(&[1], &[]), parts(&[], &[3]), false),
            (parts(&[], &[3]), parts(&[1], &[]), false),
            (parts(&[], &[]), parts(&[1], &[3]), true),
        ] {
            assert_eq!(
                source.is_comparable(&target),
                comparable,
                "{source:?} {target:?}"
            );
        }
    }
}
