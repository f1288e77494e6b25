//! Pairs that stages exclude, and pairs that they leave unchanged.

use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;

use super::*;
use crate::common::{self, any, only, pattern, watchdog};
use cordboard::{Errno, Refusal, Side};

fn refused(source: impl AsFd, sink: impl AsFd, request: Request, name: &str) -> Refusal {
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
    let Err(failure) = transfer.stage(stage(name)) else {
        panic!("{name} is not refused");
    };
    assert_eq!((failure.report.read, failure.report.written), (0, 0));
    failure.refusal.unwrap()
}

#[test]
fn every_path_of_the_kernel_is_declined_in_words() {
    let _dog = watchdog("every_path_of_the_kernel_is_declined_in_words");
    let data = pattern(100_000);
    let (reader, writer) = std::io::pipe().unwrap();
    let source = common::file_with(&data);
    let collect = std::thread::spawn(move || common::content_of(reader));
    let report = run(&source, &writer, any(), &["count"]).report;
    drop(writer);
    assert!(collect.join().unwrap() == data);
    by_user_space(&report, &["count"]);
    let splice = report.declined.iter().find(|d| d.path == DataPath::Splice);
    let why = splice.unwrap().why.to_string();
    assert_eq!(why, "stages need the bytes in user space");
}

#[test]
fn without_read_write_there_is_no_path() {
    let (reader, _writer) = std::io::pipe().unwrap();
    let (_reader, writer) = std::io::pipe().unwrap();
    let refusal = refused(&reader, &writer, only(&[DataPath::Splice]), "count");
    assert!(matches!(refusal, Refusal::NoPath { .. }), "{refusal}");
    assert!(refusal.to_string().contains("in user space"), "{refusal}");
}

#[test]
fn messages_are_not_run_together() {
    let (a, b) = UnixDatagram::pair().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    for (side, refusal) in [
        (Side::Source, refused(&a, &writer, any(), "zstd")),
        (Side::Sink, refused(&reader, &b, any(), "unzstd")),
    ] {
        assert_eq!(
            (refusal.side(), refusal.errno()),
            (Some(side), Errno::EINVAL)
        );
        assert!(
            refusal.to_string().contains("merge its messages"),
            "{refusal}"
        );
    }
}

/// An inspecting stage changes no message.
#[test]
fn messages_that_are_hashed_stay_messages() {
    let _dog = watchdog("messages_that_are_hashed_stay_messages");
    let (from, source) = UnixDatagram::pair().unwrap();
    let (sink, to) = UnixDatagram::pair().unwrap();
    let sent = [&b"one"[..], b"", b"three and more", b"4"];
    for message in sent {
        from.send(message).unwrap();
    }
    let request = Request {
        size: cordboard::Size::Bytes(18),
        ..any()
    };
    let report = run(&source, &sink, request, &["blake3"]).report;
    by_user_space(&report, &["blake3"]);
    let all = sent.concat();
    assert_eq!(report.written, all.len() as u64);
    assert_eq!(report.stages[0].digest, digest("blake3", &all));
    for message in sent {
        let mut got = [0; 100];
        let n = to.recv(&mut got).unwrap();
        assert_eq!(&got[..n], message);
    }
}

#[test]
fn a_file_is_not_packed_into_itself() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"0123456789").unwrap();
    let source = std::fs::File::open(file.path()).unwrap();
    let sink = std::fs::File::options()
        .write(true)
        .open(file.path())
        .unwrap();
    let refusal = refused(&source, &sink, any(), "zstd");
    assert_eq!(refusal, Refusal::StagedOntoItself { stage: "zstd" });
    // An inspecting stage changes nothing.
    let report = run(&source, &sink, any(), &["crc32"]).report;
    assert_eq!(report.stages[0].digest, digest("crc32", b"0123456789"));
}

#[test]
fn the_json_line_has_the_stages_only_where_there_are_any() {
    let source = common::file_with(b"123456789");
    let sink = tempfile::tempfile().unwrap();
    let report = run(&source, &sink, any(), &["crc32"]).report;
    let json = serde_json::to_string(&report).unwrap();
    let stages = r#""stages":[{"stage":"crc32","in":9,"out":9,"digest":"cbf43926"}],"seconds""#;
    assert!(json.contains(stages), "{json}");
    let plain = serde_json::to_string(&Report::default()).unwrap();
    assert!(!plain.contains("stages"), "{plain}");
}
