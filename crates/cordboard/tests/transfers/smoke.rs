//! The call `splice` on a few pairs: the first test to run after a change.

use crate::common;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;

use cordboard::{DataPath, Ended, Size, Transfer, splice};

fn pattern(n: usize) -> Vec<u8> {
    (0..n as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

#[test]
fn through_a_pipe_and_a_socket() {
    let data = pattern(3 << 20);
    let mut source = tempfile::tempfile().unwrap();
    source.write_all(&data).unwrap();
    source.rewind().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut sink = tempfile::tempfile().unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(move || splice(&source, &writer, Size::Eof).unwrap());
        let second = scope.spawn(move || splice(&reader, &a, Size::Eof).unwrap());
        let third = splice(&b, &sink, Size::Eof).unwrap();
        assert_eq!(third.written, data.len() as u64);
        let path = common::carried_by(&[DataPath::Splice, DataPath::ReadWrite]);
        assert_eq!(first.join().unwrap().path, path);
        assert_eq!(second.join().unwrap().path, path);
    });
    sink.seek(SeekFrom::Start(0)).unwrap();
    let mut back = Vec::new();
    sink.read_to_end(&mut back).unwrap();
    assert!(back == data);
}

#[test]
fn procfs_whose_size_lies() {
    let source = std::fs::File::open("/proc/self/status").unwrap();
    let sink = tempfile::tempfile().unwrap();
    let report = splice(&source, &sink, Size::Eof).unwrap();
    assert!(report.written > 100);
    assert_eq!(report.path, [DataPath::ReadWrite]);
}

/// The length is right even if space is reserved before the writes.
#[test]
fn the_length_is_right_where_a_transfer_ends_early() {
    let mut source = tempfile::tempfile().unwrap();
    source.write_all(&pattern(24 << 20)).unwrap();
    source.rewind().unwrap();
    let sink = tempfile::tempfile().unwrap();
    struct Cancel(cordboard::Control);
    impl cordboard::Observer for Cancel {
        fn progress(&mut self, _: &cordboard::Progress) {
            self.0.cancel();
        }
    }
    let control = cordboard::Control::new().unwrap();
    let mut cancel = Cancel(control.clone());
    // A file system that shares blocks would copy all of it in one step.
    let request = common::only(&[DataPath::ReadWrite]);
    let report = Transfer::new(source.as_fd(), sink.as_fd(), request)
        .unwrap()
        .control(&control)
        .observe(&mut cancel)
        .run()
        .report;
    assert_eq!(report.ended, Ended::Cancelled);
    let meta = sink.metadata().unwrap();
    assert_eq!(meta.len(), report.written);
    assert!(report.written < 16 << 20, "{report:?}");
}

/// A transfer can be prepared on one thread and run on another.
#[test]
fn a_transfer_may_be_sent_to_another_thread() {
    fn sent<T: Send>() {}
    sent::<cordboard::Transfer<'static>>();
}
