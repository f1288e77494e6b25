//! `cordboard play`: the player of the 1992 paper. The engine splices the audio,
//! and each video frame is written when it is due.

mod audio;
mod ends;
mod keys;
mod live;
mod pace;
mod player;
mod report;
mod show;
mod tally;
mod video;

pub use player::{misused, run};
