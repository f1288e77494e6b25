//! What moves the bytes: a transfer on the engine, or a thread that copies.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, bail};
use cordboard::{Request, Running, Size};
use rustix::pipe::SpliceFlags;

const BLOCK: usize = 128 << 10;
const SPLICE_BLOCK: usize = 1 << 20;
/// The stack size of a thread that copies.
const STACK: usize = 64 << 10;

/// What moves the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mover {
    Engine,
    ThreadsReadWrite,
    ThreadsSplice,
}

impl Mover {
    pub fn named(name: &str) -> Result<Mover> {
        Ok(match name {
            "engine" => Mover::Engine,
            "threads" => Mover::ThreadsReadWrite,
            "threads-splice" => Mover::ThreadsSplice,
            _ => bail!("unknown mover {name}"),
        })
    }
}

/// A running transfer.
pub enum Transfer {
    Engine(Running),
    Thread(JoinHandle<Result<u64>>, Arc<AtomicU64>),
}

/// A function that is called at the end of a transfer.
pub type AtEnd = Box<dyn FnOnce() + Send>;

impl Transfer {
    /// Starts a transfer, which owns the descriptors.
    pub fn start(
        mover: Mover,
        source: OwnedFd,
        sink: OwnedFd,
        sync: bool,
        at_end: Option<AtEnd>,
    ) -> Result<Transfer> {
        if mover == Mover::Engine {
            let request = Request {
                size: Size::Eof,
                sync,
                ..Request::default()
            };
            let running = cordboard::start(source.as_fd(), sink.as_fd(), request)?;
            if let Some(at_end) = at_end {
                running.on_end(move |_| at_end());
            }
            return Ok(Transfer::Engine(running));
        }
        let written = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&written);
        let work = move || {
            let sink = File::from(sink);
            match mover {
                Mover::ThreadsSplice => splice(&source, &sink, &count)?,
                _ => read_write(&source, &sink, &count)?,
            }
            if sync {
                sink.sync_all()?;
            }
            drop(sink);
            if let Some(at_end) = at_end {
                at_end();
            }
            Ok(count.load(Ordering::Relaxed))
        };
        let thread = std::thread::Builder::new().stack_size(STACK).spawn(work);
        Ok(Transfer::Thread(
            thread.context("cannot start a thread")?,
            written,
        ))
    }

    /// The number of bytes that the sink has accepted.
    pub fn written(&self) -> u64 {
        match self {
            Transfer::Engine(running) => running.status().written,
            Transfer::Thread(_, written) => written.load(Ordering::Relaxed),
        }
    }

    /// Waits for the end; the number of bytes written.
    pub fn wait(self) -> Result<u64> {
        match self {
            Transfer::Engine(running) => Ok(running.wait().into_result()?.written),
            Transfer::Thread(thread, _) => {
                thread.join().map_err(|_| anyhow!("the thread panicked"))?
            }
        }
    }
}

fn read_write(source: &OwnedFd, mut sink: &File, count: &AtomicU64) -> Result<()> {
    // Not zeroed: pages that are never written take no memory.
    let mut buffer = Vec::with_capacity(BLOCK);
    loop {
        buffer.clear();
        let n = rustix::io::read(source, rustix::buffer::spare_capacity(&mut buffer))?;
        if n == 0 {
            return Ok(());
        }
        sink.write_all(&buffer)?;
        count.fetch_add(n as u64, Ordering::Relaxed);
    }
}

fn splice(source: &OwnedFd, sink: &File, count: &AtomicU64) -> Result<()> {
    let none = SpliceFlags::empty();
    loop {
        match rustix::pipe::splice(source, None, sink, None, SPLICE_BLOCK, none)? {
            0 => return Ok(()),
            n => count.fetch_add(n as u64, Ordering::Relaxed),
        };
    }
}
