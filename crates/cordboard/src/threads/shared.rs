//! The pool of the process, shared by all transfers, for calls that may block
//! in the kernel while the transfer itself must not.

use std::convert::Infallible;
use std::sync::Arc;

use super::pool::{ThreadPool, Work};
use super::thread::NO_OWNER;
use crate::sys::PerProcess;

/// A call to make on another thread.
pub(crate) type Call = Box<dyn FnOnce() + Send>;

impl Work for Call {
    fn work(self) -> Option<Call> {
        self();
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
pub(crate) fn spawn(call: Call) -> Result<(), Call> {
    /// The sum of the default watermarks: 3 reads and 5 writes.
    const THREADS: usize = 8;
    static POOL: PerProcess<Arc<ThreadPool<Call>>> = PerProcess::new();
    let Ok(pool) = POOL.get(|_| Ok::<_, Infallible>(ThreadPool::new(NO_OWNER, THREADS)));
    let mut own = Own::of(&call);
    pool.submit(call, |call| own.settle(call));
    own.back.map_or(Ok(()), Err)
}

/// Returns the address of the call, which identifies it if it captures
/// anything.
fn address(call: &Call) -> *const () {
    std::ptr::from_ref(&**call).cast()
}

/// A caller's own call among those for which no thread is available.
struct Own {
    address: *const (),
    back: Option<Call>,
}

impl Own {
    fn of(call: &Call) -> Own {
        Own {
            address: address(call),
            back: None,
        }
    }

    /// Makes the call, unless it is the caller's own, which goes back to the caller. If
    /// no thread could be started for several callers, one of them may get the calls of
    /// others.
    fn settle(&mut self, call: Call) {
        match address(&call) == self.address {
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
            let queue: Queue<Call> = Queue::new(2);
            let (told, heard) = std::sync::mpsc::channel();
            let call = |n: usize| -> Call {
                let told = told.clone();
                Box::new(move || told.send(n).unwrap())
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
}
