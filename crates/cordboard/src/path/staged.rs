//! `read(2)`, stages that change the bytes, `write(2)`: what read/write is
//! where the bytes are other ones before and after. It reads and writes by the
//! same calls; between them stands the chain with its own account
//! (`stage/mod.rs` has the rules).
//!
//! One step is at most one read and one write. The chain is asked for more
//! before the source is: what is held stays within one buffer on each side of
//! it, and one behind each stage.

use super::read_write::{Intake, Outlet};
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::path::flow::Flow;
use crate::path::step::Step;
use crate::path::verdict::Verdict;
use crate::report::Stranded;
use crate::request::Why;
use crate::stage::{Behind, Chain, Held};

/// Bytes of the source at a time …
const READ: usize = 128 << 10;
/// … but of one that cannot be rewound where few can become very many: what
/// they become must be handed back if the sink dies, and is 128 MiB at worst.
const READ_AHEAD: usize = 4096;
/// Bytes for the sink.
const WRITE: usize = 256 << 10;

/// Errnos mean what they mean to read/write. A fault in the bytes is told
/// only after what was made before it is in the sink, and so is a source that
/// fails: what was read of it is made into something complete.
pub(crate) struct Staged {
    /// CallerPipe by the transfer's stages.
    chain: Chain,
    intake: Intake,
    /// From the source; the chain has not taken it yet.
    raw: Held,
    /// Most bytes of a read.
    most: usize,
    /// For the sink.
    made: Held,
    outlet: Outlet,
    /// What the sink wants at once.
    unit: usize,
    ended: bool,
    /// No byte was asked for: that none has come is no fault of the source.
    nothing: bool,
    /// Why the source gives no more.
    failed: Option<Errno>,
}

impl Staged {
    pub(crate) fn start(flow: &mut Flow<'_>, mut chain: Chain) -> Result<Staged, Why> {
        let unit = Outlet::unit(flow.sink.facts());
        // A device's block, where direct I/O must read whole ones.
        let least = Outlet::unit(flow.source.facts());
        let rewinds = flow.source.kind().is_cached();
        let most = match chain.expands() && !rewinds {
            true => READ_AHEAD,
            false => READ.max(least),
        };
        let room = chain.prepare().and_then(|()| {
            Ok((
                Held::with_capacity(most)?,
                Held::with_capacity(WRITE.max(unit))?,
            ))
        });
        let (raw, made) = match room {
            Ok(room) => room,
            Err(errno) => {
                flow.stages.give_back(chain);
                return Err(errno.into());
            }
        };
        Ok(Staged {
            chain,
            intake: Intake::default(),
            raw,
            most,
            made,
            outlet: Outlet::new(),
            unit,
            ended: false,
            nothing: flow.allowance.remaining() == 0 && flow.read() == 0,
            failed: None,
        })
    }

    /// Lets the chain work on what was read.
    fn pump(&mut self, behind: Behind) {
        let passed = (self.chain).pump(self.raw.bytes(), behind, self.made.room());
        self.raw.took(passed.taken);
        self.made.put(passed.made);
    }

    fn behind(&self, flow: &Flow<'_>) -> Behind {
        match self.ended || flow.allowance.remaining() == 0 {
            true if self.failed.is_some() || self.nothing => Behind::Cut,
            true if flow.allowance.is_cut_short() && !self.ended => Behind::Cut,
            true => Behind::End,
            false => Behind::More,
        }
    }

    /// One read, now that the chain has taken everything.
    fn fill(&mut self, flow: &mut Flow<'_>) -> Result<(), Verdict> {
        if !flow.source.may_use(flow.source.kind().is_socket()) {
            return Err(Verdict::Blocked(Side::Source));
        }
        self.raw.clear();
        let room = self.raw.room();
        let most = room.len().min(self.most);
        match self.intake.read(flow, &mut room[..most]) {
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

    /// Less is made than the sink wants at once, and more is to come.
    fn short(&self) -> bool {
        self.made.len() < self.unit && !self.chain.done()
    }

    fn write(&mut self, flow: &mut Flow<'_>) -> Verdict {
        if !self.outlet.is_open(flow) {
            return Verdict::Blocked(Side::Sink);
        }
        match self.outlet.write(flow, self.made.bytes()) {
            Ok(n) => {
                flow.stages.inspect(&self.made.bytes()[..n]);
                self.made.took(n);
                Verdict::Moved(n as u64)
            }
            Err(verdict) => verdict,
        }
    }
}

impl Step for Staged {
    fn step(&mut self, flow: &mut Flow<'_>) -> Verdict {
        let before = flow.read();
        if self.short() {
            self.pump(self.behind(flow));
        }
        if self.short() && !self.ended && flow.allowance.now() > 0 {
            if let Err(verdict) = self.fill(flow) {
                return verdict;
            }
            self.pump(self.behind(flow));
        }
        if self.short() {
            return Verdict::Moved(flow.read() - before);
        }
        if !self.made.is_empty() {
            return self.write(flow);
        }
        match (self.failed, self.chain.fault()) {
            (None, Some(Errno::ENOMEM)) => Verdict::StageFailed(Errno::ENOMEM),
            (Some(errno), _) | (None, Some(errno)) => Verdict::Failed(Side::Source, errno),
            // The size is reached, and the stages have nothing more to make.
            (None, None) if flow.allowance.is_over() => Verdict::Moved(flow.read() - before),
            (None, None) => Verdict::Ended,
        }
    }

    /// Only this can go back to the source.
    fn held(&self) -> u64 {
        self.raw.len() as u64
    }

    fn holds(&self) -> bool {
        let told = self.failed.is_none() && self.chain.fault().is_none();
        !self.made.is_empty() || !self.chain.done() || !told
    }

    fn knows_the_end(&self) -> bool {
        true
    }

    /// What would have been written next, to its very end.
    fn strand(&mut self) -> Option<Stranded> {
        let mut all = self.made.bytes().to_vec();
        while !self.chain.done() {
            self.made.clear();
            self.pump(Behind::Cut);
            all.extend_from_slice(self.made.bytes());
        }
        self.raw.clear();
        self.made.clear();
        (!all.is_empty()).then_some(Stranded::Buffer(all))
    }

    /// The source has it again, and so does not end where it was read to.
    fn forget(&mut self) {
        self.ended &= self.raw.is_empty();
        self.raw.clear();
    }

    fn finish(&mut self, flow: &mut Flow<'_>) {
        flow.stages.give_back(std::mem::take(&mut self.chain));
    }
}
