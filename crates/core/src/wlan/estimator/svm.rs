//! Corrects the level under high load, from the logistic estimator's results per slot.
//!
//! ```text
//! X = [μ₍ᵢ₋d₊₁₎ … μᵢ  σᵢ²  Aᵢ]      mean levels of the last d slots of 100 ms, the newest last,
//!                                    and the newest's variance and number of frames     (4.5)
//! N = b + Σ aₖ·e^−|s∘X − vₖ|²         s: a scale per feature, vₖ: support vectors
//! ```
//!
//! Under high load the logistic estimator splits frames, with a similar error at each level: a
//! support vector machine with radial basis functions maps its level to the true one (thesis,
//! section 4.4.2).
//!
//! # Where the paper is silent
//!
//! - **When it replaces the logistic's level**: in slots of at least [`LevelWeights::packets`]
//!   packets, from where on training found it better. Below, the thesis also uses the logistic's
//!   level.
//! - **Its output** is a number, so it is a regression; the result is clamped to [1, Nmax].
//! - **The first d − 1 slots**, and those after a slot without a frame, keep the logistic's level.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::{LevelWeights, SupportVector, WeightsError};
use crate::unit::Span;

/// The duration of a slot.
pub const SLOT: Span = Span::from_millis(100);

/// A slot as an estimator of frames sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlotSeen {
    /// The mean number of packets per frame.
    pub level: f64,
    /// Their variance.
    pub variance: f64,
    /// The number of frames.
    pub frames: f64,
}

/// Corrects levels of slots. It allocates memory only at construction.
#[derive(Debug, Clone)]
pub struct Svm {
    packets: f64,
    intercept: f64,
    scale: Box<[f64]>,
    vectors: Box<[SupportVector]>,
    /// Mean levels of the last slots, the oldest first; one less than d before the newest comes.
    levels: VecDeque<f64>,
    /// X with its scale.
    features: Box<[f64]>,
}

impl LevelWeights {
    /// A machine in its initial state.
    ///
    /// # Errors
    /// Another version, no or too many slots or vectors, vectors of another length, or numbers that
    /// are not finite.
    pub fn build(&self) -> Result<Svm, WeightsError> {
        WeightsError::check_version(self.version)?;
        let slots = self.scale.len().saturating_sub(2);
        WeightsError::check_count("scale, less 2", slots, 64)?;
        WeightsError::check_count("vector", self.vector.len(), 1_000)?;
        WeightsError::check_count("most", self.most as usize, 1_024)?;
        WeightsError::check_finite("packets", [self.packets])?;
        WeightsError::check_finite("intercept", [self.intercept])?;
        WeightsError::check_finite("scale", self.scale.iter().copied())?;
        for vector in &self.vector {
            if vector.at.len() != self.scale.len() {
                let (count, expected) = (vector.at.len(), self.scale.len());
                return Err(WeightsError::Length { count, expected });
            }
            WeightsError::check_finite("vector.weight", [vector.weight])?;
            WeightsError::check_finite("vector.at", vector.at.iter().copied())?;
        }
        Ok(Svm {
            packets: self.packets,
            intercept: self.intercept,
            scale: self.scale.clone().into_boxed_slice(),
            vectors: self.vector.clone().into_boxed_slice(),
            levels: VecDeque::with_capacity(slots),
            features: alloc::vec![0.0; self.scale.len()].into_boxed_slice(),
        })
    }
}

impl Svm {
    /// The estimated true level of the next slot; `None` if the estimator's own level is to be
    /// kept.
    pub fn on_slot(&mut self, slot: SlotSeen) -> Option<f64> {
        let level = self.level(slot)?;
        (slot.level * slot.frames >= self.packets).then_some(level)
    }

    /// The machine's level for the next slot at any load; `None` until d slots were seen.
    pub fn level(&mut self, slot: SlotSeen) -> Option<f64> {
        let slots = self.scale.len() - 2;
        if self.levels.len() == slots {
            self.levels.pop_front();
        }
        self.levels.push_back(slot.level);
        if self.levels.len() < slots {
            return None;
        }
        let features = self.levels.iter().copied().chain([slot.variance, slot.frames]);
        for ((scaled, scale), feature) in self.features.iter_mut().zip(&self.scale).zip(features) {
            *scaled = feature * scale;
        }
        let near = |vector: &SupportVector| {
            let apart = vector.at.iter().zip(&self.features).map(|(at, x)| (at - x) * (at - x));
            vector.weight * libm::exp(-apart.sum::<f64>())
        };
        Some(self.intercept + self.vectors.iter().map(near).sum::<f64>())
    }

    /// A slot without a frame has passed.
    pub fn forget(&mut self) {
        self.levels.clear();
    }
}
