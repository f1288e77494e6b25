//! A model of a plain read/write loop: the content of the source and the sink, and
//! the positions of both descriptors.

use super::Piece;
use testkit::{Sink, SinkKind, Source};

/// Both ends as a plain loop leaves them.
pub struct Model {
    source: Vec<u8>,
    /// Sizes of the messages not yet read, for sources that have them.
    messages: Option<Vec<usize>>,
    pub source_position: u64,
    pub sink: Vec<u8>,
    pub sink_position: u64,
    appends: bool,
}

/// The result of one transfer.
pub struct Moved {
    pub bytes: u64,
    /// The source ended before the size was reached.
    pub ended: bool,
}

impl Model {
    pub fn new(source: &Source, sink: &Sink) -> Model {
        Model {
            source: source.expect.bytes().expect("known bytes"),
            messages: source.messages.clone(),
            source_position: 0,
            sink: Vec::new(),
            sink_position: 0,
            appends: sink.start.is_none() || sink.kind == SinkKind::Append,
        }
    }

    pub fn transfer(&mut self, piece: &Piece) -> Moved {
        let from = piece.source_offset.unwrap_or(self.source_position);
        let there = (self.source.len() as u64).saturating_sub(from);
        let mut bytes = piece.size.map_or(there, |size| size.min(there));
        if let Some(messages) = &mut self.messages {
            bytes = whole(messages, bytes);
        }
        let ended = match piece.size {
            // If the next message is too long, that is not the end.
            Some(size) if self.messages.is_some() => bytes < size && bytes == there,
            Some(size) => bytes < size,
            None => true,
        };
        if piece.source_offset.is_none() {
            self.source_position += bytes;
        }
        let start = usize::try_from(from)
            .unwrap_or(usize::MAX)
            .min(self.source.len());
        let data = self.source[start..start + bytes as usize].to_vec();
        if self.appends {
            self.sink.extend_from_slice(&data);
        } else {
            let to = piece.sink_offset.unwrap_or(self.sink_position);
            if piece.sink_offset.is_none() {
                self.sink_position += bytes;
            }
            self.put(to as usize, &data);
        }
        Moved { bytes, ended }
    }

    /// Overwrites the content from `at` on. A gap before `at` reads as zeros.
    fn put(&mut self, at: usize, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        if self.sink.len() < at + data.len() {
            self.sink.resize(at + data.len(), 0);
        }
        self.sink[at..at + data.len()].copy_from_slice(data);
    }
}

/// Takes the messages that fit into `most` bytes. Returns the sum of their sizes.
fn whole(messages: &mut Vec<usize>, most: u64) -> u64 {
    let mut bytes = 0;
    let mut count = 0;
    for size in messages.iter() {
        if bytes + *size as u64 > most {
            break;
        }
        bytes += *size as u64;
        count += 1;
    }
    messages.drain(..count);
    bytes
}
