//! The properties of a source or a sink.

/// Whether the other end works for checking or for speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Feeders write in uneven pieces, collectors keep all they receive.
    Verify,
    /// Feeders and collectors cost as little as they can; nothing is kept.
    Throughput,
}

/// The properties of a source or a sink.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// Bytes. A source of records has as many whole records as fit.
    pub size: u64,
    /// Whether `O_NONBLOCK` is set on the descriptor.
    pub nonblocking: bool,
    /// For checking or for timing.
    pub pace: Pace,
}

impl Spec {
    /// A blocking descriptor for checking.
    pub fn verify(size: u64) -> Spec {
        Spec {
            size,
            nonblocking: false,
            pace: Pace::Verify,
        }
    }

    /// A blocking descriptor for timing.
    pub fn throughput(size: u64) -> Spec {
        Spec {
            pace: Pace::Throughput,
            ..Spec::verify(size)
        }
    }

    /// Sets whether `O_NONBLOCK` is set.
    #[must_use]
    pub fn nonblocking(self, nonblocking: bool) -> Spec {
        Spec {
            nonblocking,
            ..self
        }
    }

    /// Whether bytes are kept and compared.
    pub fn keeps(&self) -> bool {
        self.pace == Pace::Verify
    }
}
