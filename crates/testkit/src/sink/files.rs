//! Sinks that can be read back.

use super::collect::{Collector, WIPED};
use super::kind::SinkKind;
use crate::loopdev::LoopDevice;
use crate::spec::Spec;
use crate::wire;
use rustix::fs::{MemfdFlags, Mode, OFlags};
use std::io;
use std::os::fd::OwnedFd;

/// How much of a device is filled beforehand.
const WIPED_SIZE: usize = 2 << 20;

/// The content of an appending sink before the first write.
const BEFORE: &[u8] = b"what was there before";

pub(super) fn make(kind: SinkKind, spec: &Spec) -> io::Result<(OwnedFd, Option<u64>, Collector)> {
    let (fd, start, collector) = open(kind, spec)?;
    let collector = match collector {
        // Not checked: reading the file back takes longer than writing it.
        Collector::File(..) if !spec.keeps() => Collector::Nothing,
        collector => collector,
    };
    Ok((fd, start, collector))
}

fn open(kind: SinkKind, spec: &Spec) -> io::Result<(OwnedFd, Option<u64>, Collector)> {
    match kind {
        SinkKind::Memfd => {
            let fd = rustix::fs::memfd_create("sink", MemfdFlags::CLOEXEC)?;
            let back = fd.try_clone()?;
            Ok((fd, Some(0), Collector::file(back, &[])))
        }
        SinkKind::Block => {
            let device = LoopDevice::take()?;
            let fd = device.open(OFlags::WRONLY)?;
            let back = device.open(OFlags::RDONLY)?;
            if spec.keeps() {
                // Bytes of an earlier test must not pass for those of this one.
                rustix::io::pwrite(&fd, &vec![WIPED; WIPED_SIZE], 0)?;
            }
            let keep = spec.keeps().then_some(back);
            Ok((fd, Some(0), Collector::device(keep, device)))
        }
        _ => {
            let dir = match kind {
                SinkKind::Tmpfs => wire::TMPFS.into(),
                _ => wire::temp_dir(),
            };
            let (back, path) = wire::named_file(&dir)?;
            let mut before: &'static [u8] = &[];
            let flags = match kind {
                SinkKind::Direct => OFlags::DIRECT,
                SinkKind::Append => {
                    before = BEFORE;
                    rustix::io::pwrite(&back, before, 0)?;
                    OFlags::APPEND
                }
                _ => OFlags::empty(),
            };
            let flags = flags | OFlags::WRONLY | OFlags::CLOEXEC;
            let fd = rustix::fs::open(&*path, flags, Mode::empty())?;
            Ok((fd, Some(before.len() as u64), Collector::file(back, before)))
        }
    }
}
