//! Runs a setting with one kernel.

use std::time::{Duration, Instant};
use thalweg_sys::usage::Usage;

use crate::copier::CopierChoice;
use crate::guest::Guest;
use crate::queue::PacketQueue;
use crate::sizes::{PacketOrder, PacketSizes};
use crate::switch::{BufferRing, Forward, forward_of};

#[derive(Clone, Copy, Debug)]
pub struct BenchSetting {
    pub sizes: PacketSizes,
    pub order: PacketOrder,
    pub mbufs: u32,
    pub cores: u8,
    /// Number of packets of a run; each `run` request of the study sets it.
    pub packets: u64,
}

/// Result of a run.
#[derive(Clone, Copy, Debug)]
pub struct BenchTime {
    pub wall: Duration,
    pub usage: Usage,
    pub bytes: u64,
}

/// Two ports, each with a queue to and a queue from the switch, and the buffers of the switch.
pub struct Ports {
    queues: [[PacketQueue; 2]; 2],
    pool: BufferRing,
    sizes: Vec<u16>,
}

impl Ports {
    pub fn new(setting: &BenchSetting) -> Self {
        let queue = || [PacketQueue::new(), PacketQueue::new()];
        let sizes = setting.sizes.sequence(setting.order);
        Self { queues: [queue(), queue()], pool: BufferRing::new(setting.mbufs), sizes }
    }

    /// Forwards the packets of the setting, half in each direction. If the number is odd, the first guest sends one
    /// more. If `looks` is `true`, every byte is compared.
    pub fn run(
        &mut self,
        choice: CopierChoice,
        setting: &BenchSetting,
        looks: bool,
    ) -> Result<BenchTime, String> {
        let Self { queues: [one, other], pool, sizes } = self;
        let mut guests = [
            Guest::new(&one[0], &one[1], sizes, looks),
            Guest::new(&other[0], &other[1], sizes, looks),
        ];
        let ways = [(&one[0], &other[1]), (&other[0], &one[1])];
        // The number of packets that each guest sends. The other guest receives as many.
        let sent = [setting.packets.div_ceil(2), setting.packets / 2];
        let forward = Forwarding { choice, batch: forward_of(choice) };
        let (usage, began) = (Usage::now_process(), Instant::now());
        if setting.cores == 1 {
            alternate(&mut guests, &ways, pool, sent, forward);
        } else {
            std::thread::scope(|scope| {
                let switch = || switch_alone(&ways, pool, setting.packets, forward);
                std::thread::Builder::new().spawn_scoped(scope, switch)?;
                guests_alone(&mut guests, sent);
                Ok(())
            })
            .map_err(|error: std::io::Error| {
                format!("cannot start the thread that forwards packets: {error}")
            })?;
        }
        let wall = began.elapsed();
        let usage = Usage::now_process().since(&usage);
        let bytes = guests.iter().map(Guest::bytes).sum();
        for guest in guests {
            std::hint::black_box(guest.verdict()?);
        }
        Ok(BenchTime { wall, usage, bytes })
    }
}

/// A kernel, and the function that forwards a batch with it.
#[derive(Clone, Copy)]
struct Forwarding {
    choice: CopierChoice,
    batch: Forward,
}

type QueuePairs<'q> = [(&'q PacketQueue, &'q PacketQueue); 2];

/// Packets that each guest must still send and receive.
struct Due {
    end: [u64; 2],
    receives: [u64; 2],
}

impl Due {
    fn new(guests: &[Guest<'_>; 2], sends: [u64; 2]) -> Self {
        let end = [guests[0].sent() + sends[0], guests[1].sent() + sends[1]];
        Self { end, receives: [sends[1], sends[0]] }
    }

    /// Makes a step of each guest. Returns the number of packets received.
    #[inline(always)]
    fn step(&mut self, guests: &mut [Guest<'_>; 2]) -> u64 {
        let mut came = 0;
        for (n, guest) in guests.iter_mut().enumerate() {
            let new = guest.step(self.end[n] - guest.sent());
            self.receives[n] -= new;
            came += new;
        }
        came
    }

    fn is_done(&self) -> bool {
        self.receives == [0; 2]
    }
}

/// Runs guests and switch in turn until all packets are received.
fn alternate(
    guests: &mut [Guest<'_>; 2],
    ways: &QueuePairs<'_>,
    pool: &mut BufferRing,
    sends: [u64; 2],
    forward: Forwarding,
) {
    let mut due = Due::new(guests, sends);
    while !due.is_done() {
        due.step(guests);
        for (from, to) in ways {
            (forward.batch)(forward.choice, from, to, pool);
        }
    }
}

fn guests_alone(guests: &mut [Guest<'_>; 2], sends: [u64; 2]) {
    let mut due = Due::new(guests, sends);
    while !due.is_done() {
        if due.step(guests) == 0 {
            std::hint::spin_loop();
        }
    }
}

fn switch_alone(ways: &QueuePairs<'_>, pool: &mut BufferRing, mut left: u64, forward: Forwarding) {
    while left > 0 {
        let moved: u64 =
            ways.iter().map(|(from, to)| (forward.batch)(forward.choice, from, to, pool)).sum();
        left -= moved;
        if moved == 0 {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_delivers_every_byte_of_every_packet() {
        for (sizes, mbufs, cores) in [
            (PacketSizes::Imix, 512, 1),
            (PacketSizes::Fixed(60), 64, 1),
            (PacketSizes::Fixed(1518), 8192, 2),
        ] {
            let setting =
                BenchSetting { sizes, order: PacketOrder::Iid, mbufs, cores, packets: 3001 };
            let mut ports = Ports::new(&setting);
            for choice in CopierChoice::all() {
                for _ in 0..2 {
                    let took = ports.run(choice, &setting, true);
                    let took = took.unwrap_or_else(|e| panic!("{} {sizes:?}: {e}", choice.name()));
                    assert!(took.bytes >= 60 * 3001);
                }
            }
        }
    }

    #[test]
    fn a_byte_that_was_not_copied_is_seen() {
        unsafe extern "C" fn short(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
            // SAFETY: the caller guarantees that both buffers hold `n` bytes and do not overlap;
            // this copies one byte less.
            unsafe { std::ptr::copy_nonoverlapping(src, dst, n - 1) };
            dst
        }
        let setting = BenchSetting {
            sizes: PacketSizes::Fixed(64),
            order: PacketOrder::Iid,
            mbufs: 64,
            cores: 1,
            packets: 100,
        };
        let sizes = setting.sizes.sequence(setting.order);
        let (one, other) =
            ([PacketQueue::new(), PacketQueue::new()], [PacketQueue::new(), PacketQueue::new()]);
        let mut sender = Guest::new(&one[0], &one[1], &sizes, true);
        let mut receiver = Guest::new(&other[0], &other[1], &sizes, true);
        sender.step(10);
        let moved = crate::switch::forward_with(&crate::copier::Called(short), &one[0], &other[1]);
        assert_eq!((moved, receiver.take_in()), (10, 10));
        assert!(receiver.verdict().unwrap_err().contains("wrong byte"));
    }
}
