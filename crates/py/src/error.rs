//! Errors of the library as exceptions, with its texts.

use freshline::{Error, PutError, UnknownTopic};
use pyo3::prelude::*;

/// The classes of exceptions, which Python code defines (`freshline/_errors.py`).
mod classes {
    pyo3::import_exception!(freshline._errors, Error);
    pyo3::import_exception!(freshline._errors, SettingError);
    pyo3::import_exception!(freshline._errors, ClosedError);
    pyo3::import_exception!(freshline._errors, UndeliveredError);
    pyo3::import_exception!(freshline._errors, PutError);
    pyo3::import_exception!(freshline._errors, FullError);
    pyo3::import_exception!(freshline._errors, UnknownTopicError);
    pyo3::import_exception!(freshline._errors, ScenarioError);
    pyo3::import_exception!(freshline._errors, CaptureError);
}

/// Imports the classes, so that errors can be raised while the interpreter exits, when nothing can be imported.
pub(crate) fn import_classes(py: Python<'_>) {
    let classes = [
        py.get_type::<classes::Error>(),
        py.get_type::<classes::SettingError>(),
        py.get_type::<classes::ClosedError>(),
        py.get_type::<classes::UndeliveredError>(),
        py.get_type::<classes::PutError>(),
        py.get_type::<classes::FullError>(),
        py.get_type::<classes::UnknownTopicError>(),
        py.get_type::<classes::ScenarioError>(),
        py.get_type::<classes::CaptureError>(),
    ];
    drop(classes);
}

/// The text of an error with those of its causes, as far as it does not repeat them.
pub(crate) fn text_of(error: &dyn std::error::Error) -> String {
    let mut texts = vec![error.to_string()];
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    for text in causes.map(ToString::to_string) {
        if texts.last().is_some_and(|last| !last.contains(&text)) {
            texts.push(text);
        }
    }
    texts.join(": ")
}

/// An error of a source or a monitor.
pub(crate) fn of(error: &Error) -> PyErr {
    let text = text_of(error);
    match error {
        Error::Ended => classes::ClosedError::new_err(text),
        Error::Undelivered => classes::UndeliveredError::new_err(text),
        _ if error.is_of_settings() => classes::SettingError::new_err(text),
        _ => classes::Error::new_err(text),
    }
}

/// A setting that cannot be.
pub(crate) fn setting(text: impl Into<String>) -> PyErr {
    classes::SettingError::new_err(text.into())
}

/// It was closed.
pub(crate) fn closed() -> PyErr {
    of(&Error::Ended)
}

/// It belongs to the process before `fork`.
pub(crate) fn forked() -> PyErr {
    let what =
        "this source or monitor belongs to the parent process; make another one after `fork`";
    classes::ClosedError::new_err(what)
}

/// A state or record was not accepted.
pub(crate) fn of_put(error: &PutError) -> PyErr {
    let text = error.to_string();
    match error {
        PutError::Closed(_) => classes::ClosedError::new_err(text),
        PutError::Full { .. } | PutError::TooManyKeys { .. } => classes::FullError::new_err(text),
        _ => classes::PutError::new_err(text),
    }
}

/// There is no such topic.
pub(crate) fn unknown_topic(error: &UnknownTopic) -> PyErr {
    classes::UnknownTopicError::new_err(error.to_string())
}

/// A scenario that cannot be run; `name` is that of the scenario.
pub(crate) fn of_scenario(name: &str, error: &dyn std::fmt::Display) -> PyErr {
    classes::ScenarioError::new_err(format!("{name}: {error}"))
}

/// A capture that cannot be read.
pub(crate) fn of_capture(error: &dyn std::error::Error) -> PyErr {
    classes::CaptureError::new_err(text_of(error))
}
