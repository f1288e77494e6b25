//! Sparse copies at random.

use super::*;

/// Random layouts, sizes, offsets and endings, compared with a model.
#[test]
fn holes_at_random() {
    let _dog = watchdog("holes_at_random");
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    for round in 0..300 {
        let extents = random(12);
        let (mut at, mut data) = (0, Vec::new());
        for _ in 0..extents {
            at += random(6) * 4096;
            let length = 1 + random(5 * 4096);
            data.push((at, length as usize));
            at += length;
        }
        let size = at + random(3 * 4096);
        let source = holey(size, &data);
        let old = vec![0x55; random(4) as usize * 9000];
        let sink = file_with(&old);
        let (from, to) = (random(size + 1), random(old.len() as u64 + 9000));
        let by_offset = random(2) == 0;
        for (mut file, place) in [(&source, from), (&sink, to)] {
            file.seek(SeekFrom::Start(if by_offset { 3 } else { place }))
                .unwrap();
        }
        let most = random(size + 4096);
        let path = COPYING[random(4) as usize];
        if by_offset && path == Sendfile {
            continue;
        }
        let request = Request {
            sparse: [Sparse::Auto, Sparse::Always]
                [usize::from(path == ReadWrite && round % 2 == 0)],
            source_offset: by_offset.then_some(from),
            sink_offset: by_offset.then_some(to),
            size: cordboard::Size::Bytes(most),
            block: std::num::NonZeroUsize::new(1 + random(20_000) as usize),
            ..only(&[path, ReadWrite])
        };
        let control = cordboard::Control::new().unwrap();
        let cancels = random(3) == 0;
        let mut early = meanwhile(|| {
            if cancels {
                control.cancel();
            }
        });
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let report = transfer.control(&control).observe(&mut early).run().report;
        let what = format!("{round}: {from} {to} {most} {by_offset} {data:?} {size}: {report:?}");
        let wanted = most.min(size - from);
        assert_eq!(
            (report.read, report.failed),
            (report.written, None),
            "{what}"
        );
        assert!(report.written <= wanted, "{what}");
        assert!(report.written == wanted || cancels, "{what}");
        let written = report.written as usize;
        let mut right = old.clone();
        if written > 0 {
            right.resize(right.len().max(to as usize + written), 0);
            let bytes = &content_at(&source, from)[..written];
            right[to as usize..][..written].copy_from_slice(bytes);
        }
        let places = [position(&source), position(&sink)];
        let moved = [from + report.written, to + report.written];
        assert_eq!(places, if by_offset { [3, 3] } else { moved }, "{what}");
        assert!(content(&sink) == right, "{what}");
    }
}

fn content_at(file: &File, from: u64) -> Vec<u8> {
    let mut all = vec![0; (file.metadata().unwrap().len() - from) as usize];
    file.read_exact_at(&mut all, from).unwrap();
    all
}
