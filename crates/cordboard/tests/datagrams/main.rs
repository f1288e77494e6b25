//! Datagrams: every boundary is kept, the empty ones too; none is cut, and none is
//! lost without an error.

mod addresses;
mod boundaries;
#[path = "../common/mod.rs"]
mod common;
mod endings;
mod sizes;
