//! A law in Python.
//!
//! ```text
//!   lab ─ on_sent, on_ack, on_timeout ─► object ─ rate, next_update(), next_timeout() ─► what the lab asks for next
//! ```
//!
//! After each input the answers are requested once and kept.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use freshline_core::source::{Ack, Phase, RateBounds, RateLaw};
use freshline_core::unit::{Span, Time, UpdateRate};
use freshline_lab::scenario::{Laws, Scenario};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error;
use crate::time::seconds;

/// The laws of some flows, by their names, and the first exception that one has raised.
#[derive(Default)]
pub(crate) struct PyLaws {
    makers: HashMap<String, Py<PyAny>>,
    fate: Fate,
}

/// The reason why runs end early: an exception of a law, or of the caller.
#[derive(Clone, Default)]
struct Fate {
    raised: Arc<Mutex<Option<PyErr>>>,
    stop: Arc<AtomicBool>,
}

impl PyLaws {
    /// A callable for each flow, which makes the law of one source in one run.
    pub(crate) fn of(laws: Option<&Bound<'_, PyDict>>, scenario: &Scenario) -> PyResult<Self> {
        let mut made = Self::default();
        for (flow, maker) in laws.into_iter().flat_map(|laws| laws.iter()) {
            let flow: String = flow.extract()?;
            scenario.check_law_flow(&flow).map_err(|error| error::of_scenario("laws", &error))?;
            if !maker.is_callable() {
                let what = format!("laws: {flow:?} needs a class or function that makes a law");
                return Err(PyTypeError::new_err(what));
            }
            made.makers.insert(flow, maker.unbind());
        }
        Ok(made)
    }

    /// Ends all runs once it is true.
    pub(crate) fn stopping(&self) -> &AtomicBool {
        &self.fate.stop
    }

    /// Returns the exception of a law, if there was one.
    pub(crate) fn check(&self) -> PyResult<()> {
        self.fate.raised.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }
}

impl Laws for PyLaws {
    fn law(&self, flow: &str, _number: usize) -> Option<Box<dyn RateLaw>> {
        let maker = self.makers.get(flow)?;
        Some(Box::new(PyLaw::new(maker, self.fate.clone())))
    }

    fn stop(&self) -> Option<Arc<AtomicBool>> {
        Some(Arc::clone(&self.fate.stop))
    }
}

/// One law of one source.
struct PyLaw {
    /// `None` once it has raised: it then asks for nothing.
    object: Option<Py<PyAny>>,
    fate: Fate,
    has: Methods,
    bounds: RateBounds,
    /// The rate that it wants, in force within `bounds`; `None` until it is known.
    wanted: Option<UpdateRate>,
    /// When the last update was due, and the wanted rate when it left.
    last: Option<(Time, Option<UpdateRate>)>,
    /// The last result of `next_update()`.
    given: Option<Time>,
    next_timeout: Option<Time>,
}

/// Which methods the object has.
#[derive(Debug, Clone, Copy, Default)]
struct Methods {
    restart: bool,
    on_sent: bool,
    on_ack: bool,
    on_timeout: bool,
    next_update: bool,
    next_timeout: bool,
}

/// The measurements of one ack, for a law. Times are in s.
#[pyclass(frozen, name = "Ack", module = "freshline.lab", get_all)]
pub(crate) struct PyAck {
    /// The acknowledged update; updates are numbered in the order of sending.
    seq: u64,
    /// When that update's state was sampled, on the source's clock.
    generated_at: f64,
    /// When that update left, on the source's clock.
    sent_at: f64,
    /// The length of that update in bytes.
    len: u32,
    /// How long the monitor held it before it answered.
    hold: f64,
    /// When it arrived, on the monitor's clock: only differences between acks are meaningful.
    received_at: f64,
    /// The number of fresh updates that the monitor had received by then.
    fresh: u32,
    /// The number of updates that arrived after a fresher one.
    stale: u32,
    /// The round trip of the update, without `hold`.
    rtt: f64,
}

#[pymethods]
impl PyAck {
    fn __repr__(&self) -> String {
        format!("<freshline.lab.Ack of update {}, rtt {:.6} s>", self.seq, self.rtt)
    }
}

impl PyAck {
    fn of(now: Time, ack: &Ack) -> Self {
        Self {
            seq: ack.seq,
            generated_at: seconds(ack.generated_at),
            sent_at: seconds(ack.sent_at),
            len: ack.len,
            hold: ack.hold.as_secs_f64(),
            received_at: seconds(ack.received_at),
            fresh: ack.fresh,
            stale: ack.stale,
            rtt: (now.since(ack.sent_at) - ack.hold).as_secs_f64(),
        }
    }
}

impl PyLaw {
    fn new(maker: &Py<PyAny>, fate: Fate) -> Self {
        let bounds = RateBounds::default();
        let mut law = Self {
            object: None,
            fate,
            has: Methods::default(),
            bounds,
            wanted: None,
            last: None,
            given: None,
            next_timeout: None,
        };
        Python::attach(|py| {
            match maker.call0(py).and_then(|made| Ok((Methods::of(made.bind(py))?, made))) {
                Ok((has, made)) => (law.has, law.object) = (has, Some(made)),
                Err(error) => law.fail(error),
            }
        });
        law.notify(false, |law| Ok(law.clone()));
        law
    }

    fn fail(&mut self, error: PyErr) {
        (self.object, self.next_timeout) = (None, None);
        self.fate.raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.fate.stop.store(true, Ordering::Relaxed);
    }

    /// Calls the object's method for an input, if it has one, and reads the object's answers.
    fn notify(
        &mut self,
        has_method: bool,
        call: impl for<'py> FnOnce(&Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>,
    ) {
        if self.fate.stop.load(Ordering::Relaxed) {
            // The run ends, which is seen after some events.
            self.object = None;
        }
        Python::attach(|py| {
            let Some(object) = self.object.as_ref().map(|object| object.clone_ref(py)) else {
                return;
            };
            let object = object.bind(py);
            let called = if has_method { call(object).map(drop) } else { Ok(()) };
            if let Err(error) = called.and_then(|()| self.ask(object)) {
                self.fail(error);
            }
        });
    }

    fn ask(&mut self, object: &Bound<'_, PyAny>) -> PyResult<()> {
        let given = object.getattr("rate")?;
        let rate: Option<f64> = given.extract().map_err(|_| {
            PyTypeError::new_err(format!(
                "a law's rate is a number or None, not {}",
                given.get_type()
            ))
        })?;
        let valid = |rate| {
            UpdateRate::new(rate).ok_or_else(|| {
                let what = format!(
                    "a law's rate is {rate}; give 1e-10 to 1e9 updates per second, or None"
                );
                PyValueError::new_err(what)
            })
        };
        self.wanted = rate.map(valid).transpose()?;
        if let Some((_, at_departure @ None)) = &mut self.last {
            // No rate was known then: the first known one counts.
            *at_departure = self.wanted;
        }
        if self.has.next_update {
            self.given = time_of(object.call_method0("next_update")?, "next_update")?;
        }
        self.next_timeout = match self.has.next_timeout {
            true => time_of(object.call_method0("next_timeout")?, "next_timeout")?,
            false => None,
        };
        Ok(())
    }

    /// A rate within the bounds.
    fn bounded(&self, rate: UpdateRate) -> UpdateRate {
        rate.clamp(self.bounds.floor, self.bounds.ceiling)
    }

    /// A period after the last update, of the rate when that left; `None` until a rate is known.
    fn paced(&self) -> Option<Time> {
        let Some((due, rate)) = self.last else { return Some(Time::ZERO) };
        rate.map(|rate| due + self.bounded(rate).period())
    }

    /// The time at which the update that leaves now was due: late by less than a period, the next one is on time.
    fn due(&self, now: Time) -> Time {
        match (self.next_update_at(), self.last) {
            (Some(due), Some((_, Some(rate))))
                if due <= now && now.since(due) < self.bounded(rate).period() =>
            {
                due
            }
            _ => now,
        }
    }
}

impl Methods {
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let has = |name: &str| object.hasattr(name);
        if !has("rate")? {
            let what = format!(
                "the law {} has no `rate` (updates per second, or None until it is known)",
                object.get_type()
            );
            return Err(PyTypeError::new_err(what));
        }
        Ok(Self {
            restart: has("restart")?,
            on_sent: has("on_sent")?,
            on_ack: has("on_ack")?,
            on_timeout: has("on_timeout")?,
            next_update: has("next_update")?,
            next_timeout: has("next_timeout")?,
        })
    }
}

/// A time that a law gave, in s.
fn time_of(given: Bound<'_, PyAny>, method: &str) -> PyResult<Option<Time>> {
    let seconds = given.extract::<Option<f64>>().map_err(|_| {
        PyTypeError::new_err(format!(
            "{method}() gives a time in s or None, not {}",
            given.get_type()
        ))
    })?;
    let Some(seconds) = seconds else { return Ok(None) };
    if !seconds.is_finite() {
        let what = format!("{method}() gave {seconds}; give a time in s, or None");
        return Err(PyValueError::new_err(what));
    }
    Ok(Some(Time::ZERO + Span::from_secs_f64(seconds.max(0.0))))
}

impl RateLaw for PyLaw {
    fn name(&self) -> &'static str {
        "python"
    }

    fn restart(&mut self, now: Time) {
        self.last = None;
        self.notify(self.has.restart, |law| law.call_method1("restart", (seconds(now),)));
    }

    fn on_sent(&mut self, now: Time, seq: u64) {
        self.last = Some((self.due(now), None));
        self.notify(self.has.on_sent, |law| law.call_method1("on_sent", (seconds(now), seq)));
    }

    fn on_ack(&mut self, now: Time, ack: &Ack) {
        let ack = PyAck::of(now, ack);
        self.notify(self.has.on_ack, |law| law.call_method1("on_ack", (seconds(now), ack)));
    }

    fn handle_timeout(&mut self, now: Time) {
        let Some(at) = self.next_timeout.filter(|at| *at <= now) else { return };
        self.notify(self.has.on_timeout, |law| law.call_method1("on_timeout", (seconds(now),)));
        if self.next_timeout.is_some_and(|next| next <= at) {
            let what = "after on_timeout(), next_timeout() gives the same time again, or an earlier one, which has passed; give a later one, or None";
            self.fail(PyValueError::new_err(what));
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.next_timeout
    }

    fn next_update_at(&self) -> Option<Time> {
        self.object.as_ref()?;
        if !self.has.next_update {
            return self.paced();
        }
        // Not faster than the ceiling, whatever it asks for.
        let after_last = self.last.map(|(due, _)| due + self.bounds.ceiling.period());
        self.given.map(|given| given.max(after_last.unwrap_or_default()))
    }

    fn rate(&self) -> UpdateRate {
        self.bounded(self.wanted.unwrap_or(self.bounds.floor))
    }

    fn phase(&self) -> Phase {
        if self.wanted.is_some() { Phase::Steering } else { Phase::Probing }
    }

    /// A law that hears acks adapts.
    fn bounds(&self) -> Option<RateBounds> {
        self.has.on_ack.then_some(self.bounds)
    }

    fn set_bounds(&mut self, bounds: RateBounds) {
        if self.has.on_ack {
            self.bounds = bounds;
        }
    }
}
