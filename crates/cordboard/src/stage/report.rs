//! The report of one stage.

/// One stage's part of a [`Report`](crate::Report). If there is one, the bytes
/// passed through user space.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StageReport {
    /// The name of the stage: `blake3`, `zstd`.
    pub stage: &'static str,
    /// The number of bytes that the stage inspected or took.
    pub bytes_in: u64,
    /// The number of bytes that the stage made; equal to `bytes_in` for an
    /// inspecting stage.
    pub bytes_out: u64,
    /// The value of a hash.
    pub digest: Option<String>,
    /// Why the stage rejected the bytes.
    pub fault: Option<String>,
}

#[cfg(feature = "serde")]
impl serde::Serialize for StageReport {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let more = usize::from(self.digest.is_some()) + usize::from(self.fault.is_some());
        let mut out = serializer.serialize_struct("StageReport", 3 + more)?;
        out.serialize_field("stage", self.stage)?;
        out.serialize_field("in", &self.bytes_in)?;
        out.serialize_field("out", &self.bytes_out)?;
        if let Some(digest) = &self.digest {
            out.serialize_field("digest", digest)?;
        }
        if let Some(fault) = &self.fault {
            out.serialize_field("fault", fault)?;
        }
        out.end()
    }
}
