//! A transfer that failed, and its text.

use std::fmt;

use super::{Ended, Refusal, Report, Stranded};
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::quantity::Bytes;
use crate::request::{Declined, Why};

/// A transfer that failed: the side, the errno, and the bytes moved before. Or
/// a transfer that ended early with stranded bytes: [`Report::ended`] is then
/// not [`Ended::Error`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Failure {
    /// Set if the request was refused before any byte moved.
    pub refusal: Option<Refusal>,
    /// The report up to the failure.
    pub report: Box<Report>,
    /// Bytes that were read and not written.
    pub stranded: Option<Stranded>,
}

impl Failure {
    pub(crate) fn refused(refusal: Refusal) -> Failure {
        let mut report = Report::nothing(refusal.side(), Some(refusal.errno()));
        if let Refusal::NoPath { declined } = &refusal {
            report.declined.clone_from(declined);
        }
        Failure {
            report: Box::new(report),
            refusal: Some(refusal),
            stranded: None,
        }
    }
}

impl Report {
    /// Returns the path that declined last, if the transfer has failed because all paths of its
    /// route have declined. The last entry of [`declined`](Report::declined) alone does not tell
    /// that: a transfer can fail for another reason after a path has declined.
    ///
    /// Neither side has failed then, and [`errno`](Report::errno) is the errno with which the path
    /// declined, or that of `poll(2)` ([`Why::CannotWait`]), or `EOPNOTSUPP`.
    pub fn no_path_left(&self) -> Option<&Declined> {
        let last = self.declined.last().filter(|_| self.failed.is_none())?;
        let is_reason = match last.why {
            Why::Errno(errno) => self.errno == Some(errno),
            Why::CannotWait => true,
            Why::Kinds(_) | Why::Words(_) => self.errno == Some(Errno::EOPNOTSUPP),
        };
        is_reason.then_some(last)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(refusal) = &self.refusal {
            return refusal.fmt(f);
        }
        let report = &self.report;
        if report.ended != Ended::Error {
            return write!(
                f,
                "the transfer ended early ({}); {} written, {} read and returned to the caller",
                report.ended,
                Bytes(report.written),
                report.stranded
            );
        }
        if (report.failed, report.errno) == (Some(Side::Source), Some(Errno::ENODATA)) {
            // The report has no kind of source.
            return write!(
                f,
                "the source was truncated during the transfer, or is a block device with bad \
                 sectors (ENODATA), after {}",
                Bytes(report.read)
            );
        }
        if let Some(fault) = report.stages.iter().find_map(|s| s.fault.as_ref()) {
            return write!(f, "{fault}; {} written", Bytes(report.written));
        }
        if let Some(last) = report.no_path_left() {
            return write!(
                f,
                "no usable data path is left: {} ({})",
                last.path, last.why
            );
        }
        match report.failed {
            Some(side) => write!(f, "the {side} failed")?,
            None => f.write_str("the transfer failed")?,
        }
        if let Some(errno) = report.errno {
            write!(f, ": {errno}")?;
        }
        write!(f, "; {} written", Bytes(report.written))?;
        if report.stranded > 0 {
            write!(f, ", {} read and returned to the caller", report.stranded)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for std::io::Error {
    fn from(failure: Failure) -> std::io::Error {
        match failure.report.errno {
            Some(errno) => errno.into(),
            None => std::io::Error::other(failure.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::DataPath;
    use crate::stage::StageReport;

    /// Paths that have declined before are not the reason of each failure without a side.
    #[test]
    fn a_failure_names_a_path_only_if_it_is_the_reason() {
        let text = |errno, why: Why, fault: Option<&str>| {
            let report = Report {
                declined: vec![Declined {
                    path: DataPath::Splice,
                    why,
                }],
                stages: vec![StageReport {
                    stage: "zstd",
                    bytes_in: 0,
                    bytes_out: 0,
                    digest: None,
                    fault: fault.map(str::to_owned),
                }],
                ..Report::nothing(None, Some(errno))
            };
            let failure = Failure {
                report: Box::new(report),
                refusal: None,
                stranded: None,
            };
            failure.to_string()
        };
        let path = "no usable data path is left: splice";
        assert!(text(Errno::EINVAL, Errno::EINVAL.into(), None).starts_with(path));
        assert!(text(Errno::EOPNOTSUPP, "stages".into(), None).starts_with(path));
        assert!(text(Errno::EPERM, Why::CannotWait, None).starts_with(path));
        for why in [Why::from("stages"), Errno::EINVAL.into()] {
            let failed = text(Errno::ENOMEM, why.clone(), None);
            assert!(failed.starts_with("the transfer failed"), "{failed}");
            let failed = text(Errno::ENOMEM, why, Some("no memory"));
            assert!(failed.starts_with("no memory"), "{failed}");
        }
    }
}
