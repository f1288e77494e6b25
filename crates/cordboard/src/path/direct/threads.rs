//! Blocks carried out by threads, with `pread(2)` and `pwrite(2)`, where there
//! is no `io_uring(7)` to be had.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use super::ring::{Block, Fate, Ring};
use crate::errno::Errno;
use crate::sys::{Bell, Thread};
use crate::threads;

struct Files {
    source: OwnedFd,
    sink: OwnedFd,
    /// Readable when something has been told.
    bell: Bell,
}

/// What a transfer and the threads that work for it share.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Block>,
    told: Vec<(usize, Fate)>,
    /// Blocks that a thread is at.
    busy: usize,
    /// Gone with the transfer. A thread keeps them while it is at a block and
    /// not until it has told of it, so that they are closed by then.
    files: Option<Arc<Files>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn tell(&self, slot: usize, fate: Fate) {
        let mut state = self.state();
        state.told.push((slot, fate));
        if fate.is_final() {
            state.busy -= 1;
        }
        if let Some(files) = &state.files {
            files.bell.ring();
        }
    }

    /// Does the block that has waited longest, if there is one left.
    fn one(&self) {
        let mut state = self.state();
        let (Some(files), Some(mut block)) = (state.files.clone(), state.queue.pop_front()) else {
            return;
        };
        state.busy += 1;
        drop(state);
        let fate = self.carry(&files, &mut block);
        let slot = block.slot;
        // Free before it is told of, for the block that comes next.
        drop((block, files));
        self.tell(slot, fate);
    }

    fn carry(&self, files: &Files, block: &mut Block) -> Fate {
        let length = block.memory.len();
        let read = rustix::io::retry_on_intr(|| {
            rustix::io::pread(&files.source, &mut block.memory[..], block.from)
        });
        let fate = Fate::of_read(read.map_err(Errno::from), length);
        if fate != Fate::Read {
            return fate;
        }
        self.tell(block.slot, fate);
        let written =
            rustix::io::retry_on_intr(|| rustix::io::pwrite(&files.sink, &block.memory, block.to));
        Fate::of_write(written.map_err(Errno::from), length)
    }
}

pub(super) struct ByThreads {
    shared: Arc<Shared>,
    files: Arc<Files>,
    /// Taken on since the last reap.
    fresh: usize,
    /// This thread has descriptors of its own, which no other has.
    alone: bool,
}

impl ByThreads {
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`: no descriptor for completions.
    pub(super) fn new(files: [OwnedFd; 2]) -> Result<ByThreads, Errno> {
        let [source, sink] = files;
        let files = Arc::new(Files {
            source,
            sink,
            bell: Bell::new()?,
        });
        let shared = Shared::default();
        shared.state().files = Some(Arc::clone(&files));
        Ok(ByThreads {
            shared: Arc::new(shared),
            files,
            fresh: 0,
            // Only threads that have the first one's start others, which then
            // have them too. One that has ended has none: nobody helps then.
            alone: Thread::first().shares_descriptors() == Some(false),
        })
    }

    /// A thread for each block that was taken on; this one, where no other is
    /// to be had, or none that has the same descriptors.
    fn start(&mut self) {
        for _ in 0..std::mem::take(&mut self.fresh) {
            if self.alone {
                self.shared.one();
                continue;
            }
            let shared = Arc::clone(&self.shared);
            if let Err(call) = threads::spawn(Box::new(move || shared.one())) {
                call();
            }
        }
    }

    /// Waits for the bell, which one completion at least has rung or will ring.
    fn wait(&self) -> Result<(), Errno> {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut bell = [PollFd::new(&self.files.bell, PollFlags::IN)];
        poll(&mut bell, None)?;
        Ok(())
    }
}

impl Ring for ByThreads {
    fn submit(&mut self, block: Block) -> Result<(), ()> {
        self.shared.state().queue.push_back(block);
        self.fresh += 1;
        Ok(())
    }

    fn reap(&mut self, wait: bool, told: &mut Vec<(usize, Fate)>) -> Result<(), Errno> {
        self.start();
        let nothing = {
            let state = self.shared.state();
            let waiting = state.busy + state.queue.len();
            state.told.is_empty() && waiting > 0
        };
        if wait && nothing {
            self.wait()?;
        }
        self.files.bell.clear();
        told.append(&mut self.shared.state().told);
        Ok(())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.files.bell.as_fd()
    }

    fn cancel(&mut self) {
        let mut state = self.shared.state();
        let queued = std::mem::take(&mut state.queue);
        state
            .told
            .extend(queued.iter().map(|block| (block.slot, Fate::Dropped)));
    }
}

impl Drop for ByThreads {
    /// A thread that is at a block keeps the block's memory and the files until
    /// it is done.
    fn drop(&mut self) {
        self.cancel();
        self.shared.state().files = None;
    }
}
