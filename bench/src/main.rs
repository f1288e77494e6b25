//! The experiments.

fn main() {}
