//! Chance: named streams from one seed, every draw on a tape.
//!
//! A stream for each concern keeps a seed meaningful when one of them draws more than it used to.
//! The tape holds every draw in order, so that a run can be repeated from it.

use holdfast_consensus::rng::SplitMix64;

/// Who draws.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// The settings of the run.
    Setup,
    /// Delays, losses, cuts.
    Network,
    /// Latencies of jobs and what a crash leaves.
    Disk,
    /// Clock offsets and rates.
    Clock,
    /// Crashes, kills, pauses, restarts.
    Process,
    /// What clients do.
    Workload,
}

const STREAMS: usize = 6;

/// The source of every random decision of a run.
#[derive(Clone, Debug)]
pub struct Choices {
    streams: [SplitMix64; STREAMS],
    tape: Option<Vec<(Stream, u64)>>,
    draws: u64,
}

impl Choices {
    /// The choices of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut root = SplitMix64::new(seed ^ 0x486f_6c64_6661_7374);
        let streams = std::array::from_fn(|_| SplitMix64::new(root.next_u64()));
        Self { streams, tape: None, draws: 0 }
    }

    /// Keeps every draw from now on.
    pub fn record(&mut self) {
        self.tape = Some(Vec::new());
    }

    /// The draws since [`Choices::record`].
    #[must_use]
    pub fn tape(&self) -> &[(Stream, u64)] {
        self.tape.as_deref().unwrap_or_default()
    }

    /// How many draws there were.
    #[must_use]
    pub const fn draws(&self) -> u64 {
        self.draws
    }

    fn draw(&mut self, stream: Stream, from: impl FnOnce(&mut SplitMix64) -> u64) -> u64 {
        let value = from(&mut self.streams[stream as usize]);
        self.draws += 1;
        if let Some(tape) = &mut self.tape {
            tape.push((stream, value));
        }
        value
    }

    /// Any 64 bits.
    pub fn bits(&mut self, stream: Stream) -> u64 {
        self.draw(stream, SplitMix64::next_u64)
    }

    /// A value in `low..high`; `low` if the range is empty.
    pub fn between(&mut self, stream: Stream, low: u64, high: u64) -> u64 {
        self.draw(stream, |rng| rng.between(low, high))
    }

    /// A position in a list of `len` things, which must not be empty.
    pub fn pick(&mut self, stream: Stream, len: usize) -> usize {
        usize::try_from(self.between(stream, 0, len as u64)).unwrap_or(0)
    }

    /// True in `per_mille` of thousand cases.
    pub fn chance(&mut self, stream: Stream, per_mille: u64) -> bool {
        per_mille > 0 && self.between(stream, 0, 1000) < per_mille
    }

    /// A waiting time with this mean: short ones are common, long ones rare, none over eight
    /// times the mean.
    pub fn wait(&mut self, stream: Stream, mean: u64) -> u64 {
        self.draw(stream, |rng| {
            // The sum of halvings: geometric over octaves, uniform within, mean about `mean`.
            let mut scale = mean / 2 + 1;
            while scale < mean * 4 && rng.chance(400) {
                scale *= 2;
            }
            rng.between(scale / 2, scale * 2)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_do_not_disturb_each_other() {
        let (mut a, mut b) = (Choices::new(7), Choices::new(7));
        for _ in 0..10 {
            a.bits(Stream::Network);
        }
        assert_eq!(a.bits(Stream::Disk), b.bits(Stream::Disk));
        assert_ne!(a.bits(Stream::Network), b.bits(Stream::Network));
    }

    #[test]
    fn the_tape_holds_every_draw_in_order() {
        let mut choices = Choices::new(1);
        choices.bits(Stream::Setup);
        choices.record();
        let first = choices.between(Stream::Clock, 0, 10);
        let second = choices.bits(Stream::Workload);
        assert_eq!(choices.tape(), [(Stream::Clock, first), (Stream::Workload, second)]);
        assert_eq!(choices.draws(), 3);
    }

    #[test]
    fn waits_are_near_their_mean_and_bounded() {
        let mut choices = Choices::new(3);
        let waits: Vec<u64> = (0..4000).map(|_| choices.wait(Stream::Process, 1000)).collect();
        let mean = waits.iter().sum::<u64>() / 4000;
        assert!((600..1700).contains(&mean), "{mean}");
        assert!(waits.iter().all(|w| *w <= 8_100));
    }
}
