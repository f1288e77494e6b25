//! The pairs that use direct I/O, by facts alone.

use super::places;
use crate::endpoint::{Facts, Kind};
use crate::errno::Errno;
use crate::pair::Pair;
use crate::path::verdict::Takes;
use crate::request::Why;
use crate::request::{Direct, Sparse};

/// Below this, opening the files again and allocating memory costs more than is
/// saved.
const LEAST: u64 = 16 << 20;
/// Largest percentage of the source in the page cache. The device reads it
/// again; if reads and writes share its rate, each percent costs half a percent
/// of time.
const CACHED: u8 = 10;

/// Checks what is known without querying the kernel for alignment or the cache.
pub(crate) fn worth_asking(pair: &Pair<'_>) -> Result<(), Why> {
    let (source, sink) = (pair.source, pair.sink);
    let on_a_device = |facts: &Facts| matches!(facts.kind, Kind::File | Kind::BlockDevice);
    if !on_a_device(source) || !on_a_device(sink) {
        return Err(Why::Kinds("source and sink are not both files on devices"));
    }
    if pair.direct_io == Direct::Never {
        return Err("the request excludes direct I/O".into());
    }
    if sink.append {
        return Err("appending writes have no fixed offset".into());
    }
    if pair.relation != crate::pair::Relation::Strangers {
        return Err("source and sink are the same file".into());
    }
    if pair.request.sparse == Sparse::Always && sink.kind == Kind::File {
        return Err("the request turns blocks of zeros into holes".into());
    }
    if pair.from().is_none() || pair.to().is_none() {
        return Err(Errno::ESPIPE.into());
    }
    if pair.direct_io == Direct::Always {
        return Ok(());
    }
    if pair.known().is_none_or(|known| known < LEAST) {
        return Err("too few bytes to gain from direct I/O".into());
    }
    if !pair.request.sync {
        return Err("without sync the page cache is faster".into());
    }
    let foreign = |facts: &Facts| facts.kind == Kind::File && !facts.has_true_size();
    if foreign(source) || foreign(sink) {
        return Err("the file system may not be on a local device".into());
    }
    // Since Linux 6.15 btrfs writes files with checksums through the page cache itself
    // (`btrfs_direct_write`, fs/btrfs/direct-io.c).
    if (sink.filesystem)
        .is_some_and(|fs| sink.kind == Kind::File && fs.compresses_buffered_writes())
    {
        return Err("the file system compresses only what passes through the page cache".into());
    }
    Ok(())
}

/// Accepts two different files or block devices with congruent offsets that
/// are, unless requested otherwise, large, synced, and mostly not in the page
/// cache.
pub(crate) fn takes(pair: &Pair<'_>) -> Takes {
    worth_asking(pair)?;
    let (source, sink) = (pair.source, pair.sink);
    let (Some(from), Some(to)) = (source.alignment, sink.alignment) else {
        return Err("no direct I/O here".into());
    };
    let unit = places::unit(from, to)?;
    if pair.from().unwrap_or(0) % unit != pair.to().unwrap_or(0) % unit {
        return Err(places::INCONGRUENT.into());
    }
    if pair.direct_io == Direct::Always {
        return Ok("direct I/O is requested");
    }
    match source.cached {
        Ok(percent) if percent <= CACHED => Ok("large, synced, and not in the page cache"),
        Ok(percent) => Err(Why::Words(
            format!("{percent} % of the source is in the page cache").into(),
        )),
        Err(Errno::ENOSYS) => {
            Err("whether the source is cached is unknown before Linux 6.5".into())
        }
        Err(Errno::EPERM) => {
            Err("this user may not query whether the source is cached (EPERM)".into())
        }
        Err(errno) => Err(Why::Words(
            format!("whether the source is cached is unknown ({errno:?})").into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::{Alignment, Filesystem};
    use crate::pair::Relation;
    use crate::request::Request;

    fn file() -> Facts {
        Facts {
            filesystem: Some(Filesystem(0xEF53)),
            alignment: Some(Alignment {
                memory: 512,
                offset: 512,
            }),
            cached: Ok(0),
            ..Facts::plain(Kind::File)
        }
    }

    fn synced() -> Request {
        Request {
            sync: true,
            ..Request::default()
        }
    }

    fn taken(source: &Facts, sink: &Facts, request: &Request) -> bool {
        takes(&Pair::new(source, sink, request)).is_ok()
    }

    #[test]
    fn large_cold_and_synced() {
        assert!(taken(&file(), &file(), &synced()));
        assert!(!taken(&file(), &file(), &Request::default()));
        let small = Facts {
            size: Some(LEAST - 1),
            ..file()
        };
        assert!(!taken(&small, &file(), &synced()));
        for (cached, right) in [(Err(Errno::ENOSYS), false), (Ok(10), true), (Ok(11), false)] {
            let source = Facts { cached, ..file() };
            assert_eq!(taken(&source, &file(), &synced()), right, "{cached:?}");
        }
        let foreign = Facts {
            filesystem: Some(Filesystem(0x6969)),
            ..file()
        };
        assert!(!taken(&foreign, &file(), &synced()));
        assert!(!taken(&file(), &foreign, &synced()));
        let compressed = Facts {
            filesystem: Some(Filesystem(0x9123_683e)),
            ..file()
        };
        assert!(taken(&compressed, &file(), &synced()));
        assert!(!taken(&file(), &compressed, &synced()));
        let device = Facts {
            kind: Kind::BlockDevice,
            ..file()
        };
        assert!(taken(&device, &file(), &synced()) && taken(&file(), &device, &synced()));
    }

    #[test]
    fn asked_for_it_is_taken_wherever_it_can_be() {
        let always = Request {
            direct: Direct::Always,
            ..Request::default()
        };
        let tiny = Facts {
            size: Some(1),
            cached: Ok(100),
            ..file()
        };
        assert!(taken(&tiny, &file(), &always));
        let no_alignment = Facts {
            alignment: None,
            ..file()
        };
        assert!(!taken(&tiny, &no_alignment, &always));
        let coarse = Facts {
            alignment: Some(Alignment {
                memory: 512,
                offset: 1 << 20,
            }),
            ..file()
        };
        assert!(!taken(&coarse, &file(), &always));
        let shifted = |position| Facts {
            position: Some(position),
            ..file()
        };
        assert!(!taken(&shifted(512), &file(), &always));
        assert!(taken(&shifted(512), &shifted(4096 + 512), &always));
        let offsets = |from, to| Request {
            source_offset: Some(from),
            sink_offset: Some(to),
            ..always.clone()
        };
        // Whatever the positions are.
        assert!(taken(&shifted(1), &file(), &offsets(512, 512)));
        assert!(!taken(&file(), &file(), &offsets(512, 0)));
        let never = Request {
            direct: Direct::Never,
            ..synced()
        };
        assert!(!taken(&file(), &file(), &never));
    }

    #[test]
    fn what_has_no_place_of_its_own_is_left_alone() {
        let append = Facts {
            append: true,
            ..file()
        };
        assert!(!taken(&file(), &append, &synced()));
        let (source, sink, request) = (file(), file(), synced());
        let pair = Pair {
            relation: Relation::SameFile,
            ..Pair::new(&source, &sink, &request)
        };
        assert!(takes(&pair).is_err());
    }
}
