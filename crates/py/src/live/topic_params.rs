//! The parameters of a topic, before its source is built.

use freshline::TopicKind;
use pyo3::prelude::*;

use crate::error;
use crate::time::{Rate, Seconds};

/// A topic of a source: its name, weight, deadline, kind and rates.
///
/// All topics of a source share its session and its rate.
///
/// `weight` is how much the topic's age counts in comparison with others, above 0 and at most 10⁹. A state older
/// than `deadline` is dropped instead of sent. States leave no faster than `max_rate`, and go before those of
/// other topics if they have not left for a period of `min_rate`. The states of an `urgent` topic go before all others.
///
/// `kind` is "latest" (the newest state counts), "keyed" (the newest state of each of at most `max_keys` keys), or
/// "every" (each record arrives, in order and once; at most `max_bytes` are held until then).
#[pyclass(frozen, module = "freshline", from_py_object)]
#[derive(Clone)]
pub(crate) struct TopicParams(pub(crate) freshline::TopicParams);

#[pymethods]
impl TopicParams {
    #[new]
    #[pyo3(signature = (
        name, *, weight=1.0, deadline=None, kind="latest", max_rate=None, min_rate=None, urgent=false, max_keys=512,
        max_bytes=1_048_576
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python calls it with names")]
    fn new(
        name: String,
        weight: f64,
        deadline: Option<Seconds>,
        kind: &str,
        max_rate: Option<Rate>,
        min_rate: Option<Rate>,
        urgent: bool,
        max_keys: u16,
        max_bytes: u32,
    ) -> PyResult<Self> {
        let kind = match kind {
            "latest" => TopicKind::Latest,
            "keyed" => TopicKind::Keyed { max_keys },
            "every" => match TopicKind::EVERY {
                TopicKind::Every { stream, first, .. } => {
                    TopicKind::Every { stream, first, max_bytes }
                }
                other => other,
            },
            other => {
                let what = format!("topic {name:?}: kind {other:?}; write latest, keyed or every");
                return Err(error::setting(what));
            }
        };
        let params = freshline::TopicParams {
            kind,
            weight,
            deadline: deadline.map(|deadline| deadline.0.into()),
            max_rate: max_rate.map(|rate| rate.0),
            min_rate: min_rate.map(|rate| rate.0),
            is_urgent: urgent,
            ..freshline::TopicParams::new(name)
        };
        params.check().map_err(|error| error::setting(error.to_string()))?;
        Ok(Self(params))
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    fn __repr__(&self) -> String {
        format!("TopicParams({:?})", self.0.name)
    }
}

/// A topic given by its name alone, or with its parameters.
#[derive(FromPyObject)]
pub(crate) enum AnyTopic {
    /// The name.
    Name(String),
    /// With parameters.
    Params(TopicParams),
}

/// The topics of a source or a monitor.
pub(crate) struct Topics(pub(crate) Vec<AnyTopic>);

impl FromPyObject<'_, '_> for Topics {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(name) = given.extract::<String>() {
            return Err(error::setting(format!("`topics` is a list: write topics=[{name:?}]")));
        }
        given.extract().map(Self)
    }
}

impl From<AnyTopic> for freshline::TopicParams {
    fn from(topic: AnyTopic) -> Self {
        match topic {
            AnyTopic::Name(name) => Self::new(name),
            AnyTopic::Params(params) => params.0,
        }
    }
}
