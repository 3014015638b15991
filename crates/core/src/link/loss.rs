//! Random loss on a link: independent per packet, or in bursts.

use rand::{Rng, RngExt};

/// Random loss on a link.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Loss {
    /// No loss.
    #[default]
    Never,
    /// Each packet is lost with this probability (0 to 1), independently of the others.
    Bernoulli(f64),
    /// Loss in bursts.
    GilbertElliott(GilbertElliott),
}

/// The Gilbert-Elliott channel: a good and a bad state, each with its own loss.
///
/// ```text
///            to_bad
///     ┌──────────────────►┐
///   good                 bad       lost with probability good_loss, bad_loss
///     └◄──────────────────┘
///            to_good
/// ```
///
/// The link starts in the good state. Each packet is subject to the loss of the present state, and
/// then the state may change. The mean duration of the bad state is 1 / `to_good` packets, that of
/// the good state 1 / `to_bad`. Source: Elliott, "Estimates of Error Rates for Codes on Burst-Noise
/// Channels", Bell System Technical Journal 42 (1963), with the transition probabilities named
/// instead of lettered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GilbertElliott {
    /// The probability that a packet is lost in the good state, from 0 to 1.
    pub good_loss: f64,
    /// The same in the bad state.
    pub bad_loss: f64,
    /// The probability per packet that the good state turns bad, from 0 to 1.
    pub to_bad: f64,
    /// The probability per packet that the bad state turns good, from 0 to 1.
    pub to_good: f64,
}

impl GilbertElliott {
    /// The long-run probability that a packet is lost.
    pub fn mean_loss(&self) -> f64 {
        let changes = self.to_bad + self.to_good;
        let bad = if changes > 0.0 { self.to_bad / changes } else { 0.0 };
        bad * self.bad_loss + (1.0 - bad) * self.good_loss
    }
}

/// The state of the loss on one link.
#[derive(Debug)]
pub(super) struct LossProcess {
    loss: Loss,
    /// The state of the Gilbert-Elliott channel.
    is_bad: bool,
}

impl LossProcess {
    pub(super) fn new(loss: Loss) -> Self {
        Self { loss, is_bad: false }
    }

    /// Draws whether the next packet is lost.
    pub(super) fn strikes(&mut self, rng: &mut impl Rng) -> bool {
        let mut happens = |probability: f64| rng.random::<f64>() < probability;
        match self.loss {
            Loss::Never => false,
            Loss::Bernoulli(probability) => happens(probability),
            Loss::GilbertElliott(channel) => {
                let (loss, change) = match self.is_bad {
                    false => (channel.good_loss, channel.to_bad),
                    true => (channel.bad_loss, channel.to_good),
                };
                let lost = happens(loss);
                self.is_bad ^= happens(change);
                lost
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_pcg::Pcg64;

    fn run(loss: Loss, packets: usize) -> alloc::vec::Vec<bool> {
        let (mut process, mut rng) = (LossProcess::new(loss), Pcg64::new(7, 0));
        (0..packets).map(|_| process.strikes(&mut rng)).collect()
    }

    #[test]
    fn bursts_have_the_mean_length_and_loss_of_the_chain() {
        let channel = GilbertElliott { good_loss: 0.0, bad_loss: 1.0, to_bad: 0.01, to_good: 0.25 };
        let packets = 200_000;
        let lost = run(Loss::GilbertElliott(channel), packets);
        let losses = lost.iter().filter(|lost| **lost).count() as f64;
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        let mean_loss = losses / packets as f64;
        assert!((mean_loss / channel.mean_loss() - 1.0).abs() < 0.1, "{mean_loss}");
        assert!((losses / bursts / 4.0 - 1.0).abs() < 0.1, "{} packets a burst", losses / bursts);
    }

    #[test]
    fn a_channel_whose_states_are_alike_loses_like_bernoulli() {
        let channel = GilbertElliott { good_loss: 0.3, bad_loss: 0.3, to_bad: 0.1, to_good: 0.1 };
        let lost = run(Loss::GilbertElliott(channel), 20_000);
        let losses = lost.iter().filter(|lost| **lost).count();
        assert!(losses.abs_diff(6_000) < 350, "{losses}");
        assert_eq!(channel.mean_loss(), 0.3);
    }

    #[test]
    fn a_channel_that_never_changes_stays_good() {
        let channel = GilbertElliott { good_loss: 0.0, bad_loss: 1.0, to_bad: 0.0, to_good: 0.0 };
        assert_eq!(channel.mean_loss(), 0.0);
        assert!(!run(Loss::GilbertElliott(channel), 1_000).contains(&true));
    }
}
