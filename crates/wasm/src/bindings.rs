//! The API for JavaScript.

use std::fmt::Display;

use freshline_core::unit::{Span, Time};
use wasm_bindgen::prelude::{JsError, wasm_bindgen};

use crate::live::Live;
use crate::settings::Settings;

/// The longest step of a page: 1 min of virtual time.
const MAX_ADVANCE_S: f64 = 60.0;

fn refused(error: impl Display) -> JsError {
    JsError::new(&error.to_string())
}

/// Runs a scenario and returns the document of `freshline lab run SCENARIO --seed SEED --json`.
///
/// # Errors
/// A scenario that the lab refuses.
#[wasm_bindgen]
pub fn run(name: &str, toml: &str, seed: u64) -> Result<String, JsError> {
    crate::run(name, toml, seed).map_err(refused)
}

/// The mean age in s of the sources of these settings, as JSON, at a fixed rate per second.
///
/// # Errors
/// Settings or a rate out of range.
#[wasm_bindgen(js_name = pointOfSweep)]
pub fn point_of_sweep(settings: &str, rate: f64) -> Result<f64, JsError> {
    let settings = Settings::parse(settings).map_err(refused)?;
    crate::sweep_point(&settings, rate).map_err(refused)
}

/// A scenario while it runs.
#[wasm_bindgen]
pub struct Lab(Live);

#[wasm_bindgen]
impl Lab {
    /// The scenario of these settings, as JSON, at time zero.
    ///
    /// # Errors
    /// Settings out of range.
    #[wasm_bindgen(constructor)]
    pub fn new(settings: &str) -> Result<Self, JsError> {
        let settings = Settings::parse(settings).map_err(refused)?;
        Ok(Self(Live::new(settings).map_err(refused)?))
    }

    /// Takes other settings, as JSON, and restarts the measurement. Returns whether another run has
    /// begun at time zero.
    ///
    /// # Errors
    /// Settings out of range, with which nothing changes.
    pub fn set(&mut self, settings: &str) -> Result<bool, JsError> {
        let settings = Settings::parse(settings).map_err(refused)?;
        self.0.set(settings).map_err(refused)
    }

    /// Discards all measurements and restarts them now.
    #[wasm_bindgen(js_name = beginMeasuring)]
    pub fn begin_measuring(&mut self) {
        self.0.begin_measuring();
    }

    /// Runs for a time in s, from 0 to 60, and records all ages each `step` s, at least 10 µs.
    ///
    /// # Errors
    /// A time out of range.
    pub fn advance(&mut self, seconds: f64, step: f64) -> Result<(), JsError> {
        if !(0.0..=MAX_ADVANCE_S).contains(&seconds) || !(1e-5..=MAX_ADVANCE_S).contains(&step) {
            return Err(refused("give seconds from 0 to 60, and a step from 0.00001 to 60"));
        }
        let span = |seconds: f64| Span::from_nanos((seconds * 1e9).round() as u64);
        self.0.advance(span(seconds), span(step));
        Ok(())
    }

    /// Virtual time in s.
    #[wasm_bindgen(getter)]
    pub fn now(&self) -> f64 {
        self.0.now().since(Time::ZERO).as_secs_f64()
    }

    /// The updates per second and source that the bottleneck carries, if nothing else uses it.
    #[wasm_bindgen(getter)]
    pub fn capacity(&self) -> f64 {
        self.0.settings().capacity()
    }

    /// The packets on the path, three numbers each: the spot ([`Spot`](crate::Spot)), the fraction
    /// of it that is behind the packet, and the number of its source; the TCP stream has the number
    /// of sources.
    pub fn packets(&self) -> Vec<f32> {
        let mut packets = Vec::new();
        self.0.each_packet(|seen| {
            packets.extend([f32::from(seen.spot as u8), seen.fraction as f32, seen.flow as f32]);
        });
        packets
    }

    /// Takes the ages that were recorded: of each moment its time in s, then the age of each source
    /// in s.
    #[wasm_bindgen(js_name = takeAges)]
    pub fn take_ages(&mut self) -> Vec<f64> {
        self.0.take_ages()
    }

    /// The packets that were dropped since the last call: by the queue, for a newer one of the same
    /// flow, and on the line.
    pub fn drops(&mut self) -> Vec<f64> {
        let drops = self.0.drops();
        [drops.queue, drops.replaced, drops.lost].map(|count| count as f64).to_vec()
    }

    /// The measurements since the last change of a setting, as JSON: [`Numbers`](crate::Numbers).
    pub fn numbers(&self) -> String {
        serde_json::to_string(&self.0.numbers()).expect("keys are texts")
    }

    /// The scenario as a file for `freshline lab run`.
    pub fn toml(&self) -> String {
        self.0.settings().toml("60s", "10s")
    }
}
