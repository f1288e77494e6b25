//! Packets on standard input that do not fit into what is left of a size.

use std::io::Read;
use std::process::Stdio;

use rustix::pipe::{PipeFlags, pipe_with};
use testkit::needs::Need;

use crate::common::{Start, TempDir, end};

/// With few descriptors left, no part of the last packet is lost.
#[test]
fn few_descriptors_cut_no_packet() {
    if testkit::needs::missing("few_descriptors_cut_no_packet", &[Need::Vmsplice]) {
        return;
    }
    let data: Vec<u8> = (0..12_000u32).map(|i| (i / 7) as u8).collect();
    let dir = TempDir::new().unwrap();
    let mut whole = 0;
    for limit in 3..=14 {
        let flags = PipeFlags::CLOEXEC | PipeFlags::DIRECT;
        let (source, feed) = pipe_with(flags).unwrap();
        for packet in data.chunks(4000) {
            assert_eq!(rustix::io::write(&feed, packet), Ok(4000));
        }
        drop(feed);
        let name = dir.path().join(format!("{limit}"));
        let mut options = std::fs::File::options();
        let sink = options.append(true).create(true).open(&name).unwrap();
        let script = r#"ulimit -n "$0"; exec "$@""#;
        let command = env!("CARGO_BIN_EXE_cordboard");
        let run = end(std::process::Command::new("sh")
            .args(["-c", script, &limit.to_string(), command])
            .args(["splice", "-", "-", "--size", "5000"])
            .stdin(source.try_clone().unwrap())
            .stdout(sink)
            .stderr(Stdio::piped())
            .start());
        let said = String::from_utf8_lossy(&run.0.stderr);
        let got = std::fs::read(&name).unwrap();
        assert!(got == data[..got.len()], "{limit}");
        // Too few to start with, or enough.
        assert!(got.is_empty() || got.len() == 5000, "{limit}: {said}");
        whole += usize::from(got.len() == 5000);
        let (mut rest, mut packet) = (Vec::new(), [0; 4096]);
        let mut source = std::fs::File::from(source);
        while let Ok(n @ 1..) = source.read(&mut packet) {
            rest.extend_from_slice(&packet[..n]);
        }
        assert_eq!(got.len() + rest.len(), data.len(), "{limit}: {said}");
        assert!(rest == data[got.len()..], "{limit}");
    }
    assert!(whole > 0, "no limit was enough");
}
