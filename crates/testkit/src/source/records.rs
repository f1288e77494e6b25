//! Sources that are read in whole records.

use super::fed::{Ask, Rest, Source};
use super::kind::SourceKind;
use super::signals::Signals;
use crate::expect::{Expect, INOTIFY_RECORD, SIGNAL_RECORD};
use crate::spec::Spec;
use crate::wire;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::inotify::{CreateFlags, WatchFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

pub(super) fn make(kind: SourceKind, spec: &Spec) -> io::Result<Source> {
    let size = spec.size;
    let mut rest = Rest::default();
    let (fd, expect) = match kind {
        SourceKind::Eventfd => {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE;
            let count = u32::try_from(size / 8).map_err(io::Error::other)?;
            let ones = 1u64.to_ne_bytes().repeat(count as usize);
            (eventfd(count, flags)?, Expect::Exact(Arc::from(ones)))
        }
        SourceKind::Timerfd => {
            let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
            let tick = Timespec {
                tv_sec: 0,
                tv_nsec: 1000,
            };
            let spec = Itimerspec {
                it_interval: tick,
                it_value: tick,
            };
            timerfd_settime(&fd, TimerfdTimerFlags::empty(), &spec)?;
            (fd, Expect::Any(size))
        }
        SourceKind::Inotify => inotify(size)?,
        _ => {
            let signals = Signals::queue(size / SIGNAL_RECORD)?;
            let fd = signals.descriptor()?;
            rest.keep = Some(Box::new(signals));
            (fd, Expect::Signals(size / SIGNAL_RECORD))
        }
    };
    Ok(Source {
        fd,
        kind,
        ask: Ask::Bytes(size),
        expect,
        messages: None,
        _rest: rest,
    })
}

/// Makes and removes a file repeatedly.
fn inotify(size: u64) -> io::Result<(OwnedFd, Expect)> {
    // In memory, where this is fast.
    let dir = match wire::no_tmpfs() {
        None => tempfile::tempdir_in(wire::TMPFS)?,
        Some(_) => tempfile::tempdir()?,
    };
    let fd = rustix::fs::inotify::init(CreateFlags::CLOEXEC)?;
    let watch =
        rustix::fs::inotify::add_watch(&fd, dir.path(), WatchFlags::CREATE | WatchFlags::DELETE)?;
    let path = dir.path().join("plug");
    let mut events = Vec::new();
    for index in 0..size / INOTIFY_RECORD {
        let made = index % 2 == 0;
        let mask = if made {
            std::fs::File::create(&path)?;
            libc::IN_CREATE
        } else {
            std::fs::remove_file(&path)?;
            libc::IN_DELETE
        };
        events.extend_from_slice(&watch.to_ne_bytes());
        events.extend_from_slice(&mask.to_ne_bytes());
        events.extend_from_slice(&0u32.to_ne_bytes());
        events.extend_from_slice(&16u32.to_ne_bytes());
        events.extend_from_slice(b"plug\0\0\0\0\0\0\0\0\0\0\0\0");
    }
    // The removal of the directory itself adds an event after all requested
    // ones.
    Ok((fd, Expect::Exact(Arc::from(events))))
}
