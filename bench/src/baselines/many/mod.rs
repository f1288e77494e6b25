//! Many simultaneous transfers in one process: on the library's engine, or with
//! one thread each.

pub mod far;
mod figures;
pub mod files;
pub mod idle;
mod movers;
pub mod pipes;

pub use far::MESSAGE;
pub use idle::{DESCRIPTORS, SPARE};
