//! The threads of an engine: their start, their wake-ups and their end.

use std::sync::Arc;

use testkit::child;
use testkit::locked::{sleeps_in, threads};

use super::turn::open_disk_reactor;
use crate::engine::core::Core;
use crate::engine::job::EngineForJob;
use crate::sys;

/// Waits until a thread of this name sleeps without a descriptor.
fn until_idle(name: &str) {
    let idle = |name| {
        threads(name)
            .iter()
            .any(|task| sleeps_in(task, &[libc::SYS_futex]))
    };
    while !idle(name) {
        std::thread::yield_now();
    }
}

/// The last transfer ends while `join` already waits for the thread of direct copies.
#[test]
fn a_late_end_stops_the_thread_of_direct_copies() {
    assert!(child::in_a_child(|| {
        child::ends_soon();
        let core = Arc::new(Core::new(1).unwrap());
        core.job_started();
        open_disk_reactor(&core).unwrap();
        core.stop();
        until_idle("cordboard-disk");
        let joins = Arc::clone(&core);
        let joined = sys::spawn(c"cordboard-test", move || joins.join()).unwrap();
        while core.disk().thread.is_some() {
            std::thread::yield_now();
        }
        core.job_ended(core.next_id());
        joined.join();
        core.is_done()
    }));
}
