//! Devices and the kernel's own files.

use super::fed::{Ask, Rest, Source};
use super::files;
use super::kind::SourceKind;
use crate::expect::Expect;
use crate::loopdev::{self, LoopDevice};
use crate::spec::Spec;
use rustix::fs::{Mode, OFlags};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;

pub(super) fn make(kind: SourceKind, spec: &Spec) -> io::Result<Source> {
    let mut rest = Rest::default();
    let mut ask = Ask::Bytes(spec.size);
    let (fd, expect) = match kind {
        SourceKind::Block => {
            let size = spec.size.min(loopdev::SIZE);
            let device = LoopDevice::take()?;
            files::fill(device.open(OFlags::WRONLY)?, size)?;
            let fd = device.open(OFlags::RDONLY)?;
            rest.keep = Some(Box::new(device));
            ask = Ask::Bytes(size);
            (fd, Expect::Pattern(size))
        }
        SourceKind::Zero => (open("/dev/zero")?, Expect::Zeros(spec.size)),
        SourceKind::Urandom => (open("/dev/urandom")?, Expect::Any(spec.size)),
        SourceKind::Procfs => kernel_file("/proc/kallsyms", spec.size)?,
        _ if spec.size <= 4096 => kernel_file("/sys/class/net/lo/uevent", spec.size)?,
        _ => kernel_file("/sys/kernel/btf/vmlinux", spec.size)
            .or_else(|_| kernel_file("/sys/class/net/lo/uevent", spec.size))?,
    };
    Ok(Source {
        fd,
        kind,
        ask,
        expect,
        messages: None,
        _rest: rest,
    })
}

fn open(path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens a file whose content is read beforehand.
fn kernel_file(path: &str, size: u64) -> io::Result<(OwnedFd, Expect)> {
    let fd = open(path)?;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?
        .take(size)
        .read_to_end(&mut bytes)?;
    Ok((fd, Expect::Exact(Arc::from(bytes))))
}
