//! Messages to the thread that waits for everything, which is woken when the
//! first comes while it sleeps. `crates/model` tries the orders.

use super::sync::{Bell, Errno, Mutex, MutexGuard};

/// A queue with one reader.
pub(crate) struct Inbox<T> {
    queue: Mutex<Queue<T>>,
    bell: Bell,
}

struct Queue<T> {
    items: Vec<T>,
    /// The reader found nothing and goes to sleep: the next message rings.
    asleep: bool,
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
                closed: false,
            }),
            bell: Bell::distinct()?,
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
        if queue.closed || !self.bell.is_there() {
            return Err(item);
        }
        queue.items.push(item);
        let ring = std::mem::take(&mut queue.asleep);
        drop(queue);
        if ring && !self.bell.strike() {
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

    /// The last that has come; no more will.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut queue = self.lock();
        queue.closed = true;
        std::mem::take(&mut queue.items)
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }
}
