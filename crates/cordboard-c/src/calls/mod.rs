//! The functions that `cordboard.h` declares, one file per topic. They read the
//! caller's memory, call the other modules, and write the results back.

// The blank lines keep rustfmt from sorting: this is the order of the header.
mod splice;

mod run;

mod handle;

mod step;

mod cue;

mod flags;

mod text;
