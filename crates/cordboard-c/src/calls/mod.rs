//! The calls: what `cordboard.h` declares, one topic a file. They read what C
//! points to, call the rest, and write back.

// In the order of the header.
mod splice;

mod run;

mod handle;

mod flags;

mod words;
