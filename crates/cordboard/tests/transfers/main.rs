//! What holds for every transfer: counts and endings, cut in any way, through any
//! stages. `stages` needs the features of that name.

mod accounting;
#[path = "../common/mod.rs"]
mod common;
mod endings;
mod smoke;
mod splits;
#[cfg(all(feature = "serde", feature = "stages"))]
mod stages;
