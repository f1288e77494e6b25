//! Compression and decompression with Zstandard (RFC 8878).

use std::borrow::Cow;
use std::io;

use zstd::stream::raw::{CParameter, Decoder, Encoder, Operation, OutBuffer};

use super::transform::{Fault, Finished, Passed, Transform};
use crate::errno::Errno;
use crate::quantity::Bytes;

/// Compresses to one frame with a content checksum, as `zstd(1)` does.
pub(super) struct Compress(Encoder<'static>);

impl Compress {
    pub(super) fn new(level: i32) -> Result<Compress, Errno> {
        // zstd itself would clamp the level.
        if !zstd::compression_level_range().contains(&level) {
            return Err(Errno::EINVAL);
        }
        let make = || {
            let mut encoder = Encoder::new(level)?;
            encoder.set_parameter(CParameter::ChecksumFlag(true))?;
            // The first call allocates (`ZSTD_compressStream2`,
            // lib/compress/zstd_compress.c), so it is made before anything is
            // read.
            encoder.run_on_buffers(&[], &mut [])?;
            Ok::<_, io::Error>(encoder)
        };
        make().map(Compress).map_err(|_| Errno::ENOMEM)
    }
}

impl Transform for Compress {
    fn name(&self) -> &'static str {
        "zstd"
    }

    fn transform(&mut self, input: &[u8], output: &mut [u8]) -> Result<Passed, Fault> {
        let (passed, _) = run(&mut self.0, input, output)?;
        Ok(passed)
    }

    fn finish(&mut self, output: &mut [u8]) -> Result<Finished, Fault> {
        let mut out = OutBuffer::around(output);
        let left = self.0.finish(&mut out, true).map_err(|e| fault(&e))?;
        Ok(Finished {
            made: out.pos(),
            done: left == 0,
        })
    }
}

/// The library's message (`lib/common/error_private.c`) for a frame that refers
/// back more than 2^27 bytes, which only `--long` makes.
const TOO_LARGE: &str = "Frame requires too much memory for decoding";

/// The library's message for a frame that names a dictionary, of which it has none.
const DICTIONARY: &str = "Dictionary mismatch";

/// The library's message if it cannot allocate, which it does with the first
/// bytes of a frame.
const NO_MEMORY: &str = "Allocation error : not enough memory";

/// Decompresses one or more frames, up to the end of the source.
pub(super) struct Decompress {
    decoder: Decoder<'static>,
    /// Whether more input is required: inside a frame, and at the start, since
    /// one frame is required.
    within: bool,
    taken: u64,
}

impl Decompress {
    pub(super) fn new() -> Result<Decompress, Errno> {
        Ok(Decompress {
            decoder: Decoder::new().map_err(|_| Errno::ENOMEM)?,
            within: true,
            taken: 0,
        })
    }
}

impl Transform for Decompress {
    fn name(&self) -> &'static str {
        "unzstd"
    }

    fn transform(&mut self, input: &[u8], output: &mut [u8]) -> Result<Passed, Fault> {
        let (passed, hint) = run(&mut self.decoder, input, output).map_err(|fault| {
            if fault.errno == Errno::ENOMEM {
                return fault;
            }
            let why = match self.within {
                _ if fault.why == TOO_LARGE => {
                    "the window of the zstd data exceeds the limit of 128 MiB \
                     (zstd -d --long=31 decompresses it)"
                        .to_owned()
                }
                _ if fault.why == DICTIONARY => "the zstd data needs its dictionary \
                     (zstd -d -D FILE decompresses it)"
                    .to_owned(),
                true if self.taken > 0 => {
                    format!("corrupt zstd data after {}: {fault}", Bytes(self.taken))
                }
                true => format!("not zstd data: {fault}"),
                false => format!("trailing data at byte {} is not zstd: {fault}", self.taken),
            };
            Fault {
                why: why.into(),
                ..fault
            }
        })?;
        self.taken += passed.taken as u64;
        // A call without progress only returns the length of the next header.
        if passed != Passed::default() {
            self.within = hint > 0;
        }
        Ok(passed)
    }

    fn finish(&mut self, _output: &mut [u8]) -> Result<Finished, Fault> {
        // The last call left output free, so the input was decoded completely.
        if !self.within {
            return Ok(Finished {
                made: 0,
                done: true,
            });
        }
        let why = match self.taken {
            0 => Cow::Borrowed("empty input, where zstd data is expected"),
            n => format!("zstd data truncated after {}", Bytes(n)).into(),
        };
        Err(Fault {
            errno: Errno::EBADMSG,
            why,
        })
    }

    fn expands(&self) -> bool {
        true
    }
}

fn run(
    operation: &mut impl Operation,
    input: &[u8],
    output: &mut [u8],
) -> Result<(Passed, usize), Fault> {
    let done = operation
        .run_on_buffers(input, output)
        .map_err(|e| fault(&e))?;
    let passed = Passed {
        taken: done.bytes_read,
        made: done.bytes_written,
    };
    Ok((passed, done.remaining))
}

fn fault(error: &io::Error) -> Fault {
    let why = error.to_string();
    if why == NO_MEMORY {
        let errno = Errno::ENOMEM;
        return Fault {
            errno,
            why: format!("zstd: {errno}").into(),
        };
    }
    Fault {
        errno: Errno::EBADMSG,
        why: why.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "cordboard" as `zstd(1)` writes it; a raw block, and the checksum.
    #[test]
    fn a_known_frame() {
        let frame = zstd::encode_all(&b"cordboard"[..], 3).unwrap();
        assert_eq!(frame[..4], [0x28, 0xb5, 0x2f, 0xfd], "the magic number");
        let mut stage = Decompress::new().unwrap();
        let mut out = [0; 64];
        let passed = stage.transform(&frame, &mut out).unwrap();
        assert_eq!((passed.taken, passed.made), (frame.len(), 9));
        assert_eq!(&out[..9], b"cordboard");
        let end = stage.finish(&mut out).unwrap();
        assert!(end.done && end.made == 0);
    }

    #[test]
    fn levels_that_do_not_exist() {
        for level in [23, 100, i32::MIN] {
            assert_eq!(Compress::new(level).err(), Some(Errno::EINVAL));
        }
        for level in [-7, 1, 3, 22] {
            assert!(Compress::new(level).is_ok());
        }
    }

    #[test]
    fn what_is_no_zstd_data_is_told_apart() {
        let frame = zstd::encode_all(&[9; 5000][..], 3).unwrap();
        let told = |bytes: &[u8]| {
            let mut stage = Decompress::new().unwrap();
            let mut at = 0;
            while at < bytes.len() {
                match stage.transform(&bytes[at..], &mut [0; 8192]) {
                    Ok(passed) => at += passed.taken,
                    Err(fault) => return fault.to_string(),
                }
            }
            stage.finish(&mut [0; 10]).unwrap_err().to_string()
        };
        assert!(told(b"").contains("empty input"));
        assert!(told(b"plain text").contains("not zstd data"));
        assert!(told(&frame[..frame.len() - 1]).contains("truncated"));
        let twice = [&frame[..], &frame[..7]].concat();
        assert!(told(&twice).contains("truncated"));
        let behind = [&frame[..], b"garbage"].concat();
        assert!(told(&behind).contains("trailing data"));
        // A window of 2^31 bytes (RFC 8878, 3.1.1.1.2), and an empty last block.
        let long = [0x28, 0xb5, 0x2f, 0xfd, 0, (31 - 10) << 3, 1, 0, 0];
        for before in [&b""[..], &frame] {
            let told = told(&[before, &long].concat());
            assert!(told.starts_with("the window of the zstd data"), "{told}");
            assert!(told.contains("--long=31"), "{told}");
        }
        // A dictionary with the number 5 (RFC 8878, 3.1.1.1.3).
        let other = [0x28, 0xb5, 0x2f, 0xfd, 1, 7 << 3, 5, 1, 0, 0];
        for before in [&b""[..], &frame] {
            let told = told(&[before, &other].concat());
            assert!(
                told.starts_with("the zstd data needs its dictionary"),
                "{told}"
            );
        }
        let mut damaged = frame.clone();
        *damaged.last_mut().unwrap() ^= 1;
        damaged[6] ^= 0xff;
        assert!(told(&damaged).contains("zstd data"));
    }
}
