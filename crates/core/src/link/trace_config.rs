//! Traces in configurations: a file, or a model that generates a trace.

use alloc::sync::Arc;

use rand::{Rng, RngExt};

use super::{FieldError, Trace, TraceFile, TraceModel};

/// The source of a hop's trace. In a file, a string is a [`TraceFile`], and a table with a `model`
/// is a [`TraceModel`].
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(untagged))]
pub enum TraceConfig {
    /// A file.
    File(TraceFile),
    /// A model.
    Model(TraceModel),
}

impl TraceConfig {
    /// The name of the file or of the model.
    pub fn name(&self) -> &str {
        match self {
            Self::File(file) => file.name(),
            Self::Model(model) => model.name(),
        }
    }

    /// The trace. A model without a seed takes one from `rng`; nothing else draws from it.
    pub(super) fn build(&self, rng: &mut impl Rng) -> Result<Arc<Trace>, FieldError> {
        match self {
            Self::File(file) => {
                file.trace().ok_or_else(|| FieldError::TraceNotRead(file.name().into()))
            }
            Self::Model(model) => {
                let seed = model.seed().unwrap_or_else(|| rng.random());
                let trace = model.clone().or_seed(seed, 0).generate();
                trace.map(Arc::new).map_err(FieldError::TraceModel)
            }
        }
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for TraceConfig {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "the name of a trace file, or a table with `model`";
        let file =
            |name: &str| Ok::<_, core::convert::Infallible>(Self::File(TraceFile::new(name)));
        crate::reading::string_or_table::<TraceModel, _, _, _>(deserializer, expected, file)
    }
}

impl From<TraceModel> for TraceConfig {
    fn from(model: TraceModel) -> Self {
        Self::Model(model)
    }
}
