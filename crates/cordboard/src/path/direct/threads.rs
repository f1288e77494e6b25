//! Executes blocks by threads, with `pread(2)` and `pwrite(2)`, if `io_uring(7)`
//! is unavailable.

use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::block_engine::{Block, BlockEngine, Outcome};
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::sys::{Identity, Thread, WakeFd, identity, poll_for};
use crate::threads;

/// The interval at which completions are polled for without the event.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

struct Files {
    source: OwnedFd,
    /// `None` once it is taken ([`BlockEngine::take_sink`]).
    sink: Option<OwnedFd>,
    /// Identities of both; `None`: unknown.
    ids: [Option<Identity>; 2],
    /// Readable when there are completions.
    event: WakeFd,
}

impl Files {
    /// Returns the file, if the descriptor still refers to it: the host program
    /// may have closed it before a thread starts the block (`close_range(2)`),
    /// and reused the number.
    fn own(&self, side: Side) -> Result<&OwnedFd, Errno> {
        let (fd, id) = match side {
            Side::Source => (&self.source, self.ids[0]),
            Side::Sink => (self.sink.as_ref().ok_or(Errno::EBADF)?, self.ids[1]),
        };
        match id.is_none() || identity(fd) == id {
            true => Ok(fd),
            false => Err(Errno::EBADF),
        }
    }
}

/// State shared by a transfer and its threads.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Block>,
    completed: Vec<(usize, Outcome)>,
    /// Blocks that a thread is executing.
    busy: usize,
    /// `None` once the transfer is gone. A thread keeps them while it executes a
    /// block and releases them before it reports completion, so that they are
    /// closed by then.
    files: Option<Arc<Files>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn complete(&self, slot: usize, outcome: Outcome) {
        let mut state = self.state();
        state.completed.push((slot, outcome));
        if outcome.is_final() {
            state.busy -= 1;
        }
        if let Some(files) = &state.files {
            files.event.signal();
        }
    }

    /// Executes the oldest queued block, if there is one.
    fn one(&self) {
        let mut state = self.state();
        let (Some(files), Some(mut block)) = (state.files.clone(), state.queue.pop_front()) else {
            return;
        };
        state.busy += 1;
        drop(state);
        let outcome = self.execute(&files, &mut block);
        let slot = block.slot;
        // Freed before completion is reported, for the next block.
        drop((block, files));
        self.complete(slot, outcome);
    }

    fn execute(&self, files: &Files, block: &mut Block) -> Outcome {
        let length = block.memory.len();
        let read = files.own(Side::Source).and_then(|source| {
            // Signals are blocked here: EINTR comes from a file server, and is
            // not retried.
            Ok(rustix::io::pread(
                source,
                &mut block.memory[..],
                block.from,
            )?)
        });
        let outcome = Outcome::of_read(read, length);
        if outcome != Outcome::Read {
            return outcome;
        }
        self.complete(block.slot, outcome);
        let written = self
            .sink(files)
            .and_then(|sink| Ok(rustix::io::pwrite(sink, &block.memory, block.to)?));
        Outcome::of_write(written, length)
    }

    /// Returns the sink, unless the transfer is gone: the host may then have opened the same
    /// file again under the number.
    fn sink<'a>(&self, files: &'a Files) -> Result<&'a OwnedFd, Errno> {
        match self.state().files {
            Some(_) => files.own(Side::Sink),
            None => Err(Errno::EBADF),
        }
    }
}

pub(super) struct ThreadEngine {
    shared: Arc<Shared>,
    files: Arc<Files>,
    /// Blocks submitted since the last reap.
    submitted: usize,
    /// This thread's descriptor table is shared with no other thread.
    private_descriptors: bool,
}

impl ThreadEngine {
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`: no descriptor for completions.
    pub(super) fn new(files: [OwnedFd; 2]) -> Result<ThreadEngine, Errno> {
        let [source, sink] = files;
        let files = Arc::new(Files {
            ids: [&source, &sink].map(identity),
            source,
            sink: Some(sink),
            // A late thread still signals it.
            event: WakeFd::distinct()?,
        });
        let shared = Shared::default();
        shared.state().files = Some(Arc::clone(&files));
        Ok(ThreadEngine {
            shared: Arc::new(shared),
            files,
            submitted: 0,
            // Only threads that share the main thread's table start helpers,
            // which then share it too. If the main thread has exited, its table
            // is unknown, and helpers are used.
            private_descriptors: Thread::first().shares_descriptors() == Some(false),
        })
    }

    /// Starts a thread for each new block; runs it on this thread if no other is
    /// available, or none that shares the descriptors.
    fn start(&mut self) {
        for _ in 0..std::mem::take(&mut self.submitted) {
            if self.private_descriptors {
                self.shared.one();
                continue;
            }
            let shared = Arc::clone(&self.shared);
            threads::call(move || shared.one());
        }
    }

    /// Whether blocks are in flight and no completion is queued.
    fn must_wait(&self) -> bool {
        let state = self.shared.state();
        state.completed.is_empty() && state.busy + state.queue.len() > 0
    }

    /// Waits for the event, with a timeout. Sleeps briefly if `poll(2)` fails (a
    /// seccomp filter, `RLIMIT_NOFILE`, memory), or the event cannot be cleared: this
    /// must not fail while blocks are in flight.
    ///
    /// # Errors
    ///
    /// `EINTR`.
    fn wait(&self) -> Result<(), Errno> {
        use rustix::event::{PollFd, PollFlags, Timespec};
        use rustix::thread::{NanosleepRelativeResult, nanosleep};
        const MOMENT: Timespec = Timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        };
        let polled = self.fd().map(|fd| {
            let mut event = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
            poll_for(&mut event, Timespec::try_from(POLL_INTERVAL).ok().as_ref())
        });
        match polled {
            Some(Ok(_)) => Ok(()),
            Some(Err(rustix::io::Errno::INTR)) => Err(Errno::EINTR),
            Some(Err(_)) | None => match nanosleep(&MOMENT) {
                NanosleepRelativeResult::Interrupted(_) => Err(Errno::EINTR),
                _ => Ok(()),
            },
        }
    }
}

impl BlockEngine for ThreadEngine {
    fn submit(&mut self, block: Block) -> Result<(), ()> {
        self.shared.state().queue.push_back(block);
        self.submitted += 1;
        Ok(())
    }

    fn reap(&mut self, wait: bool, completed: &mut Vec<(usize, Outcome)>) -> Result<(), Errno> {
        self.start();
        loop {
            if wait && self.must_wait() {
                self.wait()?;
            }
            let _ = self.files.event.clear();
            completed.append(&mut self.shared.state().completed);
            if !(wait && completed.is_empty() && self.must_wait()) {
                return Ok(());
            }
        }
    }

    fn drop_without_close(self: Box<Self>) -> bool {
        // The last owner would close the descriptors.
        std::mem::forget(Arc::clone(&self.files));
        true
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.files.event.waitable()
    }

    /// A helper inherits the seccomp filter of the thread that started it,
    /// perhaps for another transfer. If that filter refuses `write(2)`, or the
    /// check that the event descriptor is still open, the helper does not signal.
    fn poll_interval(&self) -> Option<Duration> {
        Some(POLL_INTERVAL)
    }

    fn cancel(&mut self) {
        let mut state = self.shared.state();
        let queued = std::mem::take(&mut state.queue);
        state
            .completed
            .extend(queued.iter().map(|block| (block.slot, Outcome::Cancelled)));
    }

    /// A thread releases its files before it reports completion, so none has them now.
    fn take_sink(&mut self) -> Option<OwnedFd> {
        self.shared.state().files = None;
        Arc::get_mut(&mut self.files)?.sink.take()
    }
}

impl Drop for ThreadEngine {
    /// A thread that executes a block keeps the block's memory and the files
    /// until it is done.
    fn drop(&mut self) {
        self.cancel();
        self.shared.state().files = None;
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;
    use crate::sys::{Arena, at};
    use testkit::child;

    /// The host program has closed both files before a thread starts the block,
    /// and reused their numbers: its files are neither read nor written, and its
    /// counter is not signalled.
    #[test]
    fn a_block_that_comes_late_touches_no_file_of_the_hosts() {
        let name = "a_block_that_comes_late_touches_no_file_of_the_hosts";
        if testkit::needs::missing(name, &[testkit::needs::Need::Eventfd]) {
            return;
        }
        assert!(child::in_a_child(|| {
            let file = || tempfile::tempfile().unwrap();
            let (source, sink) = (file(), file());
            let host = [file(), file()];
            for (from, byte) in [(&source, b'x'), (&host[0], b'h')] {
                rustix::io::pwrite(from, &[byte; 4096], 0).unwrap();
            }
            let mut ring = ThreadEngine::new([source.into(), sink.into()]).unwrap();
            let memory = Arena::with_capacity(4096).unwrap().take(4096).unwrap();
            let block = Block {
                slot: 0,
                memory,
                from: 0,
                to: 0,
            };
            ring.submit(block).unwrap();
            child::replace(ring.files.source.as_fd(), host[0].as_fd());
            child::replace(ring.files.sink.as_ref().unwrap().as_fd(), host[1].as_fd());
            let counter = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
            child::replace(ring.fd().unwrap(), counter.as_fd());
            // Executed on this thread, without the event.
            ring.private_descriptors = true;
            let mut completed = Vec::new();
            ring.reap(false, &mut completed).unwrap();
            let length = rustix::fs::fstat(&host[1]).unwrap().st_size;
            let rung = rustix::io::read(&counter, &mut [0; 8]) != Err(rustix::io::Errno::AGAIN);
            let outcome = (0, Outcome::ReadFailed(Errno::EBADF));
            std::mem::forget(ring);
            assert_eq!((length, rung, &completed[..]), (0, false, &[outcome][..]));
            true
        }));
    }

    /// The host has closed both files, and has opened them again under the same numbers: no
    /// block of the transfer that has ended is written, and neither number is closed.
    #[test]
    fn a_block_of_a_transfer_that_is_gone_is_not_written() {
        let (source, sink) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        rustix::io::pwrite(&source, &[b'x'; 4096], 0).unwrap();
        let same = [&source, &sink].map(|file| file.try_clone().unwrap());
        let mut arena = Arena::with_capacity(1 << 20).unwrap();
        let mut block = |slot: usize| Block {
            slot,
            memory: arena.take(4096).unwrap(),
            from: 0,
            to: 0,
        };
        let mut ring = ThreadEngine::new([source.into(), sink.into()]).unwrap();
        ring.submit(block(0)).unwrap();
        let (shared, files) = (Arc::clone(&ring.shared), Arc::clone(&ring.files));
        assert!(Box::new(ring).drop_without_close());
        // A thread comes late, and another one has begun before.
        shared.one();
        let outcome = shared.execute(&files, &mut block(1));
        assert_eq!(outcome, Outcome::WriteFailed(Errno::EBADF));
        let ids = files.ids;
        let number = files.source.as_raw_fd();
        drop(files);
        assert_eq!(identity(at(number).unwrap()), ids[0]);
        assert_eq!(rustix::fs::fstat(&same[1]).unwrap().st_size, 0);
        assert_eq!(same.each_ref().map(identity), ids);
    }

    /// A filter that the host installs later refuses to read the event.
    #[test]
    fn an_event_that_cannot_be_cleared_is_waited_for_no_more() {
        testkit::refuse::apart(|| {
            let file = || tempfile::tempfile().unwrap().into();
            let mut ring = ThreadEngine::new([file(), file()]).unwrap();
            let mut completed = Vec::new();
            ring.reap(false, &mut completed).unwrap();
            assert!(ring.fd().is_some());
            testkit::refuse::refuse(&[libc::SYS_read, libc::SYS_readv], libc::EPERM);
            ring.reap(false, &mut completed).unwrap();
            assert!(ring.fd().is_none() && ring.poll_interval().is_some());
        });
    }
}
