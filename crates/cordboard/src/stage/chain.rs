//! A chain of stages that change the bytes, each with the inspecting stages
//! before it.

use super::held::Held;
use super::inspector::Inspector;
use super::report::StageReport;
use super::transform::{Fault, Passed, Transform};
use crate::errno::Errno;

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
    /// Output that the next stage has not taken; `None` for the last.
    held: Option<Held>,
}

impl Link {
    /// Calls the stage once, if there is input, or output to make.
    fn turn(&mut self, input: &[u8], behind: Behind, output: &mut [u8]) -> Passed {
        if self.done || output.is_empty() {
            return Passed::default();
        }
        let done = if !input.is_empty() || self.full {
            self.transform(input, output)
        } else if behind != Behind::More {
            let done = self.finish(output);
            let excused = |fault: &Fault| behind == Behind::Cut && fault.errno != Errno::ENOMEM;
            if done.as_ref().is_err_and(excused) {
                self.done = true;
                return Passed::default();
            }
            done
        } else {
            return Passed::default();
        };
        done.unwrap_or_else(|fault| {
            // Earlier output is still written.
            self.fault = Some(fault);
            self.done = true;
            Passed::default()
        })
    }

    fn transform(&mut self, input: &[u8], output: &mut [u8]) -> Result<Passed, Fault> {
        let passed = self.stage.transform(input, output)?;
        let idle = passed == Passed::default() && !input.is_empty();
        if idle || passed.taken > input.len() || passed.made > output.len() {
            return Err(broken(self.stage.name()));
        }
        self.full = passed.made == output.len();
        for seen in &mut self.before {
            seen.inspect(&input[..passed.taken]);
        }
        self.taken += passed.taken as u64;
        self.made += passed.made as u64;
        Ok(passed)
    }

    fn finish(&mut self, output: &mut [u8]) -> Result<Passed, Fault> {
        let finished = self.stage.finish(output)?;
        let idle = finished.made == 0 && !finished.done;
        if idle || finished.made > output.len() {
            return Err(broken(self.stage.name()));
        }
        self.done = finished.done;
        self.made += finished.made as u64;
        Ok(Passed {
            taken: 0,
            made: finished.made,
        })
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
            held: None,
        });
    }

    /// Allocates the buffers between the stages.
    pub(crate) fn prepare(&mut self) -> Result<(), Errno> {
        let between = self.links.len().saturating_sub(1);
        for link in &mut self.links[..between] {
            link.held = Some(Held::with_capacity(BETWEEN)?);
        }
        Ok(())
    }

    /// Takes input and makes output until no stage makes progress.
    pub(crate) fn pump(&mut self, input: &[u8], behind: Behind, output: &mut [u8]) -> Passed {
        let mut total = Passed::default();
        loop {
            let mut moved = false;
            for at in 0..self.links.len() {
                let (before, link) = self.links.split_at_mut(at);
                let (upstream, link) = (before.last_mut(), &mut link[0]);
                let (input, behind) = match &upstream {
                    None => (&input[total.taken..], behind),
                    Some(up) => {
                        let held = up.held.as_ref().map_or(&[][..], Held::bytes);
                        let behind = match up.done {
                            true if behind != Behind::Cut => Behind::End,
                            true => Behind::Cut,
                            false => Behind::More,
                        };
                        (held, behind)
                    }
                };
                let was_done = link.done;
                let passed = match link.held.take() {
                    Some(mut held) => {
                        let passed = link.turn(input, behind, held.room());
                        held.put(passed.made);
                        link.held = Some(held);
                        passed
                    }
                    None => {
                        let passed = link.turn(input, behind, &mut output[total.made..]);
                        total.made += passed.made;
                        passed
                    }
                };
                match upstream.and_then(|up| up.held.as_mut()) {
                    Some(held) => held.took(passed.taken),
                    None => total.taken += passed.taken,
                }
                moved |= passed != Passed::default() || link.done != was_done;
            }
            if !moved {
                return total;
            }
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
