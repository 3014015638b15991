//! The native part of the Python package `freshline`.
//!
//! ```text
//!   freshline (Python) ──► freshline._native ─┬─► live      sources and monitors of the crate `freshline`
//!    asyncio, sweeps,                         ├─► lab       scenarios of `freshline-lab`, laws in Python
//!    plots                                    └─► analysis  captures, age processes, closed forms
//!                              tables of numbers leave as Arrow (`table`), without a copy
//! ```
//!
//! Threads of the network and of the lab do not hold the interpreter's lock, and a call that waits releases it.

mod analysis;
mod error;
mod lab;
mod live;
mod payload;
mod table;
mod time;

use pyo3::pymodule;

/// The native part of `freshline`; use that package instead.
#[pymodule(gil_used = true)]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::analysis::{
        AgeProcess, Queues, age_of_capture, confidence, jain_index, path_lower_bound,
    };
    #[pymodule_export]
    use super::lab::{
        Prepared, PyAck, Recording, dict_of, reproduce, run_batch, scenario_text, scenarios,
        toml_of,
    };
    #[pymodule_export]
    use super::live::{
        Event, Events, Monitor, Reactor, Source, State, Subscription, Topic, TopicParams, Waiter,
        close_all,
    };
    #[pymodule_export]
    use super::table::{Column, Table};
    #[pymodule_export]
    use super::time::seconds_of;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::error::import_classes(module.py());
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
