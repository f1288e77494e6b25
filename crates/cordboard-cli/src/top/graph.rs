//! A small graph: a column for each sample. The highest sample has full height.

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];

/// Returns a graph of the last samples in this number of columns. The lowest mark is zero.
pub fn graph<'a>(
    samples: impl DoubleEndedIterator<Item = &'a f64>,
    columns: usize,
    unicode: bool,
) -> String {
    let marks = if unicode { BLOCKS } else { ASCII };
    let mut last: Vec<f64> = samples.rev().take(columns).copied().collect();
    last.reverse();
    let highest = last.iter().copied().fold(0.0, f64::max);
    let mark = |sample: f64| match highest > 0.0 {
        true => marks[((sample / highest * 7.0).ceil() as usize).min(7)],
        false => marks[0],
    };
    let empty = std::iter::repeat_n(' ', columns - last.len());
    empty
        .chain(last.iter().map(|sample| mark(*sample)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights() {
        let samples = [0.0, 1.0, 7.0, 3.5, 0.0];
        assert_eq!(graph(samples.iter(), 6, true), " ▁▂█▅▁");
        assert_eq!(graph(samples.iter(), 3, true), "█▅▁");
        assert_eq!(graph(samples.iter(), 6, false), " _.#=_");
        assert_eq!(graph([0.0, 0.0].iter(), 2, true), "▁▁");
        assert_eq!(graph([].iter(), 3, true), "   ");
    }
}
