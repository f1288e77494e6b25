//! Messages to the thread that waits for everything, which is woken when the
//! first comes while it sleeps. `crates/model` tries the orders.

use std::sync::Arc;
use std::time::Duration;

use super::sync::{Condvar, Errno, EventFd, Mutex, MutexGuard};

/// A queue with one reader.
pub(crate) struct Inbox<T> {
    queue: Mutex<Queue<T>>,
    /// Rung for a reader that waits for descriptors as well.
    eventfd: Arc<EventFd>,
    /// Told to a reader that waits for messages only.
    arrived: Condvar,
}

struct Queue<T> {
    items: Vec<T>,
    /// The reader found nothing and goes to sleep: the next message rings.
    asleep: bool,
    /// The reader waits for messages only.
    waits: bool,
    closed: bool,
}

impl<T> Inbox<T> {
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`: no descriptor for the bell is available.
    pub(crate) fn new() -> Result<Inbox<T>, Errno> {
        Ok(Inbox {
            queue: Mutex::new(Queue {
                items: Vec::new(),
                asleep: false,
                waits: false,
                closed: false,
            }),
            eventfd: Arc::new(EventFd::distinct()?),
            arrived: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Gives the message back if the reader has closed it, or the bell is gone.
    pub(crate) fn push(&self, item: T) -> Result<(), T> {
        let mut queue = self.lock();
        if queue.closed || !self.eventfd.is_still_open() {
            return Err(item);
        }
        queue.items.push(item);
        let ring = std::mem::take(&mut queue.asleep);
        let waits = std::mem::take(&mut queue.waits);
        drop(queue);
        if waits {
            self.arrived.notify_one();
        } else if ring && !self.eventfd.signal_unchecked() {
            // The next sender finds the reader asleep, as before.
            self.lock().asleep = true;
        }
        Ok(())
    }

    /// All that has come, into `items`, which is empty. If that is nothing the
    /// reader may sleep until the bell rings.
    pub(crate) fn take(&self, items: &mut Vec<T>) {
        let mut queue = self.lock();
        std::mem::swap(&mut queue.items, items);
        queue.asleep = items.is_empty();
    }

    /// Sleeps until a message comes, which wakes the reader even where the bell
    /// is gone by then; for so long at most.
    pub(crate) fn wait(&self, most: Option<Duration>) {
        let mut queue = self.lock();
        while queue.items.is_empty() && !queue.closed {
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
    }

    /// The last that has come; no more will.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut queue = self.lock();
        queue.closed = true;
        std::mem::take(&mut queue.items)
    }

    pub(crate) fn eventfd(&self) -> &Arc<EventFd> {
        &self.eventfd
    }
}
