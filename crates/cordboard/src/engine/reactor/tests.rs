//! An engine whose host closes its descriptors, or forks.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use testkit::child;

use super::EventLoop;
use super::run::EVENTS;
use crate::engine::core::Core;
use crate::engine::cycle;
use crate::engine::job::EngineForJob;
use crate::engine::poller::FRESH;
use crate::engine::running::EngineForHandle;
use crate::engine::stopped::engine_of;
use crate::errno::Errno;
use crate::report::Refusal;
use crate::request::Request;
use crate::sys;
use crate::transfer::{Clock, Transfer};

/// The host has closed the engine's descriptors while a transfer keeps the thread
/// busy, and has an epoll instance of its own under the old number: the engine
/// takes no event from it.
#[test]
fn a_busy_thread_takes_no_event_of_the_hosts() {
    assert!(child::in_a_child(|| {
        let core = Arc::new(Core::new(1).unwrap());
        let event_loop = EventLoop::new(&core, core.main());
        let reactor = event_loop.begin().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        rustix::io::write(&writer, b"x").unwrap();
        let own = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let flags = EventFlags::IN | EventFlags::ONESHOT;
        epoll::add(&own, &reader, EventData::new_u64(7), flags).unwrap();
        let handle = Arc::clone(core.main());
        child::replace(handle.poller().epoll(), own.as_fd());
        for number in handle.inbox().wake_fd().numbers() {
            child::replace(number, reader.as_fd());
        }
        // The state after the first millisecond.
        while core.clock().now() < FRESH {
            std::thread::yield_now();
        }
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        let waited = cycle::wait(&event_loop, reactor, Some(Duration::ZERO), &mut events);
        let result = waited.map(|(_, result)| result);
        let now = rustix::event::Timespec::default();
        let (left, _) = epoll::wait(&own, &mut events, Some(&now)).unwrap();
        result == Some(Err(Errno::EBADF)) && left.len() == 1
    }));
}

/// The host closes the engine's descriptors in the same millisecond in which they
/// were checked: they are checked again before a close by number.
#[test]
fn descriptors_are_checked_before_a_close_by_number() {
    assert!(child::in_a_child(|| {
        let core = Arc::new(Core::new(1).unwrap());
        let (reader, _writer) = std::io::pipe().unwrap();
        let here = !core.is_lost();
        for number in core.inbox().wake_fd().numbers() {
            child::replace(number, reader.as_fd());
        }
        here && core.is_lost_now() && core.is_lost()
    }));
}

/// The host has closed the engine's descriptors, and its thread is ending and has
/// none at all. The engine is not mistaken for one with another descriptor table,
/// which would count as usable: a new one is made.
#[test]
fn an_engine_whose_thread_is_ending_is_not_usable() {
    for is_lost in [false, true] {
        assert!(child::in_a_child(|| {
            let core = Arc::new(Core::new(1).unwrap());
            core.set_thread();
            let engine = engine_of(&core);
            child::close_from(3);
            if is_lost {
                engine.core.mark_lost();
            }
            let other = sys::spawn(c"cordboard-test", move || {
                child::first_has_ended();
                let (source, _feed) = std::io::pipe().unwrap();
                let (_end, sink) = std::io::pipe().unwrap();
                let transfer = Transfer::owning(source.into(), sink.into(), Request::default());
                let refused = engine.start(transfer.unwrap()).unwrap_err().refusal;
                let errno = Errno::EBADF;
                child::end(!engine.is_usable() && refused == Some(Refusal::NoEngine { errno }));
            });
            assert!(other.is_ok());
            child::end_this_thread()
        }));
    }
}

/// A signal handler forks in a thread that waits for the engine's first thread to
/// register itself: the child does not wait.
#[test]
fn a_child_does_not_wait_for_the_engine_s_thread() {
    let core = Core::new(1).unwrap();
    assert!(child::in_a_child(|| {
        child::ends_soon();
        !core.has_other_descriptors() && core.is_inherited()
    }));
    core.set_thread();
    assert!(!core.has_other_descriptors());
}
