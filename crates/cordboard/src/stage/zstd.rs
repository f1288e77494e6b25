//! Compression and decompression with Zstandard (RFC 8878).

use std::borrow::Cow;
use std::io;

use zstd::stream::raw::{CParameter, Decoder, Encoder, Operation, OutBuffer};

use super::report::StageReport;
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

/// The library's message for data that does not begin as a frame does.
const UNKNOWN: &str = "Unknown frame descriptor";

/// The library's message for a frame that names a dictionary, of which it has none.
const DICTIONARY: &str = "Dictionary mismatch";

/// The library's message if it cannot allocate, which it does with the first
/// bytes of a frame.
const NO_MEMORY: &str = "Allocation error : not enough memory";

/// The name of the stage.
const UNZSTD: &str = "unzstd";

/// The length of the longest header of a frame (`ZSTD_FRAMEHEADERSIZE_MAX`).
const LARGEST_HEADER: usize = 18;

/// The number of frames without content that may precede the first header that is checked:
/// pzstd(1) writes one.
const SKIPPED: usize = 16;

/// Reads bytes at a position of the data.
pub(super) type ReadAt<'a> = dyn FnMut(u64, &mut [u8]) -> Result<usize, Errno> + 'a;

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

    /// Makes a decoder for data whose first header is valid, with the memory for that frame.
    /// `read` returns bytes at a position of the data; fewer than requested if it ends there. If
    /// it fails, the data is not checked.
    ///
    /// # Errors
    ///
    /// The errno and the report of a stage that has failed at that header, or at the end of data
    /// that is shorter.
    pub(super) fn of(read: &mut ReadAt<'_>) -> Result<Decompress, (Errno, StageReport)> {
        let rejected = |fault: Fault, taken| {
            let report = StageReport {
                stage: UNZSTD,
                bytes_in: taken,
                bytes_out: 0,
                digest: None,
                fault: Some(fault.to_string()),
            };
            (fault.errno, report)
        };
        let mut stage = Decompress::new().map_err(|errno| rejected(no_memory(errno), 0))?;
        let (mut start, mut position) = ([0; LARGEST_HEADER], 0);
        for _ in 0..SKIPPED {
            let Ok(length) = read(position, &mut start) else {
                return Ok(stage);
            };
            let start = &start[..length];
            if let Some(frame) = skippable(start) {
                position = position.saturating_add(frame);
                continue;
            }
            // As if the frames before it were decoded.
            (stage.within, stage.taken) = (position == 0, position);
            let checked = stage.check(start, length < LARGEST_HEADER);
            let taken = stage.taken;
            (stage.within, stage.taken) = (true, 0);
            // `ZSTD_reset_session_only` keeps the buffers.
            let reset = checked.and_then(|()| stage.decoder.reinit().map_err(|e| fault(&e)));
            reset.map_err(|fault| rejected(fault, taken))?;
            break;
        }
        Ok(stage)
    }

    /// Decodes the start of the data without output: `ZSTD_decompressStream` checks the header,
    /// and allocates the window (lib/decompress/zstd_decompress.c). `ends`: that is all.
    fn check(&mut self, start: &[u8], ends: bool) -> Result<(), Fault> {
        if !ends {
            return self.transform(start, &mut []).map(drop);
        }
        let (mut at, mut output, mut full) = (0, [0; 4096], false);
        while at < start.len() || full {
            let passed = self.transform(&start[at..], &mut output)?;
            at += passed.taken;
            full = passed.made == output.len();
        }
        self.finish(&mut output).map(drop)
    }
}

/// Returns the length of the frame that begins here, if it is one without content (RFC 8878,
/// 3.1.2).
fn skippable(start: &[u8]) -> Option<u64> {
    let (magic, rest) = start.split_first_chunk()?;
    let length = rest.first_chunk()?;
    let is_skippable = u32::from_le_bytes(*magic) & !0xf == 0x184d_2a50;
    is_skippable.then(|| 8 + u64::from(u32::from_le_bytes(*length)))
}

impl Transform for Decompress {
    fn name(&self) -> &'static str {
        UNZSTD
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
                true if fault.why == UNKNOWN => format!("not zstd data: {fault}"),
                true => format!("corrupt zstd data: {fault}"),
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
        return no_memory(Errno::ENOMEM);
    }
    Fault {
        errno: Errno::EBADMSG,
        why: why.into(),
    }
}

fn no_memory(errno: Errno) -> Fault {
    Fault {
        errno,
        why: format!("zstd: {errno}").into(),
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
        let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
        encoder.include_checksum(true).unwrap();
        std::io::Write::write_all(&mut encoder, b"some bytes").unwrap();
        let mut damaged = encoder.finish().unwrap();
        *damaged.last_mut().unwrap() ^= 1;
        let told_of_damaged = told(&damaged);
        assert!(
            told_of_damaged.contains("corrupt zstd data"),
            "{told_of_damaged}"
        );
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

    /// Returns the check of data, and what a transfer would report.
    fn checked(data: &[u8]) -> Result<Decompress, (Errno, StageReport)> {
        Decompress::of(&mut |position, into| {
            let from = usize::try_from(position).unwrap().min(data.len());
            let length = into.len().min(data.len() - from);
            into[..length].copy_from_slice(&data[from..][..length]);
            Ok(length)
        })
    }

    #[test]
    fn the_first_header_is_checked() {
        let frame = zstd::encode_all(&[9; 5000][..], 3).unwrap();
        let empty = zstd::encode_all(&b""[..], 3).unwrap();
        let skipped = [0x5f, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
        let long = [0x28, 0xb5, 0x2f, 0xfd, 0, (31 - 10) << 3];
        let dictionary = [0x28, 0xb5, 0x2f, 0xfd, 1, 7 << 3, 5];
        let padded = |header: &[u8]| [header, &[0; 40]].concat();
        for (data, why) in [
            (b"".to_vec(), "empty input"),
            (b"plain".to_vec(), "not zstd data: "),
            (padded(b"plain"), "not zstd data: "),
            (frame[..3].to_vec(), "zstd data truncated after 3 bytes"),
            (frame[..10].to_vec(), "zstd data truncated after 10 bytes"),
            (long.to_vec(), "the window of the zstd data"),
            (padded(&long), "the window of the zstd data"),
            (padded(&dictionary), "the zstd data needs its dictionary"),
            (
                [&skipped[..], b"garbage"].concat(),
                "trailing data at byte 11 is not zstd",
            ),
            (
                [&skipped[..], &padded(&long)].concat(),
                "the window of the zstd data",
            ),
        ] {
            let (errno, report) = checked(&data).err().unwrap();
            assert_eq!(errno, Errno::EBADMSG);
            let fault = report.fault.unwrap();
            assert!(fault.starts_with(why), "{why}: {fault}");
        }
        // The stage is as new.
        for (data, content) in [
            (frame.clone(), &[9; 5000][..]),
            (empty.clone(), b""),
            (skipped.to_vec(), b""),
            ([&skipped[..], &skipped, &frame].concat(), &[9; 5000]),
            ([&empty[..], &frame].concat(), &[9; 5000]),
        ] {
            let mut stage = checked(&data).unwrap();
            let (mut at, mut out) = (0, Vec::new());
            while at < data.len() {
                let mut room = [0; 8192];
                let passed = stage.transform(&data[at..], &mut room).unwrap();
                at += passed.taken;
                out.extend_from_slice(&room[..passed.made]);
            }
            assert!(stage.finish(&mut [0; 10]).unwrap().done);
            assert_eq!(out, content);
        }
        // What cannot be read is not checked.
        assert!(Decompress::of(&mut |_, _| Err(Errno::EIO)).is_ok());
    }

    /// A frame with a window of 128 MiB, of which no page is touched before the first block.
    #[test]
    fn the_window_of_the_first_frame_is_allocated() {
        let large = [0x28, 0xb5, 0x2f, 0xfd, 0, (27 - 10) << 3];
        let data = [&large[..], &[0; 20]].concat();
        let fails = testkit::child::in_a_child(|| {
            testkit::child::limit_addresses(64 << 20);
            checked(&data).is_err_and(|(errno, _)| errno == Errno::ENOMEM)
        });
        assert!(fails);
        let holds = testkit::child::in_a_child(|| {
            let mut stage = checked(&data).unwrap();
            testkit::child::limit_addresses(1 << 20);
            let passed = stage.transform(&data, &mut [0; 10]);
            passed.is_ok_and(|passed| passed.taken == data.len())
        });
        assert!(holds);
    }
}
