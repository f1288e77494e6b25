//! The engine's shared state, compiled from the engine's own files against a
//! scheduler that tries interleavings of its threads: Burckhardt et al., "A
//! Randomized Scheduler with Probabilistic Guarantees of Finding Bugs" (ASPLOS
//! 2010), as implemented by shuttle.
//!
//! A lost wakeup shows as a deadlock, which shuttle detects. Shuttle treats every
//! atomic operation as sequentially consistent. The engine makes most of its atomic operations
//! under a lock, and a queue's lock publishes the flags of a transfer. Miri, which runs the same tests
//! (`tools/sanitize miri`), lets loads return the older values that the memory
//! model permits.

#![cfg(test)]

#[path = "../../cordboard/src/engine/completion.rs"]
mod completion;
#[path = "../../cordboard/src/engine/cycle.rs"]
mod cycle;
#[path = "../../cordboard/src/guarded.rs"]
mod guarded;
#[path = "../../cordboard/src/engine/home.rs"]
mod home;
#[path = "../../cordboard/src/engine/inbox.rs"]
mod inbox;
mod orders;
#[path = "../../cordboard/src/threads/queue.rs"]
mod queue;
mod scheduler;
#[path = "../../cordboard/src/engine/slab.rs"]
mod slab;
mod sync;
#[expect(dead_code, reason = "the model ends no transfer from outside")]
#[path = "../../cordboard/src/engine/table.rs"]
mod table;
#[path = "../../cordboard/src/engine/takeover.rs"]
mod takeover;
