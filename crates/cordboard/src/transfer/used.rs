//! The paths that a transfer has used, and the bytes of each.

use crate::report::{Chosen, PathUse};
use crate::request::DataPath;

/// The paths that moved bytes. Most transfers use one, whose bytes are those of the
/// transfer.
#[derive(Debug, Default)]
pub(super) struct Used {
    first: Option<(DataPath, Chosen)>,
    /// Set once a second path is used.
    several: Option<Box<Several>>,
}

#[derive(Debug)]
struct Several {
    /// In the order of their first use.
    paths: Vec<PathUse>,
    /// The sum of the bytes of all paths.
    counted: u64,
    /// The index of the path that moved bytes last.
    last: usize,
}

impl Used {
    /// Returns the path whose first use was the latest.
    pub(super) fn latest(&self) -> Option<DataPath> {
        match &self.several {
            Some(several) => several.paths.last().map(|one| one.path),
            None => self.first.map(|(path, _)| path),
        }
    }

    /// Records that the transfer had read `before` bytes, and has read `now` by a step of
    /// this path.
    pub(super) fn note(&mut self, path: DataPath, chosen: Chosen, before: u64, now: u64) {
        if now <= before {
            return;
        }
        let Some((first, why)) = self.first else {
            self.first = Some((path, chosen));
            return;
        };
        if self.several.is_none() {
            if first == path {
                return;
            }
            self.several = Some(Box::new(Several {
                paths: vec![PathUse::new(first, before, why)],
                counted: before,
                last: 0,
            }));
        }
        if let Some(several) = &mut self.several {
            several.add(path, chosen, now);
        }
    }

    /// Records the path of a transfer that moved nothing, unless there is one.
    pub(super) fn note_end(&mut self, path: DataPath, chosen: Chosen) {
        self.first.get_or_insert((path, chosen));
    }

    /// Marks the path that was the best of those measured.
    pub(super) fn found_best(&mut self, path: DataPath, piece: usize) {
        if let Some(several) = &mut self.several
            && let Some(best) = several.paths.iter_mut().find(|one| one.path == path)
        {
            best.chosen = Chosen::Best;
            best.piece = Some(piece);
        }
    }

    /// Returns the bytes of each path of a transfer that has read this many. Bytes that
    /// went back to the source were held by the last path.
    pub(super) fn take(&mut self, read: u64) -> Vec<PathUse> {
        let first = self.first.take();
        match self.several.take() {
            Some(mut several) => {
                let last = &mut several.paths[several.last].bytes;
                *last = (*last + read).saturating_sub(several.counted);
                several.paths
            }
            None => Vec::from_iter(first.map(|(path, chosen)| PathUse::new(path, read, chosen))),
        }
    }
}

impl Several {
    fn add(&mut self, path: DataPath, chosen: Chosen, now: u64) {
        self.last = match self.paths.iter().position(|one| one.path == path) {
            Some(index) => index,
            None => {
                self.paths.push(PathUse::new(path, 0, chosen));
                self.paths.len() - 1
            }
        };
        // Also the holes that were skipped since the last step that moved bytes.
        self.paths[self.last].bytes += now.saturating_sub(self.counted);
        self.counted = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DataPath::{ReadWrite, Sendfile, Splice};

    #[test]
    fn the_bytes_of_all_paths_are_those_of_the_transfer() {
        let mut used = Used::default();
        used.note(Sendfile, Chosen::First, 0, 0);
        assert_eq!(used.latest(), None);
        used.note(Sendfile, Chosen::First, 0, 10);
        used.note(Sendfile, Chosen::First, 10, 30);
        // A hole of 5 bytes between two steps.
        used.note(Splice, Chosen::Next, 35, 40);
        used.note(Sendfile, Chosen::First, 40, 47);
        used.note(ReadWrite, Chosen::Measured, 47, 100);
        used.found_best(ReadWrite, 4096);
        assert_eq!(used.latest(), Some(ReadWrite));
        // Three bytes went back to the source.
        let all = used.take(97);
        let bytes: Vec<_> = all.iter().map(|one| (one.path, one.bytes)).collect();
        assert_eq!(bytes, [(Sendfile, 42), (Splice, 5), (ReadWrite, 50)]);
        let chosen: Vec<_> = all.iter().map(|one| (one.chosen, one.piece)).collect();
        let expected = [
            (Chosen::First, None),
            (Chosen::Next, None),
            (Chosen::Best, Some(4096)),
        ];
        assert_eq!(chosen, expected);
    }

    #[test]
    fn one_path_has_all_bytes() {
        let mut used = Used::default();
        used.note(Splice, Chosen::First, 0, 9);
        used.note_end(ReadWrite, Chosen::Next);
        assert_eq!(used.take(7), [PathUse::new(Splice, 7, Chosen::First)]);
        assert_eq!(used.take(7), []);
        used.note_end(ReadWrite, Chosen::Next);
        assert_eq!(used.take(0), [PathUse::new(ReadWrite, 0, Chosen::Next)]);
    }
}
