//! The pool of the process, shared by all transfers, for calls that may block
//! in the kernel while the transfer itself must not.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::pool::{ThreadPool, Work};
use super::thread::NO_OWNER;
use crate::sys::{PerProcess, Thread};

/// A call to make on another thread.
pub(crate) type Call = Box<dyn FnOnce() + Send>;

/// A call with a number of its own. The address of a call does not identify it: another
/// may be made there once the call is done, and calls that capture nothing share it.
struct Numbered {
    number: u64,
    call: Call,
}

impl Numbered {
    fn new(call: Call) -> Numbered {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Numbered { number, call }
    }
}

impl Work for Numbered {
    fn work(self) -> Option<Numbered> {
        (self.call)();
        None
    }
}

/// Makes a call on a thread of the process's pool. Without one, the calling thread makes
/// it, and waits.
pub(crate) fn call(call: impl FnOnce() + Send + 'static) {
    if let Err(call) = spawn(Box::new(call)) {
        call();
    }
}

/// Makes a call on a thread of the process's pool, which belongs to no engine.
/// Returns the call if no thread is available.
///
/// The pool's threads have the first thread's descriptor table. In another table, the
/// call's descriptor numbers may refer to other files. If the first thread has exited,
/// its table is unknown, and the pool is used.
pub(crate) fn spawn(call: Call) -> Result<(), Call> {
    if Thread::first().shares_descriptors() == Some(false) {
        return Err(call);
    }
    /// The sum of the default watermarks: 3 reads and 5 writes.
    const THREADS: usize = 8;
    static POOL: PerProcess<Arc<ThreadPool<Numbered>>> = PerProcess::new();
    let Ok(pool) = POOL.get(|_| Ok::<_, Infallible>(ThreadPool::new(NO_OWNER, THREADS)));
    let call = Numbered::new(call);
    let mut own = Own::of(&call);
    pool.submit(call, |call| own.settle(call));
    own.back.map_or(Ok(()), Err)
}

/// A caller's own call among those for which no thread is available.
struct Own {
    number: u64,
    back: Option<Call>,
}

impl Own {
    fn of(call: &Numbered) -> Own {
        Own {
            number: call.number,
            back: None,
        }
    }

    /// Makes the call, unless it is the caller's own, which goes back to the caller. If
    /// no thread could be started for several callers, one of them may get the calls of
    /// others. Its own call then waits for those.
    fn settle(&mut self, Numbered { number, call }: Numbered) {
        match number == self.number {
            true => self.back = Some(call),
            false => call(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue::{Pushed, Queue};
    use super::*;

    /// Two callers request a thread each, and none is available: each call is made
    /// once, by one of them.
    #[test]
    fn each_call_without_a_thread_is_made_once() {
        for order in [[0, 1], [1, 0]] {
            let queue: Queue<Numbered> = Queue::new(2);
            let (told, heard) = std::sync::mpsc::channel();
            let call = |n: usize| {
                let told = told.clone();
                Numbered::new(Box::new(move || told.send(n).unwrap()))
            };
            let calls = [call(0), call(1)];
            let mut owns = [&calls[0], &calls[1]].map(Own::of);
            for call in calls {
                assert!(
                    queue
                        .push(call)
                        .is_ok_and(|pushed| pushed == Pushed::StartOne)
                );
            }
            let mut made = Vec::new();
            for n in order {
                queue.not_started();
                while let Some(call) = queue.take_untaken() {
                    owns[n].settle(call);
                }
                made.extend(heard.try_iter());
                if let Some(own) = owns[n].back.take() {
                    own();
                    assert_eq!(heard.try_iter().collect::<Vec<_>>(), [n], "its own");
                    made.push(n);
                }
            }
            made.sort_unstable();
            assert_eq!(made, [0, 1]);
        }
    }

    #[test]
    fn calls_that_capture_nothing_are_told_apart() {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let call = || {
            Numbered::new(Box::new(|| {
                MADE.fetch_add(1, Ordering::Relaxed);
            }))
        };
        let mut own = Own::of(&call());
        own.settle(call());
        assert!(own.back.is_none());
        assert_eq!(MADE.load(Ordering::Relaxed), 1);
    }
}
