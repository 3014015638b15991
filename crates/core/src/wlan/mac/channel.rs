//! The channel between two stations: path loss, shadowing, noise and interference.
//!
//! ```text
//! loss in dB = loss at 1 m + 10 · exponent · log10(distance in m) + N(0, shadowing²)
//! noise      = k·T·B · noise figure
//! ```
//!
//! Every station senses every other one, however weak: one collision domain. Shadowing is drawn
//! once per pair of stations, the same in both directions, or for each frame and receiver
//! ([`Shadowing`]). Acknowledgements, short and robust, are never lost.

use alloc::vec;
use alloc::vec::Vec;

use rand::Rng;
use rand_distr::{Distribution, Normal};

use super::mode::Width;

/// How signals fade.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Propagation {
    /// The transmission power of all stations, in dBm.
    pub power_dbm: f64,
    /// The path loss at 1 m, in dB.
    pub reference_loss_db: f64,
    /// The path loss exponent, above zero: the loss grows by 10 · `exponent` dB per tenfold
    /// distance; 2 in free space, 3 to 5 in buildings.
    pub exponent: f64,
    /// The standard deviation of log-normal shadowing, in dB; at least zero.
    pub shadowing_db: f64,
    /// How long one draw of the shadowing lasts.
    pub per: Shadowing,
    /// The noise that the receiver adds to thermal noise (its noise figure), in dB.
    pub noise_figure_db: f64,
    /// The capture threshold: by how many dB a frame must be stronger than the frames that collide
    /// with it to be received. If unset, all frames of a collision are lost.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub capture_db: Option<f64>,
}

impl Default for Propagation {
    /// 16 dBm through an office at 5 GHz: a loss of 46.7 dB at 1 m (free space at 5.15 GHz),
    /// exponent 3, no shadowing, a noise figure of 7 dB, and capture at 5 dB.
    fn default() -> Self {
        Self {
            power_dbm: 16.0206,
            reference_loss_db: 46.6777,
            exponent: 3.0,
            shadowing_db: 0.0,
            per: Shadowing::Place,
            noise_figure_db: 7.0,
            capture_db: Some(5.0),
        }
    }
}

/// How long one draw of the shadowing lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Shadowing {
    /// For ever: it belongs to the places of both stations.
    #[default]
    Place,
    /// For one frame at one receiver, as ns-3's `RandomPropagationLossModel` draws it.
    Frame,
}

/// A place, in m.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Place {
    /// To the east.
    pub x_m: f64,
    /// To the north.
    pub y_m: f64,
}

impl Place {
    fn distance(self, other: Self) -> f64 {
        libm::hypot(self.x_m - other.x_m, self.y_m - other.y_m)
    }
}

/// The channel between the stations of a cell.
#[derive(Debug)]
pub struct Channel {
    stations: usize,
    /// The signal-to-noise ratio (linear) of each sender at each receiver, one row per receiver.
    /// Empty if the channel is ideal.
    ratios: Vec<f64>,
    /// How many times stronger than its interference a captured frame is.
    capture: Option<f64>,
    /// The gain of a frame in dB, where each has one of its own.
    fading: Option<Normal<f64>>,
}

impl Channel {
    /// A channel on which every frame arrives that does not collide.
    pub fn ideal(stations: usize) -> Self {
        Self { stations, ratios: Vec::new(), capture: None, fading: None }
    }

    /// The channel between stations at these places.
    pub fn new(
        propagation: &Propagation,
        width: Width,
        places: &[Place],
        rng: &mut impl Rng,
    ) -> Self {
        let stations = places.len();
        let normal = Normal::new(0.0, propagation.shadowing_db.max(0.0)).ok();
        let (shadowing, fading) = match propagation.per {
            Shadowing::Place => (normal, None),
            Shadowing::Frame => (None, normal),
        };
        let mut ratios = vec![0.0; stations * stations];
        for (a, place) in places.iter().enumerate() {
            for (b, other) in places.iter().enumerate().take(a) {
                // Closer than 1 m, the loss stays that at 1 m.
                let distance = place.distance(*other).max(1.0);
                let shadow = shadowing.map_or(0.0, |normal| normal.sample(rng));
                let loss = propagation.reference_loss_db
                    + 10.0 * propagation.exponent * libm::log10(distance)
                    + shadow;
                let ratio = linear(propagation.power_dbm - loss - noise_dbm(propagation, width));
                ratios[a * stations + b] = ratio;
                ratios[b * stations + a] = ratio;
            }
        }
        Self { stations, ratios, capture: propagation.capture_db.map(linear), fading }
    }

    /// The ratio of signal to noise at `to` when only `from` transmits; infinite if ideal.
    pub fn signal_to_noise(&self, from: u32, to: u32) -> f64 {
        let ratio = self.ratios.get(to as usize * self.stations + from as usize);
        ratio.copied().unwrap_or(f64::INFINITY)
    }

    /// The signal-to-noise ratio of one frame; `None` if it is the same for all frames.
    pub fn faded(&self, from: u32, to: u32, rng: &mut impl Rng) -> Option<f64> {
        let gain = linear(self.fading?.sample(rng));
        Some(self.signal_to_noise(from, to) * gain)
    }

    /// Whether a receiver can capture one of several colliding frames.
    pub fn has_capture(&self) -> bool {
        self.capture.is_some()
    }

    /// The ratio of power to noise with which `to` receives a frame of `from`; with shadowing per
    /// frame, each call draws it. Infinite if `from` is `to`: a station that transmits receives
    /// nothing, as no other frame is stronger.
    pub fn received(&self, from: u32, to: u32, rng: &mut impl Rng) -> f64 {
        if from == to {
            return f64::INFINITY;
        }
        self.faded(from, to, rng).unwrap_or_else(|| self.signal_to_noise(from, to))
    }

    /// The ratio of signal to interference and noise of the `frame`-th of several colliding frames,
    /// if the receiver captures it. `powers` are the frames' powers over noise at this receiver,
    /// which captures at most one of them.
    pub fn captured(&self, frame: usize, powers: &[f64]) -> Option<f64> {
        let capture = self.capture?;
        let signal = powers[frame];
        let others = powers.iter().enumerate().filter(|(index, _)| *index != frame);
        let interference: f64 = others.map(|(_, power)| power).sum();
        (signal >= capture * interference).then_some(signal / (1.0 + interference))
    }
}

/// Thermal noise at 290 K is −174 dBm in each Hz.
fn noise_dbm(propagation: &Propagation, width: Width) -> f64 {
    -173.975 + 10.0 * libm::log10(width.hertz()) + propagation.noise_figure_db
}

fn linear(db: f64) -> f64 {
    libm::pow(10.0, db / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_pcg::Pcg64;

    fn line(propagation: &Propagation, distances: &[f64]) -> Channel {
        let places: Vec<_> = distances.iter().map(|x_m| Place { x_m: *x_m, y_m: 0.0 }).collect();
        Channel::new(propagation, Width::Mhz20, &places, &mut Pcg64::new(7, 7))
    }

    fn db(ratio: f64) -> f64 {
        10.0 * libm::log10(ratio)
    }

    #[test]
    fn ten_times_the_distance_costs_ten_times_the_exponent() {
        let channel = line(&Propagation::default(), &[0.0, 1.0, 10.0]);
        // 16.02 − 46.68 + 173.98 − 73.01 − 7.
        let near = db(channel.signal_to_noise(0, 1));
        assert!((near - 63.31).abs() < 0.01, "{near}");
        assert!((near - db(channel.signal_to_noise(0, 2)) - 30.0).abs() < 1e-9);
    }

    #[test]
    fn shadowing_has_its_deviation_and_is_the_same_both_ways() {
        let propagation = Propagation { shadowing_db: 12.0, ..Propagation::default() };
        let channel = line(&propagation, &[0.0; 80]);
        let mut squares = 0.0;
        for a in 0..80 {
            for b in 0..a {
                let ratio = channel.signal_to_noise(a, b);
                assert_eq!(ratio, channel.signal_to_noise(b, a));
                squares += libm::pow(db(ratio) - 63.31, 2.0);
            }
        }
        let deviation = libm::sqrt(squares / (80.0 * 79.0 / 2.0));
        assert!((deviation - 12.0).abs() < 0.5, "{deviation}");
    }

    #[test]
    fn the_strongest_frame_is_captured_if_it_stands_out() {
        let channel = line(&Propagation::default(), &[0.0, 1.0, 10.0, 10.5]);
        let mut rng = Pcg64::new(7, 7);
        let mut captured = |frame: usize, senders: &[u32]| {
            let powers: Vec<_> =
                senders.iter().map(|sender| channel.received(*sender, 0, &mut rng)).collect();
            channel.captured(frame, &powers)
        };
        assert!(db(captured(0, &[1, 2]).unwrap()) > 29.0);
        assert_eq!(captured(1, &[1, 2]), None);
        assert_eq!(captured(0, &[2, 3]), None, "0.6 dB are not enough");
        assert_eq!(captured(1, &[0, 1]), None, "the receiver transmits");
        assert_eq!(Channel::ideal(3).captured(0, &[1.0, 1.0]), None);
    }

    #[test]
    fn of_frames_that_collide_a_receiver_gets_one_however_the_channel_varies() {
        let propagation =
            Propagation { shadowing_db: 12.0, per: Shadowing::Frame, ..Propagation::default() };
        let channel = line(&propagation, &[0.0, 10.0, -10.0]);
        let mut rng = Pcg64::new(7, 7);
        let mut one = 0;
        for _ in 0..1000 {
            let powers = [1, 2].map(|sender| channel.received(sender, 0, &mut rng));
            let got = (0..2).filter(|frame| channel.captured(*frame, &powers).is_some()).count();
            assert!(got <= 1);
            one += got;
        }
        // The difference of two gains has a deviation of 17 dB; capture needs 5 dB.
        assert!((720..820).contains(&one), "{one}");
    }

    #[test]
    fn shadowing_per_frame_has_its_deviation_around_the_ratio_of_the_place() {
        let propagation =
            Propagation { shadowing_db: 12.0, per: Shadowing::Frame, ..Propagation::default() };
        let channel = line(&propagation, &[0.0, 10.0]);
        let place = db(channel.signal_to_noise(0, 1));
        assert!((place - 33.31).abs() < 0.01, "{place}");
        let mut rng = Pcg64::new(7, 7);
        let frames: Vec<_> =
            (0..10_000).map(|_| db(channel.faded(1, 0, &mut rng).unwrap()) - place).collect();
        let mean = frames.iter().sum::<f64>() / 1e4;
        let deviation = libm::sqrt(frames.iter().map(|gain| gain * gain).sum::<f64>() / 1e4);
        assert!(mean.abs() < 0.4 && (deviation - 12.0).abs() < 0.3, "{mean} {deviation}");
        let place = line(&Propagation { per: Shadowing::Place, ..propagation }, &[0.0, 10.0]);
        assert_eq!(place.faded(1, 0, &mut rng), None);
    }
}
