//! A chain of stages that change the bytes, each with the inspecting stages
//! before it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::held::Held;
use super::inspector::Inspector;
use super::report::StageReport;
use super::transform::{Fault, Passed, Transform};
use crate::errno::Errno;
use crate::threads::run_callers;

/// Bytes that one stage may hold for the next.
const BETWEEN: usize = 128 << 10;

/// What follows the input of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behind {
    /// More bytes.
    More,
    /// The end of the source.
    End,
    /// Nothing more for the stages: the transfer ended early, or no byte was
    /// requested. Incomplete input is then not a fault.
    Cut,
}

/// One stage that changes the bytes.
struct Link {
    /// The stages that inspect the input of `stage`.
    before: Vec<Inspector>,
    stage: Box<dyn Transform>,
    taken: u64,
    made: u64,
    /// The last call filled its output buffer: more output may follow.
    full: bool,
    done: bool,
    fault: Option<Fault>,
}

impl Link {
    /// Calls the stage once, if there is input, or output to make. Adds to `passed` what it
    /// has taken and made.
    ///
    /// # Panics
    ///
    /// If a stage panics. It is not called again.
    fn turn(&mut self, input: &[u8], behind: Behind, output: &mut [u8], passed: &mut Passed) {
        let ends = input.is_empty() && !self.full;
        if self.done || output.is_empty() || ends && behind == Behind::More {
            return;
        }
        // Until the stage has returned.
        self.done = true;
        let done = match ends {
            false => self.transform(input, output, passed),
            true => self.finish(output, passed),
        };
        match done {
            Ok(done) => self.done = done,
            Err(fault) if ends && behind == Behind::Cut && fault.errno != Errno::ENOMEM => {}
            // Earlier output is still written.
            Err(fault) => self.fault = Some(fault),
        }
    }

    fn transform(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        passed: &mut Passed,
    ) -> Result<bool, Fault> {
        let now = run_callers(|| self.stage.transform(input, output))?;
        let idle = now == Passed::default() && !input.is_empty();
        if idle || now.taken > input.len() || now.made > output.len() {
            return Err(broken(self.stage.name()));
        }
        self.full = now.made == output.len();
        self.taken += now.taken as u64;
        self.made += now.made as u64;
        *passed = now;
        // Last: one of them may panic, and the counts must be right then too.
        for seen in &mut self.before {
            seen.inspect(&input[..now.taken]);
        }
        Ok(false)
    }

    fn finish(&mut self, output: &mut [u8], passed: &mut Passed) -> Result<bool, Fault> {
        let finished = run_callers(|| self.stage.finish(output))?;
        let idle = finished.made == 0 && !finished.done;
        if idle || finished.made > output.len() {
            return Err(broken(self.stage.name()));
        }
        self.made += finished.made as u64;
        passed.made = finished.made;
        Ok(finished.done)
    }

    fn report(&self) -> StageReport {
        StageReport {
            stage: self.stage.name(),
            bytes_in: self.taken,
            bytes_out: self.made,
            digest: None,
            fault: self.fault.as_ref().map(Fault::to_string),
        }
    }
}

/// The fault of a stage that would never finish.
fn broken(name: &str) -> Fault {
    Fault {
        errno: Errno::EIO,
        why: format!(
            "stage {name} is faulty: it made no progress, or reported more bytes than its buffers have"
        )
        .into(),
    }
}

/// One or more stages that change the bytes, the first next to the source.
#[derive(Default)]
pub(crate) struct Chain {
    links: Vec<Link>,
    /// The output of each stage but the last that the next one has not taken.
    between: Vec<Held>,
    /// The payload of a panic of a stage.
    panic: Option<Box<dyn Any + Send>>,
}

impl Chain {
    pub(super) fn push(&mut self, before: Vec<Inspector>, stage: Box<dyn Transform>) {
        self.links.push(Link {
            before,
            stage,
            taken: 0,
            made: 0,
            full: false,
            done: false,
            fault: None,
        });
    }

    /// Allocates the buffers between the stages.
    pub(crate) fn prepare(&mut self) -> Result<(), Errno> {
        let between = (1..self.links.len()).map(|_| Held::with_capacity(BETWEEN));
        self.between = between.collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Takes input and makes output until no stage makes progress. If a stage panics, it is
    /// not called again, and the caller counts the result before it continues the panic by
    /// [`Chain::resume_panic`].
    pub(crate) fn pump(&mut self, input: &[u8], behind: Behind, output: &mut [u8]) -> Passed {
        let mut total = Passed::default();
        loop {
            let mut moved = false;
            for at in 0..self.links.len() {
                let before = at.checked_sub(1).map(|before| self.links[before].done);
                let behind = match before {
                    None => behind,
                    Some(false) => Behind::More,
                    Some(true) if behind == Behind::Cut => Behind::Cut,
                    Some(true) => Behind::End,
                };
                let link = &mut self.links[at];
                let (upstream, downstream) = self.between.split_at_mut(at);
                let (upstream, mut downstream) = (upstream.last_mut(), downstream.first_mut());
                let bytes = match &upstream {
                    None => &input[total.taken..],
                    Some(held) => held.bytes(),
                };
                let room = match &mut downstream {
                    Some(held) => held.room(),
                    None => &mut output[total.made..],
                };
                let was_done = link.done;
                let mut passed = Passed::default();
                let turn = || link.turn(bytes, behind, room, &mut passed);
                let done = catch_unwind(AssertUnwindSafe(turn));
                match downstream {
                    Some(held) => held.put(passed.made),
                    None => total.made += passed.made,
                }
                match upstream {
                    Some(held) => held.took(passed.taken),
                    None => total.taken += passed.taken,
                }
                if let Err(payload) = done {
                    self.panic = Some(payload);
                    return total;
                }
                moved |= passed != Passed::default() || link.done != was_done;
            }
            if !moved {
                return total;
            }
        }
    }

    /// Continues the panic of a stage, if there was one.
    pub(crate) fn resume_panic(&mut self) {
        if let Some(payload) = self.panic.take() {
            resume_unwind(payload);
        }
    }

    /// Whether all output has been made.
    pub(crate) fn done(&self) -> bool {
        self.links.last().is_none_or(|link| link.done)
    }

    /// Returns the first fault in the order of the stages.
    pub(crate) fn fault(&self) -> Option<Errno> {
        let mut faults = self.links.iter().filter_map(|link| link.fault.as_ref());
        faults.next().map(|fault| fault.errno)
    }

    /// Whether a few input bytes can become very many output bytes.
    pub(crate) fn expands(&self) -> bool {
        self.links.iter().any(|link| link.stage.expands())
    }

    pub(super) fn report(&self) -> Vec<StageReport> {
        let mut all = Vec::new();
        for link in &self.links {
            all.extend(link.before.iter().map(Inspector::report));
            all.push(link.report());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::transform::Finished;
    use super::*;

    /// Writes each byte twice, one output byte at a time, and an end mark.
    struct Twice(u8);

    impl Transform for Twice {
        fn name(&self) -> &'static str {
            "twice"
        }

        fn transform(&mut self, input: &[u8], output: &mut [u8]) -> Result<Passed, Fault> {
            let Some(byte) = input.first() else {
                return Ok(Passed::default());
            };
            output[0] = *byte;
            self.0 ^= 1;
            Ok(Passed {
                taken: usize::from(self.0 == 0),
                made: 1,
            })
        }

        fn finish(&mut self, output: &mut [u8]) -> Result<Finished, Fault> {
            output[0] = b'.';
            Ok(Finished {
                made: 1,
                done: true,
            })
        }
    }

    /// Neither takes nor makes bytes.
    struct Idle;

    impl Transform for Idle {
        fn name(&self) -> &'static str {
            "idle"
        }

        fn transform(&mut self, _: &[u8], _: &mut [u8]) -> Result<Passed, Fault> {
            Ok(Passed::default())
        }

        fn finish(&mut self, _: &mut [u8]) -> Result<Finished, Fault> {
            Ok(Finished::default())
        }
    }

    fn chain(stages: Vec<Box<dyn Transform>>) -> Chain {
        let mut chain = Chain::default();
        for stage in stages {
            chain.push(Vec::new(), stage);
        }
        chain.prepare().unwrap();
        chain
    }

    /// Panics at this call.
    struct Panics(u32);

    impl Transform for Panics {
        fn name(&self) -> &'static str {
            "panics"
        }

        fn transform(&mut self, input: &[u8], output: &mut [u8]) -> Result<Passed, Fault> {
            if self.0 == 0 {
                resume_unwind(Box::new(()));
            }
            self.0 -= 1;
            output[0] = input[0];
            Ok(Passed { taken: 1, made: 1 })
        }

        fn finish(&mut self, _: &mut [u8]) -> Result<Finished, Fault> {
            unreachable!("it has panicked");
        }
    }

    #[test]
    fn the_output_of_a_stage_that_panics_is_kept() {
        let twice = || Box::new(Twice(0)) as Box<dyn Transform>;
        for (stages, taken, wanted) in [
            (vec![Box::new(Panics(1)) as _, twice()], 1, &b"aa."[..]),
            (vec![twice(), Box::new(Panics(3)), twice()], 2, b"aaaabb."),
        ] {
            let mut chain = chain(stages);
            let (mut output, mut total, mut panics) = ([0; 64], Passed::default(), 0);
            while !chain.done() {
                let rest = &b"ab"[total.taken..];
                let passed = chain.pump(rest, Behind::Cut, &mut output[total.made..]);
                total.taken += passed.taken;
                total.made += passed.made;
                panics +=
                    u32::from(catch_unwind(AssertUnwindSafe(|| chain.resume_panic())).is_err());
            }
            assert_eq!((panics, total.taken), (1, taken));
            assert_eq!(&output[..total.made], wanted);
        }
    }

    #[test]
    fn stages_stack_whatever_the_room() {
        for room in [1, 2, 3, 64] {
            let mut chain = chain(vec![Box::new(Twice(0)), Box::new(Twice(0))]);
            let (mut at, mut made) = (0, Vec::new());
            while !chain.done() {
                let mut output = [0; 64];
                let passed = chain.pump(&b"ab"[at..], Behind::End, &mut output[..room]);
                at += passed.taken;
                made.extend_from_slice(&output[..passed.made]);
            }
            assert_eq!(made, b"aaaabbbb...", "{room}");
            let report = chain.report();
            assert_eq!((report[0].bytes_in, report[0].bytes_out), (2, 5));
            assert_eq!((report[1].bytes_in, report[1].bytes_out), (5, 11));
        }
    }

    #[test]
    fn a_stage_that_makes_no_progress_is_a_fault_and_no_endless_loop() {
        for (input, behind) in [(&b"a"[..], Behind::More), (b"", Behind::End)] {
            let mut chain = chain(vec![Box::new(Idle), Box::new(Twice(0))]);
            let mut output = [0; 8];
            let passed = chain.pump(input, behind, &mut output);
            assert_eq!(
                (passed.taken, passed.made),
                (0, 1),
                "the next one ends well"
            );
            assert!(chain.done());
            assert_eq!(chain.fault(), Some(Errno::EIO));
        }
    }
}
