//! What is wanted of a source or a sink.

/// Whether the other end makes everything awkward, or everything fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Feeders write in uneven pieces, collectors keep all they get.
    Verify,
    /// Feeders and collectors cost as little as they can; nothing is kept.
    Throughput,
}

/// What is wanted of a source or a sink.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// Bytes. A source of records makes as many whole records as fit.
    pub size: u64,
    /// Whether `O_NONBLOCK` is set on the descriptor.
    pub nonblocking: bool,
    /// For checking or for timing.
    pub pace: Pace,
}

impl Spec {
    /// A blocking one for checking.
    pub fn verify(size: u64) -> Spec {
        Spec {
            size,
            nonblocking: false,
            pace: Pace::Verify,
        }
    }

    /// A blocking one for timing.
    pub fn throughput(size: u64) -> Spec {
        Spec {
            pace: Pace::Throughput,
            ..Spec::verify(size)
        }
    }

    /// The same with `O_NONBLOCK` as given.
    #[must_use]
    pub fn nonblocking(self, nonblocking: bool) -> Spec {
        Spec {
            nonblocking,
            ..self
        }
    }

    /// Whether bytes are to be kept and compared.
    pub fn keeps(&self) -> bool {
        self.pace == Pace::Verify
    }
}
