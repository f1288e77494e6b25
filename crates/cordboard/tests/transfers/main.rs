//! Properties of every transfer: counts and endings, split in any way, through
//! any stages. `stages` requires the crate's stage features.

mod accounting;
#[path = "../common/mod.rs"]
mod common;
mod endings;
mod every_path;
mod smoke;
mod splits;
#[cfg(all(feature = "serde", feature = "stages"))]
mod stages;
mod stepping;
