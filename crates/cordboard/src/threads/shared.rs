//! The pool of the process, shared by all transfers, for calls that may block
//! in the kernel while the transfer itself must not.

use std::collections::VecDeque;
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
    let own = address(&call);
    settle(pool.submit(call), own)
}

/// Returns the address of the call, which identifies it if it captures
/// anything.
fn address(call: &Call) -> *const () {
    std::ptr::from_ref(&**call).cast()
}

/// Makes the calls for which no thread is available, except the caller's own,
/// which it returns. If no thread could be started for several callers, the
/// last caller gets the calls of all.
fn settle(refused: VecDeque<Call>, own: *const ()) -> Result<(), Call> {
    let mut mine = None;
    for call in refused {
        match address(&call) == own {
            true => mine = Some(call),
            false => call(),
        }
    }
    mine.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::super::queue::{Pushed, Queue};
    use super::*;

    /// Two callers request a thread each, and none is available: the last one
    /// gets its own call back, and makes the other's.
    #[test]
    fn each_caller_gets_its_own_call_back() {
        for second_is_last in [false, true] {
            let queue: Queue<Call> = Queue::new(2);
            let (told, heard) = std::sync::mpsc::channel();
            let call = |n: usize| -> Call {
                let told = told.clone();
                Box::new(move || told.send(n).unwrap())
            };
            let calls = [call(0), call(1)];
            let owns = [&calls[0], &calls[1]].map(address);
            for call in calls {
                assert!(
                    queue
                        .push(call)
                        .is_ok_and(|pushed| pushed == Pushed::StartOne)
                );
            }
            let (first, last) = (usize::from(!second_is_last), usize::from(second_is_last));
            assert!(settle(queue.not_started(), owns[first]).is_ok());
            let back = settle(queue.not_started(), owns[last]).err();
            assert_eq!(heard.try_iter().collect::<Vec<_>>(), [first]);
            back.expect("its own")();
            assert_eq!(heard.try_iter().collect::<Vec<_>>(), [last]);
        }
    }
}
