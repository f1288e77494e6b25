//! Sources and sinks of every kind, for the tests and the benches.
