//! Block devices that become smaller while they are read.

use super::*;
use common::mount::Loop;
use cordboard::DataPath::{self, Direct};

const MIB: usize = 1 << 20;

/// A read behind the end of a device returns 0, also if the disk was unplugged: a copy of a part
/// of it would count as complete.
#[test]
fn a_device_that_loses_its_capacity_has_not_ended() {
    let _dog = watchdog("a_device_that_loses_its_capacity_has_not_ended");
    let data = pattern(4 * MIB);
    let copied_by = |path: DataPath, left: usize, engine: bool| {
        let Some(disk) = Loop::new(|image| std::fs::write(image, &data).unwrap()) else {
            return false;
        };
        let (source, sink) = (disk.open(), tempfile::tempfile().unwrap());
        let [from, to] = [&source, &sink].map(|file| file.try_clone().unwrap().into());
        let transfer = Transfer::owning(from, to, only(&[path])).unwrap();
        disk.resize(left as u64);
        let report = match engine {
            true => {
                let engine = cordboard::Engine::new(Default::default()).unwrap();
                engine.start(transfer).unwrap().wait().report
            }
            false => transfer.run().report,
        };
        let what = format!("{path}, {left}, {engine}: {report:?}");
        let failure = (report.ended, report.failed, report.errno);
        let expected = (Ended::Error, Some(Side::Source), Some(Errno::ENODATA));
        assert_eq!(failure, expected, "{what}");
        let counts = (report.read, report.written);
        assert_eq!(counts, (left as u64, left as u64), "{what}");
        assert!(content(&sink) == data[..left], "{what}");
        true
    };
    let mut paths = common::forcible(&[Sendfile, Splice, ReadWrite]);
    if common::has_direct_files() {
        paths.push(Direct);
    }
    for path in paths {
        for (left, engine) in [(0, false), (MIB, false), (MIB, true)] {
            if !copied_by(path, left, engine) {
                return;
            }
        }
    }
}
