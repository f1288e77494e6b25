//! The engine's shared state, compiled from the engine's own files against a
//! scheduler that tries the orders in which its threads can meet: Burckhardt et
//! al., "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs"
//! (ASPLOS 2010), as shuttle has it.
//!
//! A lost wake-up shows as a deadlock, which shuttle finds at once. It takes
//! every atomic operation for sequentially consistent; the engine's lie under a
//! lock, but for one flag that a queue's lock carries along. Miri, which runs
//! the same (`tools/sanitize miri`), lets them see what older values they may.

#![cfg(test)]

#[path = "../../cordboard/src/engine/completion.rs"]
mod completion;
#[path = "../../cordboard/src/guarded.rs"]
mod guarded;
#[path = "../../cordboard/src/engine/inbox.rs"]
mod inbox;
mod orders;
#[path = "../../cordboard/src/threads/queue.rs"]
mod queue;
mod scheduler;
mod sync;
#[path = "../../cordboard/src/engine/takeover.rs"]
mod takeover;
