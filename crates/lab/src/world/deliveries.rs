//! The deliveries that reset an age, recorded while a world runs.

use freshline_core::age::Freshness;
use freshline_core::unit::Time;

/// A delivery that made its receiver fresher: from `received_at` on the age is the time since
/// `generated_at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// When it arrived.
    pub received_at: Time,
    /// When its state was generated.
    pub generated_at: Time,
}

/// An optional recording of deliveries.
#[derive(Debug, Clone, Default)]
pub(super) struct Deliveries(Option<Vec<Delivery>>);

impl Deliveries {
    /// From now on deliveries are recorded.
    pub(super) fn record(&mut self) {
        self.0 = Some(Vec::new());
    }

    /// A delivery at `now` has reset the age or not, according to `freshness`.
    pub(super) fn on_update(&mut self, now: Time, generated_at: Time, freshness: Freshness) {
        if let (Some(all), Freshness::Fresh) = (&mut self.0, freshness) {
            // A generation time in the future counts as now, as for the age.
            all.push(Delivery { received_at: now, generated_at: generated_at.min(now) });
        }
    }

    /// The deliveries so far, in the order of their arrival.
    pub(super) fn all(&self) -> &[Delivery] {
        self.0.as_deref().unwrap_or_default()
    }
}

/// The recorded deliveries of one age.
#[derive(Debug, Clone, Copy)]
pub struct AgeRecord<'a> {
    /// The topic; empty for a flow without topics.
    pub topic: &'a str,
    /// The number of the key, from 0, for a topic with keys.
    pub key: Option<u16>,
    /// The deliveries, in the order of their arrival.
    pub deliveries: &'a [Delivery],
}
