//! Returns bytes that were read and not written to the source or to the caller.

use crate::pipe::Channel;
use crate::report::Stranded;
use crate::transfer::Transfer;

/// The returned bytes, and their number.
pub(super) struct HandedBack {
    pub(super) stranded: Option<Stranded>,
    pub(super) bytes: u64,
}

impl Transfer<'_> {
    /// Rewinds the source, and returns the bytes over which it cannot be rewound.
    pub(super) fn hand_back(&mut self) -> HandedBack {
        let unreadable = (self.flow.unreadable.as_ref()).map_or(0, |rest| rest.pipe.held());
        let stranded = self.give_back();
        // With stages that change the bytes, these are not the bytes that were
        // read.
        let bytes = match &stranded {
            Some(Stranded::Buffer(bytes)) if self.transforms() => bytes.len() as u64,
            Some(Stranded::Pipe(_)) if self.transforms() => unreadable,
            _ if self.transforms() => 0,
            _ => self.flow.unwritten(),
        };
        HandedBack { stranded, bytes }
    }

    fn give_back(&mut self) -> Option<Stranded> {
        if self.current.is_none() && self.holds() {
            // The transfer has taken no step. The output of its stages for no byte, such as an
            // empty frame, is made by a path. Without memory for one, there is none.
            let _ = self.current_path();
        }
        self.put_back();
        let held = (self.current.as_mut())
            .filter(|(_, path)| path.holds())
            .and_then(|(_, path)| path.strand());
        match self.flow.unreadable.take() {
            // The bytes of the source do not follow output of the stages.
            Some(unreadable) if held.is_none() || !self.flow.stages.transforms() => {
                Some(Stranded::before(held, unreadable.pipe))
            }
            _ => held,
        }
    }

    /// Rewinds a seekable source over the bytes that were not written.
    pub(super) fn put_back(&mut self) {
        let Some((_, path)) = self.current.as_mut() else {
            return;
        };
        let held = path.held();
        // Generated files are not rewound: a read consumes the contents of some
        // (/proc/kmsg), and others differ the next time.
        let cached = path.holds() && self.flow.source.kind().is_cached();
        // With stages, the source is rewound in any case: their output from a
        // small input could fill all memory.
        let rewinds = cached && (self.flow.stages.transforms() || !self.flow.source_is_astray());
        if rewinds && self.flow.source.move_by(-(held as i64)).is_ok() {
            path.forget();
            self.flow.put_back(held);
        }
    }
}
