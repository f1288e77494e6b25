//! The queue of messages to a reactor thread. The first message that arrives while
//! the thread sleeps wakes it. `crates/model` tries the interleavings.

use std::sync::Arc;
use std::time::Duration;

use super::sync::{Condvar, Errno, Mutex, MutexGuard, WakeFd};

/// A queue with one reader.
pub(crate) struct Inbox<T> {
    queue: Mutex<Queue<T>>,
    /// Wakes a reader that also waits for descriptors.
    wake_fd: Arc<WakeFd>,
    /// Wakes a reader that waits for messages only.
    arrived: Condvar,
}

struct Queue<T> {
    items: Vec<T>,
    /// The reader found the queue empty and goes to sleep: the next message signals
    /// the wake descriptor.
    asleep: bool,
    /// The reader waits for messages only. Only the reader clears this, so each message
    /// notifies it until it runs: a lost notification delays it until the next one.
    waits: bool,
    /// A sender has found the wake descriptor closed: the reader checks its descriptors.
    recheck: bool,
    closed: bool,
}

impl<T> Inbox<T> {
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`: no descriptor is available.
    pub(crate) fn new() -> Result<Inbox<T>, Errno> {
        Ok(Inbox {
            queue: Mutex::new(Queue {
                items: Vec::new(),
                asleep: false,
                waits: false,
                recheck: false,
                closed: false,
            }),
            wake_fd: Arc::new(WakeFd::distinct()?),
            arrived: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns the message if the reader has closed the queue, or the wake descriptor is
    /// closed.
    pub(crate) fn push(&self, item: T) -> Result<(), T> {
        let mut queue = self.lock();
        if queue.closed {
            return Err(item);
        }
        if !self.wake_fd.is_still_open() {
            queue.recheck = true;
            if queue.waits {
                self.arrived.notify_one();
            }
            return Err(item);
        }
        queue.items.push(item);
        let signal = std::mem::take(&mut queue.asleep);
        let waits = queue.waits;
        drop(queue);
        if waits {
            self.arrived.notify_one();
        } else if signal && !self.wake_fd.signal_unchecked() {
            // The next sender finds the reader asleep, as before.
            self.lock().asleep = true;
        }
        Ok(())
    }

    /// Moves all messages into `items`, which is empty. If there are none the
    /// reader may sleep until the wake descriptor is signalled.
    pub(crate) fn take(&self, items: &mut Vec<T>) {
        let mut queue = self.lock();
        std::mem::swap(&mut queue.items, items);
        queue.asleep = items.is_empty();
    }

    /// Sleeps until a message arrives, for at most `most`. The wakeup does not
    /// depend on the wake descriptor, which may be closed by then. Returns true if a sender has
    /// found it closed. That sender may have another descriptor table.
    pub(crate) fn wait(&self, most: Option<Duration>) -> bool {
        let mut queue = self.lock();
        while queue.items.is_empty() && !queue.closed && !queue.recheck {
            (queue.asleep, queue.waits) = (false, true);
            let (timed_out, woken) = match most {
                None => (false, self.arrived.wait(queue).map_err(|e| e.into_inner())),
                Some(most) => match self.arrived.wait_timeout(queue, most) {
                    Ok((queue, end)) => (end.timed_out(), Ok(queue)),
                    Err(poisoned) => (false, Err(poisoned.into_inner().0)),
                },
            };
            queue = woken.unwrap_or_else(|queue| queue);
            if timed_out {
                break;
            }
        }
        queue.waits = false;
        std::mem::take(&mut queue.recheck)
    }

    /// Notifies the reader again if messages wait for it.
    pub(crate) fn nudge(&self) {
        let queue = self.lock();
        if queue.waits && !queue.items.is_empty() {
            drop(queue);
            self.arrived.notify_one();
        }
    }

    /// Closes the queue and returns the remaining messages.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut queue = self.lock();
        queue.closed = true;
        std::mem::take(&mut queue.items)
    }

    pub(crate) fn wake_fd(&self) -> &Arc<WakeFd> {
        &self.wake_fd
    }
}
