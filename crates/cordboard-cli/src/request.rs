//! The library's request, from the flags.

use std::fmt::Display;
use std::os::fd::BorrowedFd;

use cordboard::engine::Backend;
use cordboard::{Endpoint, Request, Size, Sparse, Switches, Tune};
use rustix::fs::FileType;

use crate::endpoint::Existing;
use crate::flags::{Paths, Range, When, Writing};
use crate::problem::Problem;
use crate::units;

/// Returns the switches of `--route` and `--without`, each of which overrides
/// its environment variable; `None` if neither is given.
fn switches(paths: &Paths) -> Result<Option<Switches>, Problem> {
    let bad = |bad: cordboard::request::BadSwitch| Problem::usage("", bad.to_string());
    // An invalid word is reported before anything is opened, even if it is
    // unused.
    let from_env = Switches::from_env().map_err(bad)?;
    Backend::from_env().map_err(|bad| Problem::usage("", bad.to_string()))?;
    Tune::from_env().map_err(|bad| Problem::usage("", bad.to_string()))?;
    if paths.route.is_empty() && paths.without.is_empty() {
        return some_path(paths, from_env).map(|_| None);
    }
    let env = |name| std::env::var(name).unwrap_or_default();
    let mut switches = if paths.route.is_empty() {
        Switches::parse(&env("CORDBOARD_ROUTE"), "").map_err(bad)?
    } else {
        Switches::only(&paths.route)
    };
    if paths.without.is_empty() {
        let left = Switches::parse("", &env("CORDBOARD_WITHOUT")).map_err(bad)?;
        for path in cordboard::DataPath::ALL {
            if !left.allows(*path) {
                switches = switches.without(*path);
            }
        }
    }
    for path in &paths.without {
        switches = switches.without(*path);
    }
    some_path(paths, switches).map(Some)
}

/// Refuses switches that leave no path: wrong usage for every pair.
fn some_path(paths: &Paths, switches: Switches) -> Result<Switches, Problem> {
    let mut all = cordboard::DataPath::ALL.iter();
    if all.any(|path| switches.allows(*path)) {
        return Ok(switches);
    }
    let given = [
        (&paths.route, "--route", "CORDBOARD_ROUTE"),
        (&paths.without, "--without", "CORDBOARD_WITHOUT"),
    ];
    let given = given.into_iter().filter_map(|(words, option, variable)| {
        let is_set = |variable| std::env::var_os(variable).is_some_and(|words| !words.is_empty());
        match words.is_empty() {
            false => Some(option),
            true => is_set(variable).then_some(variable),
        }
    });
    let text = match &given.collect::<Vec<_>>()[..] {
        [route, without] => format!("{route} and {without} leave no path"),
        one => format!("{} leaves no path", one.concat()),
    };
    let none = Problem::usage("", text);
    Err(none.help("allow read/write, which takes every pair"))
}

/// Refuses environment variables with which every transfer fails.
pub fn check_environment() -> Result<(), Problem> {
    switches(&Paths::default()).map(drop)
}

/// The request of a command that writes a sink.
pub fn for_writing(range: &Range, paths: &Paths, writing: &Writing) -> Result<Request, Problem> {
    // A hole behind the end would extend the file, and would contain or cut off
    // what another process appends meanwhile.
    if writing.append && writing.sparse == When::Always {
        let text = "--append writes every byte, and excludes --sparse always";
        return Err(Problem::usage("", text).help("omit one of the two"));
    }
    // A write to a file that is open with O_APPEND ignores its offset (pwrite(2)).
    if writing.append && writing.sink_offset.is_some() {
        let text = "--append writes behind the end, and excludes --sink-offset";
        return Err(Problem::usage("", text).help("omit one of the two"));
    }
    Ok(Request {
        sync: writing.sync,
        sink_offset: writing.sink_offset,
        ..common(range, paths, writing.sparse.into())?
    })
}

/// The same request for no bytes. Run before a sink is emptied, it shows whether the
/// descriptors and the buffer of the transfer can be created, and moves nothing.
pub fn for_no_bytes(request: &Request) -> Request {
    Request {
        size: Size::Bytes(0),
        sync: false,
        ..request.clone()
    }
}

/// What happens to the contents that the sink has.
pub fn existing(writing: &Writing) -> Existing {
    match (writing.append, writing.sink_offset) {
        (true, _) => Existing::Append,
        (false, Some(_)) => Existing::Keep,
        (false, None) => Existing::Replace,
    }
}

/// The part of the request that all commands share.
pub fn common(range: &Range, paths: &Paths, sparse: Sparse) -> Result<Request, Problem> {
    Ok(Request {
        size: range.size.map_or(Size::Eof, Size::Bytes),
        source_offset: range.offset,
        block: paths.block,
        stable: paths.stable,
        sparse,
        switches: switches(paths)?,
        ..Request::default()
    })
}

/// The number of bytes to move, if it is known beforehand.
pub fn total(source: BorrowedFd<'_>, request: &Request) -> Option<u64> {
    let there = size(source).and_then(|size| {
        let from = match request.source_offset {
            Some(offset) => offset,
            None => rustix::fs::tell(source).ok()?,
        };
        Some(size.saturating_sub(from))
    });
    at_most(there, request)
}

/// The number of bytes to move, of `there` bytes behind the offset.
pub fn at_most(there: Option<u64>, request: &Request) -> Option<u64> {
    let wanted = match request.size {
        Size::Bytes(n) => Some(n),
        _ => None,
    };
    match (wanted, there) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => b.or(a),
    }
}

/// Returns the warning about an offset behind the end of the source, which has no byte there.
pub fn offset_warning(
    (source, shown): (BorrowedFd<'_>, &dyn Display),
    request: &Request,
) -> Option<String> {
    let (offset, size) = (request.source_offset?, size(source)?);
    (offset > size).then(|| {
        let size = units::number_of(size, "byte");
        format!("cordboard: {shown}: warning: byte {offset} is behind its end ({size})")
    })
}

/// The size of a file or a block device, if it is known: generated files have
/// size 0.
pub fn size(fd: BorrowedFd<'_>) -> Option<u64> {
    let stat = cordboard::fstat(fd).ok()?;
    let size = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => u64::try_from(stat.st_size).ok(),
        FileType::BlockDevice => Endpoint::probe(fd).ok()?.facts().size,
        _ => None,
    };
    size.filter(|size| *size > 0)
}
