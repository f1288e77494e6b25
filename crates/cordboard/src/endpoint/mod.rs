//! Descriptors and what they refer to.
//!
//! [`Facts`] is plain data, so the route can be decided and tested without a
//! descriptor. [`Endpoint`] is a descriptor with its facts.

mod borrowed;
mod description;
mod direct;
mod facts;
mod file_id;
mod filesystem;
mod identity;
mod kind;
mod mounts;
mod probe;
mod reopen;
pub(crate) mod resets;
mod served;
mod socket;
mod storage;
mod terminal;

pub use borrowed::Endpoint;
#[doc(hidden)]
pub use description::compare_descriptions;
pub use description::same_description;
pub(crate) use direct::direct_alignment;
pub use facts::{Alignment, Facts};
pub use file_id::FileId;
pub(crate) use filesystem::HoleReports;
pub use filesystem::{CloneAbility, Filesystem};
#[doc(hidden)]
pub use identity::keeps_its_identity;
pub use kind::{Kind, Side};
pub(crate) use mounts::keeps_bytes_with_attributes;
pub(crate) use probe::Unexamined;
pub(crate) use reopen::reopen;
pub use storage::Storage;
pub(crate) use terminal::{has_hung_up, is_pty_master};
