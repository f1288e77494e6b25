//! Files that hold the pattern.

use super::fed::{Ask, Rest, Source};
use super::kind::SourceKind;
use crate::expect::Expect;
use crate::spec::Spec;
use crate::{pattern, wire};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

pub(super) fn make(kind: SourceKind, spec: &Spec) -> io::Result<Source> {
    let (fd, expect) = match kind {
        SourceKind::Memfd => {
            let fd = rustix::fs::memfd_create("source", MemfdFlags::CLOEXEC)?;
            fill(&fd, spec.size)?;
            rustix::fs::seek(&fd, rustix::fs::SeekFrom::Start(0))?;
            (fd, Expect::Pattern(spec.size))
        }
        SourceKind::Sparse => {
            let (fd, path) = wire::named_file(&wire::temp_dir())?;
            let expect = islands(&fd, spec)?;
            (reopen(&path, OFlags::empty())?, expect)
        }
        _ => {
            let dir = match kind {
                SourceKind::Tmpfs => wire::TMPFS.into(),
                _ => wire::temp_dir(),
            };
            let (fd, path) = wire::named_file(&dir)?;
            fill(&fd, spec.size)?;
            let direct = kind == SourceKind::Direct;
            let flags = if direct {
                // Otherwise direct reads would wait for writeback, and a measurement
                // would include it.
                rustix::fs::fdatasync(&fd)?;
                OFlags::DIRECT
            } else {
                OFlags::empty()
            };
            (reopen(&path, flags)?, Expect::Pattern(spec.size))
        }
    };
    Ok(Source {
        fd,
        kind,
        ask: Ask::Eof,
        expect,
        messages: None,
        _rest: Rest::default(),
    })
}

fn reopen(path: &tempfile::TempPath, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(&**path, flags, Mode::empty())?)
}

/// Writes the pattern from the start.
pub(super) fn fill(fd: impl AsFd, size: u64) -> io::Result<()> {
    let mut done = 0;
    while done < size {
        let piece = pattern::piece(done);
        let length = piece
            .len()
            .min(usize::try_from(size - done).unwrap_or(usize::MAX));
        done += rustix::io::pwrite(&fd, &piece[..length], done)? as u64;
    }
    Ok(())
}

/// The first block of every sixteen holds data; the rest, and the end, are
/// holes.
fn islands(fd: impl AsFd, spec: &Spec) -> io::Result<Expect> {
    const ISLAND: u64 = 4096;
    const STRIDE: u64 = 16 * ISLAND;
    rustix::fs::ftruncate(&fd, spec.size)?;
    let keep = if spec.keeps() { spec.size } else { 0 };
    let mut all = vec![0u8; usize::try_from(keep).map_err(io::Error::other)?];
    let mut at = 0;
    while at + ISLAND <= spec.size {
        let bytes = pattern::bytes(at, ISLAND as usize);
        rustix::io::pwrite(&fd, &bytes, at)?;
        if spec.keeps() {
            all[at as usize..][..ISLAND as usize].copy_from_slice(&bytes);
        }
        at += STRIDE;
    }
    Ok(if spec.keeps() {
        Expect::Exact(Arc::from(all))
    } else {
        Expect::Any(spec.size)
    })
}
