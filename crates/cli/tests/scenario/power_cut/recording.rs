//! Records the requests that a disk receives while a command runs.

use std::{fs, ops::Range, path::PathBuf, process::Command, thread, time::Duration};

use super::{
    command::{CutCase, same_command, unsuccessful},
    cut::PowerCut,
    place::Place,
    reboot::uptime,
    system::{DiskSystem, copy_image},
};
use crate::support::{
    Running,
    fuse::disk::{DiskEvent, FuseDisk},
    loop_disk::{LoopDevice, MountedDisk},
};
use thalweg_testing::Dice;

/// The log of a disk.
pub struct Recording {
    pub log: Vec<DiskEvent>,
    /// The part of the log in which the command ran.
    command: Range<usize>,
    /// The random options of this run.
    pub words: Vec<String>,
    /// Time of the unmount, in seconds since boot.
    pub ended: u64,
}

impl Recording {
    /// Runs a command on a disk that FUSE serves, while another process writes and syncs there. Records a skip without
    /// FUSE.
    pub fn make(
        test: &str,
        case: &CutCase,
        system: &DiskSystem,
        place: &Place,
        dice: &mut Dice,
    ) -> Option<Self> {
        let served = place.memory().join("served.img");
        copy_image(&place.base(), &served);
        let fuse = FuseDisk::serve(test, &served, &place.memory().join("fuse"))?;
        let device = LoopDevice::attach(&fuse.file());
        let disk = MountedDisk::of_device(device, &place.disk(), system.options).unwrap();
        let words = case.chosen_words(dice);
        let start = fuse.position();
        let other = OtherWriter::start(place, dice);
        let ran = case.run(place, &words, same_command);
        let end = fuse.position();
        // The kernel writes back unsynced data after the command, in an order of its choice.
        thread::sleep(Duration::from_millis(dice.within(0..400)));
        other.stop();
        drop(disk);
        let log = fuse.take_log();
        drop(fuse);
        fs::remove_file(&served).unwrap();
        assert_eq!(
            ran.code(),
            case.exit_status(),
            "{}",
            unsuccessful(case.name, &ran, &place.disk())
        );
        Some(Self { log, command: start..end, words, ended: uptime() })
    }

    /// Chooses the moment of a cut, during or after the command, and the writes that the cut loses.
    pub fn choose_cut(&self, case: &CutCase, dice: &mut Dice) -> PowerCut {
        let (command, len) = (&self.command, self.log.len());
        let range = match dice.within(0..8) {
            // The first moment at which the command had ended, or any later one.
            0 | 1 if case.durable => command.end..=command.end,
            2 | 3 if case.durable => command.end..=len,
            4 => command.end..=len,
            _ => command.start..=command.end,
        };
        let cut = PowerCut::within(range, dice);
        if dice.within(0..3) == 0 { cut.before_flush(&self.log) } else { cut }
    }

    /// Returns `true` if the command had ended before the cut.
    pub fn had_ended(&self, cut: &PowerCut) -> bool {
        cut.at >= self.command.end
    }
}

/// A process that writes and syncs on the same disk. Its `fsync` commits the names and sizes of other files, not their
/// data; its `syncfs` commits both.
struct OtherWriter {
    running: Running,
    stop: PathBuf,
}

const WRITE_AND_SYNC: &str = "stop=$1 other=$2
shift 2
while :; do
    for wait; do
        [ ! -e \"$stop\" ] || exit 0
        sleep 0.$wait
        echo $wait >\"$other\"
        case $wait in
        *[05]) sync -f \"$other\" ;;
        *) sync \"$other\" ;;
        esac
    done
done";

impl OtherWriter {
    fn start(place: &Place, dice: &mut Dice) -> Self {
        let stop = place.memory().join("stop");
        let _ = fs::remove_file(&stop);
        let waits = (0..20).map(|_| format!("{:03}", dice.within(1..90)));
        let mut command = Command::new("sh");
        command.args(["-c", WRITE_AND_SYNC, "sh"]).arg(&stop).arg(place.disk().join("other"));
        Self { running: Running::start(command.args(waits)), stop }
    }

    fn stop(self) {
        fs::write(&self.stop, "").unwrap();
        self.running.finish().expect(0);
    }
}
