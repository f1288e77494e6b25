//! Engines without threads, for tests that run their parts.

use std::sync::{Arc, Mutex};

use super::core::Core;
use super::job::Job;
use super::message::Message;
use super::{Backend, Engine};
use crate::sys;
use crate::transfer::Transfer;

/// An engine whose threads the test runs.
pub(super) fn engine_of(core: &Arc<Core>) -> Engine {
    let shut = sys::Event::new();
    shut.happen();
    Engine {
        core: Arc::clone(core),
        backend: Backend::Auto,
        reactor: Mutex::new(None),
        shut,
    }
}

/// Starts a transfer, and returns the job that the reactor would get.
pub(super) fn job_of(engine: &Engine, transfer: Transfer<'static>) -> Box<Job> {
    engine.core.set_thread();
    engine.start(transfer).unwrap().detach();
    let mut messages = Vec::new();
    engine.core.inbox().take(&mut messages);
    match messages.pop() {
        Some(Message::Run(job)) => job,
        _ => panic!("no transfer"),
    }
}
