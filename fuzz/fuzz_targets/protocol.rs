//! Decodes arbitrary bytes, in pieces, as commands and as records. The first byte is the
//! length of the pieces.
#![no_main]

use cordboard::cue::{Commands, Records};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((piece, bytes)) = data.split_first() else {
        return;
    };
    let piece = usize::from(*piece).max(1);
    let (mut commands, mut found) = (Commands::default(), Vec::new());
    for part in bytes.chunks(piece) {
        let mut part = part;
        while !part.is_empty() {
            let taken = commands.push(part);
            part = &part[taken..];
            let before = found.len();
            found.extend(std::iter::from_fn(|| commands.next()));
            assert!(taken > 0 || found.len() > before, "the decoder is stuck");
        }
        assert!(commands.room() > 0, "whole commands are left undecoded");
    }
    // A decoded command is the same after encoding and decoding.
    for command in found.into_iter().flatten() {
        let (mut again, mut bytes) = (Commands::default(), Vec::new());
        command.encode(&mut bytes);
        assert_eq!(again.push(&bytes), bytes.len());
        assert_eq!(again.next(), Some(Ok(command)));
    }
    let mut records = Records::default();
    for part in bytes.chunks(piece) {
        records.push(part);
        while let Some(record) = records.next() {
            let (mut again, mut bytes) = (Records::default(), Vec::new());
            record.encode(&mut bytes);
            again.push(&bytes);
            assert!(again.next().is_some(), "{record:?} cannot be decoded");
        }
    }
});
