//! The pool, and the budget that its pipes share.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Mutex, MutexGuard};

use super::super::budget::limit;
use super::super::capacity::default_capacity;
use super::super::shelf::KEPT;
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

/// In a thread with descriptors of its own the same numbers are other files.
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
            for (pipe, _) in pool().idle.lock().unwrap().iter() {
                child::replace(pipe.reader(), null.as_fd());
            }
            let pipe = acquire(LARGEST).unwrap();
            let fine = pipe.is_here();
            // Only here: its numbers are free elsewhere.
            drop(pipe);
            fine
        });
        let again = acquire(LARGEST).unwrap();
        theirs == Some(true) && before.0.is_some_and(|id| id.1 == before.1) && again.id == before.0
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

/// Case 51: a thousand pipes do not use up the user's share.
#[test]
fn the_budget_bounds_what_many_pipes_take() {
    let _alone = alone();
    let pipes: Vec<_> = (0..200).map_while(|_| acquire(LARGEST).ok()).collect();
    let above: usize = pipes
        .iter()
        .map(|p| p.capacity().saturating_sub(default_capacity()))
        .sum();
    assert!(above <= limit(), "{above} of {}", limit());
    assert!(pipes.len() == 200);
}

/// The default is no part of the budget. In a child, whose pool no other test has
/// pipes of.
#[test]
fn all_in_use_have_the_same_and_use_up_the_limit() {
    assert!(testkit::child::in_a_child(|| {
        for (each, fair) in [
            (2 * default_capacity(), 2 * default_capacity()),
            (3 * default_capacity(), 2 * default_capacity()),
        ] {
            let others: Vec<User> = (0..limit() / (each - default_capacity()))
                .map(|_| User::new())
                .collect();
            assert_eq!(super::fair(), fair, "{}", others.len());
            assert!(others.len() * (fair - default_capacity()) <= limit());
        }
        true
    }));
}

#[test]
fn a_private_pipe_makes_room_for_others_and_grows_again() {
    let _alone = alone();
    let mut pipe = acquire(LARGEST).unwrap();
    assert_eq!(pipe.capacity(), LARGEST);
    let others: Vec<User> = (0..limit() / default_capacity())
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
fn the_caller_s_pipe_grows_by_what_goes_through_it() {
    use super::super::caller_pipe::CallerPipe;
    use super::super::capacity::capacity;
    use crate::endpoint::{Endpoint, Side};
    let _alone = alone();
    let (take, put) = rustix::pipe::pipe().unwrap();
    let (take, put) = (take.as_fd(), put.as_fd());
    let new = |side, fd| CallerPipe::new(side, &Endpoint::probe(fd).unwrap());
    let mut pipe = new(Side::Source, take).unwrap();
    pipe.moved(16, take, put);
    assert_eq!(capacity(take), default_capacity(), "a message now and then");
    pipe.moved(default_capacity(), take, put);
    assert_eq!(capacity(take), 2 * default_capacity());
    pipe.grow(take, put);
    assert_eq!(capacity(take), LARGEST);
    assert!(new(Side::Sink, put).is_none(), "large already");
    let others: Vec<User> = (0..limit() / default_capacity())
        .map(|_| User::new())
        .collect();
    // Full, it cannot shrink; and does as soon as it is not.
    rustix::io::write(put, &vec![0; LARGEST]).unwrap();
    pipe.moved(1, take, put);
    assert_eq!(capacity(take), LARGEST);
    rustix::io::read(take, &mut vec![0; LARGEST]).unwrap();
    pipe.moved(1, take, put);
    assert_eq!(capacity(take), default_capacity());
    drop(others);
    pipe.grow(take, put);
    pipe.give_back(take, put);
    assert_eq!(capacity(take), default_capacity());
    let mut pipe = new(Side::Source, take).unwrap();
    pipe.grow(take, put);
    rustix::pipe::fcntl_setpipe_size(put, 2 * default_capacity()).unwrap();
    pipe.grow(take, put);
    pipe.give_back(take, put);
    assert_eq!(
        capacity(take),
        2 * default_capacity(),
        "as its owner has it"
    );
}

/// One transfer writes to the pipe, and the other one reads from it.
#[test]
fn the_pipe_between_two_transfers_gets_its_old_capacity_back() {
    use super::super::caller_pipe::CallerPipe;
    use super::super::capacity::capacity;
    use crate::endpoint::{Endpoint, Side};
    let _alone = alone();
    let (take, put) = rustix::pipe::pipe().unwrap();
    let (take, put) = (take.as_fd(), put.as_fd());
    let new = |side, fd| CallerPipe::new(side, &Endpoint::probe(fd).unwrap());
    for _ in 0..3 {
        let mut one = new(Side::Sink, put).unwrap();
        one.moved(default_capacity(), take, put);
        assert_eq!(capacity(take), 2 * default_capacity());
        assert!(new(Side::Source, take).is_none(), "another one adapts it");
        one.give_back(take, put);
        assert_eq!(capacity(take), default_capacity());
    }
}
