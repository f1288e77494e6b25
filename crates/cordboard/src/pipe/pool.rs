//! Pipes and socket pairs to use again, the pipes within a budget.
//!
//! Making a pipe and growing it to 1 MiB costs as much as moving half a
//! megabyte, so a few are kept. What a user's pipes hold together is limited
//! (`fs.pipe-user-pages-soft`, 64 MiB by default): past it the kernel gives
//! every new pipe of that user one or two pages, in every program. So the
//! pipes of one process take at most half of that between them, and all that are
//! in use the same: a transfer that began early must not be faster than the
//! others. None has less than the kernel's default of 16 pages.

use std::convert::Infallible;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::left::Left;
use super::{Kept, LARGEST, OwnedPipe, SocketPair, default_capacity};
use crate::errno::Errno;
use crate::sys::{Known, Lock, PerProcess, Thread, number, page_size};

/// Idle pipes that are kept, and idle pairs.
const KEPT: usize = 8;

/// The pipes of one process. A child after `fork(2)` has a pool of its own: it
/// must not share a pipe with its parent, it never learns what the parent gives
/// back, and another thread may have held the lock.
pub(super) struct PipePool {
    idle: Shelf<OwnedPipe>,
    pairs: Shelf<SocketPair>,
    /// Bytes of capacity above the default, over all pipes in use and kept.
    granted: AtomicUsize,
    /// Pipes in use.
    in_use: AtomicUsize,
    /// Callers' pipes that are still large.
    pub(super) left: Left,
}

pub(super) fn pool() -> &'static PipePool {
    static POOL: PerProcess<PipePool> = PerProcess::new();
    let Ok(pool) = POOL.get(|parents| Ok::<_, Infallible>(PipePool::after(parents)));
    pool
}

impl PipePool {
    /// A new one, in a child with its parent's pipes closed.
    fn after(parents: Option<&'static PipePool>) -> PipePool {
        if let Some(parents) = parents {
            parents.idle.clear();
            parents.pairs.clear();
        }
        PipePool {
            idle: Shelf::default(),
            pairs: Shelf::default(),
            granted: AtomicUsize::new(0),
            in_use: AtomicUsize::new(0),
            left: Left::default(),
        }
    }
}

/// Idle ones, each with the thread that gave it back.
struct Shelf<T>(Lock<Vec<(T, Thread)>>);

impl<T> Default for Shelf<T> {
    fn default() -> Shelf<T> {
        Shelf(Lock::default())
    }
}

impl<T: Kept> Shelf<T> {
    /// The idle ones, if no other thread holds the lock: a lock inherited by
    /// fork may never be released, and a new pipe is cheap.
    fn lock(&self) -> Option<MutexGuard<'_, Vec<(T, Thread)>>> {
        self.0.try_lock()
    }

    /// One that is kept, best such a one, under the numbers that it had.
    fn take(&self, best: impl Fn(&T) -> bool) -> Option<T> {
        let mut idle = self.lock()?;
        loop {
            let best =
                (idle.iter().position(|(one, _)| best(one))).or_else(|| idle.len().checked_sub(1));
            let (one, thread) = idle.swap_remove(best?);
            if one.is_here() {
                return Some(one);
            }
            if !had_these_descriptors(thread) {
                // Another thread's, under numbers that mean something else here.
                idle.insert(0, (one, thread));
                return None;
            }
            // The host has closed what it did not open (`close_range(2)`).
            one.forget();
        }
    }

    fn put(&self, one: T) {
        match self.lock() {
            Some(mut idle) if idle.len() < KEPT => idle.push((one, Thread::this())),
            _ => one.close(),
        }
    }

    /// Closes all of them.
    fn clear(&self) {
        let all = self.lock().map(|mut idle| std::mem::take(&mut *idle));
        all.into_iter().flatten().for_each(|(one, _)| one.close());
    }
}

/// Whether that thread's descriptor table is, or was, the calling thread's. For
/// a thread that has ended this holds if the calling thread shares the
/// process's table.
fn had_these_descriptors(thread: Thread) -> bool {
    let same = thread.shares_descriptors();
    same.unwrap_or_else(|| Thread::first().shares_descriptors() == Some(true))
}

/// A pipe of this capacity, or of less where the budget or the kernel says so.
///
/// # Errors
///
/// `EMFILE`, `ENFILE`, `ENOMEM`: none is to be had; a path without a pipe is
/// then the way.
pub(crate) fn acquire(capacity: usize) -> Result<OwnedPipe, Errno> {
    let user = User::new();
    let wanted = capacity.clamp(page_size(), LARGEST.min(max_size()));
    let capacity = wanted.min(fair());
    let mut pipe = match pool().idle.take(|pipe| pipe.capacity() == capacity) {
        Some(pipe) => pipe,
        None => OwnedPipe::open()?,
    };
    (pipe.user, pipe.wanted, pipe.was_full) = (Some(user), wanted, false);
    pipe.resize(capacity);
    Ok(pipe)
}

pub(super) fn release(mut pipe: OwnedPipe) {
    if pipe.held() > 0 {
        return;
    }
    pipe.user = None;
    pool().idle.put(pipe);
}

/// An empty pair.
///
/// # Errors
///
/// As [`SocketPair::open`].
pub(crate) fn acquire_pair() -> Result<SocketPair, Errno> {
    match pool().pairs.take(|_| true) {
        Some(pair) => Ok(pair),
        None => SocketPair::open(),
    }
}

/// Gives it back. A pair that is not empty is closed, never used again.
pub(crate) fn release_pair(pair: SocketPair) {
    match pair.held() {
        0 => pool().pairs.put(pair),
        _ => pair.close(),
    }
}

/// What each pipe may have, if all in use are to have the same; a power of two,
/// as `fcntl(2)` makes it. Of the budget each takes what it has above the default.
pub(super) fn fair() -> usize {
    let most = LARGEST.min(max_size()).max(default_capacity());
    let above = budget() / pool().in_use.load(Ordering::Relaxed).max(1);
    1 << default_capacity()
        .saturating_add(above)
        .clamp(default_capacity(), most)
        .ilog2()
}

/// One pipe in use.
pub(super) struct User(&'static PipePool);

impl User {
    pub(super) fn new() -> User {
        let pool = pool();
        pool.in_use.fetch_add(1, Ordering::Relaxed);
        User(pool)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.0.in_use.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What one pipe takes of the budget: its capacity above the default. It goes
/// back to where it was taken from.
pub(super) struct Share {
    bytes: usize,
    pool: &'static PipePool,
}

impl Share {
    pub(super) fn none() -> Share {
        Share {
            bytes: 0,
            pool: pool(),
        }
    }

    /// Takes what this capacity needs, or gives back what it does not. `false`
    /// if the budget does not allow it.
    pub(super) fn set(&mut self, capacity: usize) -> bool {
        let set = self.try_set(capacity);
        if !set {
            self.pool.left.make_room(Instant::now());
        }
        set || self.try_set(capacity)
    }

    fn try_set(&mut self, capacity: usize) -> bool {
        let above = capacity.saturating_sub(default_capacity());
        let update = |granted: usize| {
            let after = granted.saturating_sub(self.bytes).saturating_add(above);
            (above <= self.bytes || after <= budget()).then_some(after)
        };
        let granted = &self.pool.granted;
        let set = granted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
        if set.is_ok() {
            self.bytes = above;
        }
        set.is_ok()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Half of what a user's pipes may hold together; the limit binds the
/// unprivileged only, the moderation everyone.
fn budget() -> usize {
    static BUDGET: Known = Known::not_yet();
    BUDGET.get(|| {
        let pages = number("/proc/sys/fs/pipe-user-pages-soft").unwrap_or(16384);
        // 0 means no limit.
        if pages == 0 {
            256 << 20
        } else {
            pages.saturating_mul(page_size() / 2)
        }
    })
}

fn max_size() -> usize {
    static MAX: Known = Known::not_yet();
    MAX.get(|| {
        let told = number("/proc/sys/fs/pipe-max-size").unwrap_or(LARGEST);
        // No pipe has less, whatever stands there (`round_pipe_size`, fs/pipe.c).
        told.max(page_size())
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};
    use std::sync::Mutex;

    use super::*;

    /// The budget is one for the whole process.
    static ALONE: Mutex<()> = Mutex::new(());

    fn alone() -> MutexGuard<'static, ()> {
        ALONE
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    #[test]
    fn a_pipe_that_holds_bytes_is_never_used_again() {
        let _alone = alone();
        let mut pipe = acquire(LARGEST).unwrap();
        rustix::io::write(pipe.writer(), b"left over").unwrap();
        pipe.filled(9);
        let inode = |pipe: &OwnedPipe| rustix::fs::fstat(pipe.reader()).unwrap().st_ino;
        // Held open by this copy, so that no new pipe can have its number.
        let copy = pipe.reader().try_clone_to_owned().unwrap();
        let number = inode(&pipe);
        pipe.release();
        let others: Vec<_> = (0..KEPT + 1).map(|_| acquire(LARGEST).unwrap()).collect();
        assert!(others.iter().all(|other| inode(other) != number));
        drop(copy);
    }

    /// The same numbers are something else's to a thread with descriptors of
    /// its own.
    #[test]
    fn a_pipe_of_another_table_is_not_taken() {
        use testkit::child;
        let _alone = alone();
        assert!(child::in_a_child(|| {
            let pipe = acquire(LARGEST).unwrap();
            let number = pipe.reader().try_clone_to_owned().unwrap();
            let before = (pipe.id, rustix::fs::fstat(&number).unwrap().st_ino);
            pipe.release();
            let theirs = crate::sys::on_another(|| {
                child::own_descriptors();
                let null = std::fs::File::open("/dev/null").unwrap();
                for (pipe, _) in pool().idle.0.lock().unwrap().iter() {
                    child::replace(pipe.reader(), null.as_fd());
                }
                let pipe = acquire(LARGEST).unwrap();
                let fine = pipe.is_here();
                // Only here: its numbers are free elsewhere.
                drop(pipe);
                fine
            });
            let again = acquire(LARGEST).unwrap();
            theirs == Some(true)
                && before.0.is_some_and(|id| id.1 == before.1)
                && again.id == before.0
        }));
    }

    #[test]
    fn a_pair_is_used_again_if_it_is_empty_and_its_own() {
        use testkit::child;
        if testkit::needs::missing("a_pair_is_used_again", &[testkit::needs::Need::Splice]) {
            return;
        }
        let _alone = alone();
        assert!(child::in_a_child(|| {
            let number = |pair: &SocketPair| rustix::fs::fstat(pair.reader()).unwrap().st_ino;
            let (source, feed) = rustix::pipe::pipe().unwrap();
            rustix::io::write(&feed, b"left over").unwrap();
            let mut pair = acquire_pair().unwrap();
            let first = number(&pair);
            pair.fill(source.as_fd(), 4).unwrap();
            release_pair(pair);
            let pair = acquire_pair().unwrap();
            let second = number(&pair);
            let reader = pair.reader().as_raw_fd();
            release_pair(pair);
            let pair = acquire_pair().unwrap();
            let kept = number(&pair) == second;
            release_pair(pair);
            // The host has a file of its own under that number.
            let null = std::fs::File::open("/dev/null").unwrap();
            child::copy_to(null.as_raw_fd(), reader, true);
            let pair = acquire_pair().unwrap();
            let third = number(&pair);
            let fine = pair.is_here() && pair.reader().as_raw_fd() != reader;
            let theirs = child::inode(reader) == child::inode(null.as_raw_fd());
            first != second && kept && third != second && fine && theirs
        }));
    }

    /// Case 51: a thousand pipes do not eat up the user's share.
    #[test]
    fn the_budget_bounds_what_many_pipes_take() {
        let _alone = alone();
        let pipes: Vec<_> = (0..200).map_while(|_| acquire(LARGEST).ok()).collect();
        let above: usize = pipes
            .iter()
            .map(|p| p.capacity().saturating_sub(default_capacity()))
            .sum();
        assert!(above <= budget(), "{above} of {}", budget());
        assert!(pipes.len() == 200);
    }

    /// The default is no part of the budget. In a child, whose pool no other test has
    /// pipes of.
    #[test]
    fn all_in_use_have_the_same_and_use_up_the_budget() {
        assert!(testkit::child::in_a_child(|| {
            for (each, fair) in [
                (2 * default_capacity(), 2 * default_capacity()),
                (3 * default_capacity(), 2 * default_capacity()),
            ] {
                let others: Vec<User> = (0..budget() / (each - default_capacity()))
                    .map(|_| User::new())
                    .collect();
                assert_eq!(super::fair(), fair, "{}", others.len());
                assert!(others.len() * (fair - default_capacity()) <= budget());
            }
            true
        }));
    }

    #[test]
    fn a_private_pipe_makes_room_for_others_and_grows_again() {
        let _alone = alone();
        let mut pipe = acquire(LARGEST).unwrap();
        assert_eq!(pipe.capacity(), LARGEST);
        let others: Vec<User> = (0..budget() / default_capacity())
            .map(|_| User::new())
            .collect();
        pipe.fit();
        assert_eq!(pipe.capacity(), default_capacity());
        drop(others);
        pipe.fit();
        assert_eq!(
            pipe.capacity(),
            default_capacity(),
            "nothing tells that more is of use"
        );
        pipe.filled(default_capacity());
        pipe.drained(default_capacity());
        pipe.fit();
        assert_eq!(pipe.capacity(), LARGEST);
    }

    #[test]
    fn somebody_s_pipe_grows_by_what_goes_through_it() {
        use super::super::{Lent, capacity};
        use crate::endpoint::{Endpoint, Side};
        let _alone = alone();
        let (take, put) = rustix::pipe::pipe().unwrap();
        let (take, put) = (take.as_fd(), put.as_fd());
        let new = |side, fd| Lent::new(side, &Endpoint::probe(fd).unwrap());
        let mut lent = new(Side::Source, take).unwrap();
        lent.moved(16, take, put);
        assert_eq!(capacity(take), default_capacity(), "a message now and then");
        lent.moved(default_capacity(), take, put);
        assert_eq!(capacity(take), 2 * default_capacity());
        lent.grow(take, put);
        assert_eq!(capacity(take), LARGEST);
        assert!(new(Side::Sink, put).is_none(), "large already");
        let others: Vec<User> = (0..budget() / default_capacity())
            .map(|_| User::new())
            .collect();
        // Full, it cannot shrink; and does as soon as it is not.
        rustix::io::write(put, &vec![0; LARGEST]).unwrap();
        lent.moved(1, take, put);
        assert_eq!(capacity(take), LARGEST);
        rustix::io::read(take, &mut vec![0; LARGEST]).unwrap();
        lent.moved(1, take, put);
        assert_eq!(capacity(take), default_capacity());
        drop(others);
        lent.grow(take, put);
        lent.give_back(take, put);
        assert_eq!(capacity(take), default_capacity());
        let mut lent = new(Side::Source, take).unwrap();
        lent.grow(take, put);
        rustix::pipe::fcntl_setpipe_size(put, 2 * default_capacity()).unwrap();
        lent.grow(take, put);
        lent.give_back(take, put);
        assert_eq!(
            capacity(take),
            2 * default_capacity(),
            "as its owner has it"
        );
    }
}
