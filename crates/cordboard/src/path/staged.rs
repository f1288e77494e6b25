//! `read(2)`, stages that change the bytes, `write(2)`: read/write for stages
//! whose output differs from their input. It reads and writes by the same
//! calls, with the chain and its own counts in between (`stage/mod.rs` has the
//! rules).
//!
//! One step is at most one read and one write. The chain is asked for output
//! before the source is read: at most one buffer is held on each side of the
//! chain, and one behind each stage.

use std::os::fd::BorrowedFd;

use super::read_write::{LARGEST_BLOCK, SinkWriter, SourceReader};
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::path::flow::Flow;
use crate::path::step::Step;
use crate::path::verdict::Verdict;
use crate::report::Stranded;
use crate::request::Why;
use crate::stage::{Behind, Chain, Held};

/// Bytes read at a time …
const READ: usize = 128 << 10;
/// … but from a source that cannot be rewound, if few bytes can expand to very
/// many: the output must be handed back if the sink fails, 128 MiB at worst.
const READ_AHEAD: usize = 4096;
/// The most bytes that are handed back if a stage expands them. Behind another stage it may
/// have far more input than [`READ_AHEAD`].
const MOST_STRANDED: usize = if cfg!(test) { 1 << 20 } else { 256 << 20 };
/// The room that the chain has for its output at least: all of a read that doubles, so that a
/// stage that makes several bytes at a time has room for them.
const WRITE: usize = 256 << 10;

/// Errnos mean the same as for read/write. An error in the data is reported
/// only after the output before it is in the sink. So is a failure of the
/// source: the stages first process all bytes that were read.
pub(crate) struct Staged {
    /// Borrowed from the transfer's stages.
    chain: Chain,
    reader: SourceReader,
    /// Input that the chain has not consumed yet.
    raw: Held,
    /// The largest read.
    most: usize,
    /// Output for the sink.
    made: Held,
    writer: SinkWriter,
    /// The sink's write unit: for a device, a block of the request, which may be a record.
    unit: usize,
    /// The longest write, a multiple of the unit.
    longest: usize,
    /// The bytes of the current block that a device has accepted.
    begun: usize,
    ended: bool,
    /// No byte was requested: an empty input is not an error of the source.
    nothing: bool,
    /// The source's error.
    failed: Option<Errno>,
    /// There was no memory for all bytes to hand back, or they were too many.
    lacked: bool,
}

impl Staged {
    pub(crate) fn start(flow: &mut Flow<'_>, mut chain: Chain) -> Result<Staged, Why> {
        let (source, sink) = (flow.source.facts(), flow.sink.facts());
        let block = flow.options.block.map(|block| block.min(LARGEST_BLOCK));
        let (unit, longest) = match (SinkWriter::unit(sink), block) {
            (_, Some(block)) if sink.has_pieces() => (block, block),
            (unit, Some(block)) => (unit, (block / unit).max(1) * unit),
            (unit, None) => (unit, usize::MAX),
        };
        // A device's block, for direct I/O, which must read whole ones.
        let mut least = SinkWriter::unit(source);
        if source.has_pieces() {
            least = least.max(block.unwrap_or(0));
        }
        let rewinds = source.kind.is_cached();
        // A device refuses a read that is shorter than its next record, or drops the rest. Except
        // from a pseudo-file, a read requests no more than a block (`Flow::want`).
        let most = match chain.expands() && !rewinds && !source.has_pieces() {
            true => READ_AHEAD,
            false => READ.max(least),
        };
        // The chain is called while less than a unit is held.
        let output = WRITE + unit - 1;
        let room = chain
            .prepare()
            .and_then(|()| Ok((Held::with_capacity(most)?, Held::with_capacity(output)?)));
        let (raw, made) = match room {
            Ok(room) => room,
            Err(errno) => {
                flow.stages.give_back(chain);
                return Err(errno.into());
            }
        };
        Ok(Staged {
            chain,
            reader: SourceReader::default(),
            raw,
            most,
            made,
            writer: SinkWriter::new(),
            unit,
            longest,
            begun: 0,
            ended: false,
            nothing: flow.allowance.is_over() && flow.read() == 0,
            failed: None,
            lacked: false,
        })
    }

    /// Runs the chain on the input.
    fn pump(&mut self, behind: Behind) {
        let passed = (self.chain).pump(self.raw.bytes(), behind, self.made.room());
        self.raw.took(passed.taken);
        self.made.put(passed.made);
        self.chain.resume_panic();
    }

    fn behind(&self, flow: &Flow<'_>) -> Behind {
        match self.ended || flow.allowance.is_over() {
            true if self.failed.is_some() || self.nothing => Behind::Cut,
            true if flow.allowance.is_cut_short() && !self.ended => Behind::Cut,
            true => Behind::End,
            false => Behind::More,
        }
    }

    /// One read, once the chain has consumed everything.
    fn fill(&mut self, flow: &mut Flow<'_>) -> Result<(), Verdict> {
        if !flow.source.may_use(flow.source.kind().is_socket()) {
            return Err(Verdict::Blocked(Side::Source));
        }
        self.raw.clear();
        let room = self.raw.room();
        let most = room.len().min(self.most);
        match self.reader.read(flow, &mut room[..most]) {
            Ok(got) => {
                self.raw.put(got.bytes);
                self.ended = got.last;
                Ok(())
            }
            Err(Verdict::Failed(Side::Source, errno)) => {
                (self.ended, self.failed) = (true, Some(errno));
                Ok(())
            }
            Err(verdict) => Err(verdict),
        }
    }

    /// Whether there is less output than the sink's write unit, and more is to
    /// come.
    fn is_short(&self) -> bool {
        // The device has accepted a part of a block: the rest follows at once.
        let unit = if self.begun == 0 { self.unit } else { 1 };
        self.made.len() < unit && !self.chain.done()
    }

    fn write(&mut self, flow: &mut Flow<'_>) -> Verdict {
        if !self.writer.is_open(flow) {
            return Verdict::Blocked(Side::Sink);
        }
        let bytes = self.made.bytes();
        let bytes = &bytes[..bytes.len().min(self.longest - self.begun)];
        let length = bytes.len();
        match self.writer.write(flow, bytes) {
            Ok(n) => {
                if flow.sink.facts().has_pieces() {
                    self.begun = if n < length { self.begun + n } else { 0 };
                }
                // Last: a stage may panic, and the counts must be right then too.
                flow.stages.inspect(self.made.take(n));
                Verdict::Moved(n as u64)
            }
            Err(verdict) => verdict,
        }
    }
}

impl Step for Staged {
    fn step(&mut self, flow: &mut Flow<'_>) -> Verdict {
        let before = flow.read();
        if self.is_short() {
            self.pump(self.behind(flow));
        }
        if self.is_short() && !self.ended && flow.allowance.now() > 0 {
            if let Err(verdict) = self.fill(flow) {
                return verdict;
            }
            self.pump(self.behind(flow));
        }
        if self.is_short() && flow.allowance.is_held_back() {
            return Verdict::Blocked(Side::Source);
        }
        if self.is_short() {
            return Verdict::Moved(flow.read() - before);
        }
        if !self.made.is_empty() {
            return self.write(flow);
        }
        match (self.failed, self.chain.fault()) {
            (None, Some(Errno::ENOMEM)) => Verdict::StageFailed(Errno::ENOMEM),
            (Some(errno), _) | (None, Some(errno)) => Verdict::Failed(Side::Source, errno),
            // The size is reached, and the stages have no more output.
            (None, None) if flow.allowance.is_over() => Verdict::Moved(flow.read() - before),
            (None, None) => Verdict::Ended,
        }
    }

    /// Only the input can be rewound.
    fn held(&self) -> u64 {
        self.raw.len() as u64
    }

    fn holds(&self) -> bool {
        let reported = self.failed.is_none() && self.chain.fault().is_none();
        // A stage that has panicked leaves input behind.
        let holds = !self.raw.is_empty() || !self.made.is_empty();
        holds || !self.chain.done() || !reported
    }

    fn knows_the_end(&self) -> bool {
        true
    }

    fn unreported(&mut self) -> Option<Errno> {
        self.failed
    }

    fn second_descriptions(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [self.reader.second(), self.writer.second()]
    }

    /// Returns all remaining output. If there is no memory for it, or it is too much, returns
    /// the output up to there.
    fn strand(&mut self) -> Option<Stranded> {
        let most = match self.chain.expands() {
            true => MOST_STRANDED,
            false => usize::MAX,
        };
        let mut all = Vec::new();
        loop {
            let bytes = self.made.bytes();
            let fits = bytes.len() <= most - all.len();
            // The double of what is there may be too much.
            let has_room = fits
                && (all.try_reserve(bytes.len()).is_ok()
                    || all.try_reserve_exact(bytes.len()).is_ok());
            if !has_room {
                self.lacked = true;
                break;
            }
            all.extend_from_slice(bytes);
            self.made.clear();
            if self.chain.done() {
                break;
            }
            self.pump(Behind::Cut);
        }
        self.raw.clear();
        self.made.clear();
        (!all.is_empty()).then_some(Stranded::Buffer(all))
    }

    fn lacked_memory(&self) -> Option<Errno> {
        self.lacked.then_some(Errno::ENOMEM)
    }

    /// The source was rewound over the input, so it is no longer at its end.
    fn forget(&mut self) {
        self.ended &= self.raw.is_empty();
        self.raw.clear();
    }

    fn drop_without_close(mut self: Box<Self>) {
        self.reader.forget();
        self.writer.forget();
    }

    fn finish(&mut self, flow: &mut Flow<'_>) {
        self.writer.finish(flow);
        flow.stages.give_back(std::mem::take(&mut self.chain));
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::num::NonZeroUsize;
    use std::os::fd::{AsFd, OwnedFd};

    use super::*;
    use crate::endpoint::{Facts, Kind};
    use crate::request::Request;
    use crate::stage::{Fault, Finished, Passed, Stage, Transform};
    use crate::transfer::Transfer;

    struct Expanding;

    impl Transform for Expanding {
        fn name(&self) -> &'static str {
            "expanding"
        }

        fn transform(&mut self, _: &[u8], _: &mut [u8]) -> Result<Passed, Fault> {
            Ok(Passed::default())
        }

        fn finish(&mut self, _: &mut [u8]) -> Result<Finished, Fault> {
            Ok(Finished::default())
        }

        fn expands(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_read_that_may_be_a_record_has_the_room_of_a_block() {
        const LONG: usize = 3 * READ;
        let (reader, _writer) = std::io::pipe().unwrap();
        let stream = OwnedFd::from(reader);
        let Ok(pieces) = File::open("/proc/self/status").map(OwnedFd::from) else {
            return testkit::skip::here("no procfs");
        };
        let device = Some(Kind::CharDevice);
        for (source, kind, block, most) in [
            (&stream, None, 0, READ_AHEAD),
            (&stream, None, LONG, READ_AHEAD),
            (&pieces, None, 0, READ),
            (&pieces, None, 1, READ),
            (&pieces, None, LONG, LONG),
            // Stands for a device.
            (&stream, device, 0, READ),
            (&stream, device, 1, 1),
            (&stream, device, LONG, LONG),
        ] {
            let sink = testkit::file::file_with(b"");
            let request = Request {
                block: NonZeroUsize::new(block),
                ..Request::default()
            };
            let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
            let mut transfer = transfer.stage(Stage::transforming(Expanding)).unwrap();
            let chain = transfer.flow.stages.lend().unwrap();
            let source = &mut transfer.flow.source;
            source.set_endpoint(source.endpoint().with_facts(Facts {
                kind: kind.unwrap_or(source.kind()),
                ..*source.facts()
            }));
            let mut staged = Staged::start(&mut transfer.flow, chain).ok().unwrap();
            assert_eq!(transfer.flow.want(staged.most), most);
            assert!(staged.raw.room().len() >= most);
        }
    }
}
