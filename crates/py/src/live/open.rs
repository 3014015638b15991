//! A source or a monitor that is open until it is closed, and what is still open when the interpreter ends.

use std::process;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::error;

/// How often [`Open::wait`] looks.
const LOOK: Duration = Duration::from_millis(1);

/// A handle that closing takes away.
pub(crate) struct Open<T: Send> {
    shared: Arc<RwLock<Option<T>>>,
    /// The process that has its thread; a child by `fork` has not, and so cannot close it.
    process: u32,
}

/// Asks one that is open to end.
type Stop = Box<dyn Fn() + Send + Sync>;

/// Of all that is open; those that are closed have left.
static ALL: Mutex<Vec<Weak<Stop>>> = Mutex::new(Vec::new());

/// Keeps the entry of [`ALL`] alive.
pub(crate) struct Listed(#[expect(dead_code, reason = "it is held only to be dropped")] Arc<Stop>);

impl<T: Send + Sync + 'static> Open<T> {
    /// It is open; `stop` asks it to end.
    pub(crate) fn new(handle: T, stop: fn(&T)) -> (Self, Listed) {
        let shared = Arc::new(RwLock::new(Some(handle)));
        let weak = Arc::downgrade(&shared);
        let stop: Arc<Stop> = Arc::new(Box::new(move || {
            if let Some(shared) = weak.upgrade()
                && let Some(handle) = &*shared.read().unwrap_or_else(PoisonError::into_inner)
            {
                stop(handle);
            }
        }));
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|stop| stop.strong_count() > 0);
        all.push(Arc::downgrade(&stop));
        (Self { shared, process: process::id() }, Listed(stop))
    }

    /// Looks at it. The interpreter's lock is released meanwhile, so that `look` may wait for the network's thread.
    pub(crate) fn look<R: Send>(
        &self,
        py: Python<'_>,
        look: impl FnOnce(&T) -> R + Send,
    ) -> PyResult<R> {
        py.detach(|| self.shared.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(look))
            .ok_or_else(error::closed)
    }

    /// Waits until it is as `is_so` says, for `patience` at most; whether it is, or was taken. Not with the
    /// interpreter's lock.
    pub(crate) fn wait(&self, patience: Duration, is_so: impl Fn(&T) -> bool) -> bool {
        let began = Instant::now();
        let is_now = || {
            self.shared.read().unwrap_or_else(PoisonError::into_inner).as_ref().is_none_or(&is_so)
        };
        while !is_now() {
            if began.elapsed() >= patience {
                return false;
            }
            thread::sleep(LOOK);
        }
        true
    }

    /// Takes it, once, and not in a child by `fork`.
    pub(crate) fn take(&self, py: Python<'_>) -> Option<T> {
        if self.is_forked() {
            return None;
        }
        py.detach(|| self.shared.write().unwrap_or_else(PoisonError::into_inner).take())
    }
}

impl<T: Send> Open<T> {
    fn is_forked(&self) -> bool {
        self.process != process::id()
    }
}

impl<T: Send> Drop for Open<T> {
    /// Its thread may need the interpreter's lock for a sample before it ends.
    fn drop(&mut self) {
        if self.is_forked() {
            // It is the parent's: to end it would be to wait for a thread that is not here.
            std::mem::forget(Arc::clone(&self.shared));
            return;
        }
        let taken = self.shared.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(handle) = taken {
            Python::attach(|py| py.detach(move || drop(handle)));
        }
    }
}

/// Asks all sources and monitors that are open to end, so that their peers need not wait for a timeout. Called when the
/// interpreter exits.
#[pyfunction]
#[pyo3(name = "_close_all")]
pub(crate) fn close_all(py: Python<'_>) {
    py.detach(|| {
        let all = std::mem::take(&mut *ALL.lock().unwrap_or_else(PoisonError::into_inner));
        all.iter().filter_map(Weak::upgrade).for_each(|stop| stop());
    });
}
