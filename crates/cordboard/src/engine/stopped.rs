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
    sent(&engine.core).expect("a transfer")
}

/// Takes the messages to the reactor, and returns the transfer among them.
pub(super) fn sent(core: &Core) -> Option<Box<Job>> {
    let mut messages = Vec::new();
    core.inbox().take(&mut messages);
    messages.into_iter().find_map(|message| match message {
        Message::Run(job) => Some(job),
        _ => None,
    })
}
