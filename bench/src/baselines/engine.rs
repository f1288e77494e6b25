//! Not a baseline: a transfer on the library's engine, and each method of
//! waiting for its end.

use std::future::Future;
use std::os::fd::BorrowedFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use anyhow::{Context as _, Result, anyhow};
use cordboard::{Outcome, Request, Running, Size};
use rustix::event::{PollFd, PollFlags};

/// Starts a transfer.
pub fn start(source: BorrowedFd<'_>, sink: BorrowedFd<'_>, size: usize) -> Result<Running> {
    let request = Request {
        size: Size::Bytes(size as u64),
        ..Request::default()
    };
    Ok(cordboard::start(source, sink, request)?)
}

/// Starts a transfer and waits for it.
pub fn wait(source: BorrowedFd<'_>, sink: BorrowedFd<'_>, size: usize) -> Result<usize> {
    written(start(source, sink, size)?.wait())
}

/// Starts a transfer and polls its descriptor.
pub fn poll(source: BorrowedFd<'_>, sink: BorrowedFd<'_>, size: usize) -> Result<usize> {
    let running = start(source, sink, size)?;
    let fd = running
        .fd()
        .map_err(|errno| anyhow!("no eventfd: {errno:?}"))?;
    rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], None)?;
    written(running.try_wait().context("readable before the end")?)
}

/// Starts a transfer and awaits it, with a minimal executor.
pub fn block_on(source: BorrowedFd<'_>, sink: BorrowedFd<'_>, size: usize) -> Result<usize> {
    let mut running = pin!(start(source, sink, size)?);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match running.as_mut().poll(&mut context) {
            Poll::Ready(outcome) => return written(outcome),
            Poll::Pending => std::thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn written(outcome: Outcome) -> Result<usize> {
    Ok(usize::try_from(outcome.into_result()?.written)?)
}
