//! Many transfers at once, in one process: on the library's engine, or with a
//! thread for each.

pub mod far;
mod figures;
pub mod files;
pub mod idle;
mod movers;
pub mod pipes;

pub use far::MESSAGE;
pub use idle::{DESCRIPTORS, SPARE};
