//! TYPE A: lines end in CR LF on the network, and in LF in files.

use cordboard::stage::{Fault, Finished, Passed, Transform};

/// From files to the network: LF becomes CR LF.
#[derive(Debug, Default)]
pub struct ToNetwork {
    /// The last byte was CR: no CR is inserted before a following LF.
    after_cr: bool,
    /// The inserted CR is written, and its LF is not.
    owes_lf: bool,
}

impl Transform for ToNetwork {
    fn name(&self) -> &'static str {
        "ascii"
    }

    fn transform(&mut self, input: &[u8], output: &mut [u8]) -> Result<Passed, Fault> {
        let mut passed = Passed::default();
        while passed.made < output.len() {
            if self.owes_lf {
                output[passed.made] = b'\n';
                passed.made += 1;
                self.owes_lf = false;
                continue;
            }
            let Some(byte) = input.get(passed.taken) else {
                break;
            };
            passed.taken += 1;
            if *byte == b'\n' && !self.after_cr {
                output[passed.made] = b'\r';
                self.owes_lf = true;
            } else {
                output[passed.made] = *byte;
            }
            self.after_cr = *byte == b'\r';
            passed.made += 1;
        }
        Ok(passed)
    }

    fn finish(&mut self, output: &mut [u8]) -> Result<Finished, Fault> {
        let made = usize::from(std::mem::take(&mut self.owes_lf));
        if made == 1 {
            output[0] = b'\n';
        }
        Ok(Finished { made, done: true })
    }
}

/// From the network to files: CR LF becomes LF.
#[derive(Debug, Default)]
pub struct FromNetwork {
    /// A CR whose next byte has not arrived.
    held_cr: bool,
}

impl Transform for FromNetwork {
    fn name(&self) -> &'static str {
        "ascii"
    }

    fn transform(&mut self, input: &[u8], output: &mut [u8]) -> Result<Passed, Fault> {
        let mut passed = Passed::default();
        while passed.made < output.len() {
            let Some(byte) = input.get(passed.taken) else {
                break;
            };
            if self.held_cr && *byte != b'\n' {
                output[passed.made] = b'\r';
                passed.made += 1;
                self.held_cr = false;
                continue;
            }
            passed.taken += 1;
            self.held_cr = *byte == b'\r';
            if !self.held_cr {
                output[passed.made] = *byte;
                passed.made += 1;
            }
        }
        Ok(passed)
    }

    fn finish(&mut self, output: &mut [u8]) -> Result<Finished, Fault> {
        let made = usize::from(std::mem::take(&mut self.held_cr));
        if made == 1 {
            output[0] = b'\r';
        }
        Ok(Finished { made, done: true })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(stage: &mut dyn Transform, input: &[u8], piece: usize, room: usize) -> Vec<u8> {
        let mut made = Vec::new();
        let mut output = vec![0; room];
        for part in input.chunks(piece) {
            let mut part = part;
            loop {
                let passed = stage.transform(part, &mut output).unwrap();
                made.extend_from_slice(&output[..passed.made]);
                part = &part[passed.taken..];
                if part.is_empty() && passed.made < room {
                    break;
                }
            }
        }
        loop {
            let finished = stage.finish(&mut output).unwrap();
            made.extend_from_slice(&output[..finished.made]);
            if finished.done {
                return made;
            }
        }
    }

    #[test]
    fn ends_of_lines() {
        let to = |text: &[u8]| all(&mut ToNetwork::default(), text, 100, 100);
        let from = |text: &[u8]| all(&mut FromNetwork::default(), text, 100, 100);
        assert_eq!(to(b"a\nb\r\nc\r"), b"a\r\nb\r\nc\r");
        assert_eq!(from(b"a\r\nb\nc\r\r\nd\r"), b"a\nb\nc\r\nd\r");
    }

    proptest! {
        #[test]
        fn the_same_in_any_pieces(
            text in prop::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'x')], 0..50),
            piece in 1..9usize,
            room in 1..9usize,
        ) {
            let whole = all(&mut ToNetwork::default(), &text, 1000, 1000);
            prop_assert_eq!(&all(&mut ToNetwork::default(), &text, piece, room), &whole);
            let back = all(&mut FromNetwork::default(), &whole, piece, room);
            prop_assert_eq!(&back, &all(&mut FromNetwork::default(), &whole, 1000, 1000));
            if !text.contains(&b'\r') {
                prop_assert_eq!(back, text);
            }
        }
    }
}
