//! The paths that a transfer has used, and the bytes of each.

use crate::report::{BestSetting, Chosen, PathUse};
use crate::request::DataPath;

/// The paths that moved bytes. Most transfers use one, whose bytes are those of the
/// transfer.
#[derive(Debug)]
pub(super) struct Used {
    /// Why the current path is used.
    entered: Chosen,
    first: Option<(DataPath, Chosen)>,
    /// Set once a second path is used, or a setting is known.
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
    pub(super) fn new() -> Used {
        Used {
            entered: Chosen::First,
            first: None,
            several: None,
        }
    }

    /// Records why the path is used that begins now.
    pub(super) fn enter(&mut self, why: Chosen) {
        self.entered = why;
    }

    /// Returns the path whose first use was the latest.
    pub(super) fn latest(&self) -> Option<DataPath> {
        match &self.several {
            Some(several) => several.paths.last().map(|one| one.path),
            None => self.first.map(|(path, _)| path),
        }
    }

    /// Records that the transfer had read `before` bytes, and has read `now` by a step of
    /// this path.
    pub(super) fn note(&mut self, path: DataPath, before: u64, now: u64) {
        if now <= before {
            return;
        }
        let Some((first, why)) = self.first else {
            self.first = Some((path, self.entered));
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
            several.add(path, self.entered, now);
        }
    }

    /// Records the path of a transfer that moved nothing, unless there is one.
    pub(super) fn note_end(&mut self, path: DataPath) {
        self.first.get_or_insert((path, self.entered));
    }

    /// Marks the path of the best setting, of a transfer that has read `now` bytes.
    pub(super) fn found_best(&mut self, path: DataPath, best: BestSetting, now: u64) {
        if let Some(one) = self.find(path, now) {
            one.set_best(best);
        }
    }

    /// Records the size of the calls with which the path has begun, because an earlier transfer
    /// has found it.
    pub(super) fn has_begun_with(&mut self, path: DataPath, piece: usize, now: u64) {
        if self.first == Some((path, Chosen::Remembered))
            && let Some(one) = self.find(path, now)
        {
            one.piece = Some(piece);
        }
    }

    fn find(&mut self, path: DataPath, now: u64) -> Option<&mut PathUse> {
        let (first, why) = self.first?;
        let one_path = || Several {
            paths: vec![PathUse::new(first, now, why)],
            counted: now,
            last: 0,
        };
        let several = self.several.get_or_insert_with(|| Box::new(one_path()));
        several.paths.iter_mut().find(|one| one.path == path)
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
    use DataPath::{Direct, ReadWrite, Sendfile, Splice};

    const BEST: BestSetting = BestSetting {
        piece: 4096,
        depth: None,
        after: 50,
    };

    #[test]
    fn the_bytes_of_all_paths_are_those_of_the_transfer() {
        let mut used = Used::new();
        used.note(Sendfile, 0, 0);
        assert_eq!(used.latest(), None);
        used.note(Sendfile, 0, 10);
        used.note(Sendfile, 10, 30);
        used.enter(Chosen::Next);
        // A hole of 5 bytes between two steps.
        used.note(Splice, 35, 40);
        used.enter(Chosen::Measured);
        // It keeps the reason of its first use.
        used.note(Sendfile, 40, 47);
        used.note(ReadWrite, 47, 100);
        used.found_best(ReadWrite, BEST, 100);
        assert_eq!(used.latest(), Some(ReadWrite));
        // Three bytes went back to the source.
        let all = used.take(97);
        let bytes: Vec<_> = all.iter().map(|one| (one.path, one.bytes)).collect();
        assert_eq!(bytes, [(Sendfile, 42), (Splice, 5), (ReadWrite, 50)]);
        let chosen: Vec<_> = (all.iter())
            .map(|one| (one.chosen, one.piece, one.after))
            .collect();
        let expected = [
            (Chosen::First, None, None),
            (Chosen::Next, None, None),
            (Chosen::Best, Some(4096), Some(50)),
        ];
        assert_eq!(chosen, expected);
    }

    #[test]
    fn one_path_has_all_bytes() {
        let mut used = Used::new();
        used.note(Splice, 0, 9);
        used.enter(Chosen::Next);
        used.note_end(ReadWrite);
        assert_eq!(used.take(7), [PathUse::new(Splice, 7, Chosen::First)]);
        assert_eq!(used.take(7), []);
        used.note_end(ReadWrite);
        assert_eq!(used.take(0), [PathUse::new(ReadWrite, 0, Chosen::Next)]);
    }

    /// The setting is known before or after the next path moves bytes, or there is no other path.
    #[test]
    fn the_first_path_may_have_the_best_setting() {
        let best = BestSetting {
            depth: Some(2),
            ..BEST
        };
        for later in [false, true] {
            let mut used = Used::new();
            used.found_best(Direct, best, 0);
            used.note(Direct, 0, 10);
            used.note(Direct, 10, 30);
            used.found_best(Direct, best, 30);
            if later {
                used.enter(Chosen::Next);
                used.note(ReadWrite, 35, 40);
            }
            // A path that has moved nothing.
            used.found_best(Splice, BEST, 40);
            let all = used.take(40);
            assert_eq!((all[0].chosen, all[0].piece), (Chosen::Best, Some(4096)));
            assert_eq!((all[0].depth, all[0].after), (Some(2), Some(50)));
            let bytes: Vec<_> = all.iter().map(|one| (one.path, one.bytes)).collect();
            match later {
                true => assert_eq!(bytes, [(Direct, 30), (ReadWrite, 10)]),
                false => assert_eq!(bytes, [(Direct, 40)]),
            }
        }
    }

    #[test]
    fn the_size_of_an_earlier_transfer_is_that_of_its_path() {
        for (why, piece) in [(Chosen::Remembered, Some(5)), (Chosen::First, None)] {
            let mut used = Used::new();
            used.enter(why);
            used.note(Splice, 0, 9);
            used.has_begun_with(ReadWrite, 6, 9);
            used.has_begun_with(Splice, 5, 9);
            let all = used.take(9);
            assert_eq!((all.len(), all[0].bytes), (1, 9));
            assert_eq!((all[0].chosen, all[0].piece), (why, piece));
        }
    }
}
