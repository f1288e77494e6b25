//! A thread with a descriptor table of its own, in which a number is another file
//! than in the other threads.

use std::os::fd::AsFd;

use super::{direct, whole};
use crate::common::{MIB, content, file_with, pattern, watchdog};
use testkit::child;

#[test]
fn only_the_threads_own_files_are_opened_and_written() {
    let _dog = watchdog("only_the_threads_own_files_are_opened_and_written");
    let (data, others) = (pattern(4 * MIB + 100), vec![b'o'; 8 * MIB]);
    let theirs = [(); 2].map(|()| file_with(&others));
    // Starts the threads for blocks, with the other table.
    let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
    whole(&source, &sink, &data, direct());
    let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            child::own_descriptors();
            let [from, to] = &theirs;
            child::replace(from.as_fd(), source.as_fd());
            child::replace(to.as_fd(), sink.as_fd());
            whole(from, to, &data, direct());
        });
    });
    for file in &theirs {
        assert!(content(file) == others);
    }
    assert!(content(&sink) == data);
}
