//! Handles of sources and monitors that can be closed, and the list of open ones for the
//! interpreter's exit.

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;

use crate::error;

/// How often it is looked whether threads have ended.
const LOOK: Duration = Duration::from_millis(1);

/// How often at most, when the interpreter exits.
const LOOKS: u32 = 2_000;

/// Whether the interpreter exits: its lock must not be asked for any more.
static IS_EXITING: AtomicBool = AtomicBool::new(false);

/// Whether the interpreter exits.
pub(crate) fn is_exiting() -> bool {
    IS_EXITING.load(Ordering::Relaxed)
}

/// A handle that closing takes away.
pub(crate) struct Open<T: Send> {
    shared: Arc<RwLock<Option<T>>>,
    /// The process that has its thread; a child by `fork` has not, and so cannot close it.
    process: u32,
}

/// Asks one that is open to end, and says whether it has.
type Stop = Box<dyn Fn() -> bool + Send + Sync>;

/// Of all open sources and monitors.
static ALL: Mutex<Vec<Weak<Stop>>> = Mutex::new(Vec::new());

/// Keeps the entry of [`ALL`] alive.
pub(crate) struct Listed(#[expect(dead_code, reason = "it is held only to be dropped")] Arc<Stop>);

impl<T: Send + Sync + 'static> Open<T> {
    /// It is open; `stop` asks it to end, and says whether it has.
    pub(crate) fn new(handle: T, stop: fn(&T) -> bool) -> (Self, Listed) {
        let shared = Arc::new(RwLock::new(Some(handle)));
        let (weak, process) = (Arc::downgrade(&shared), process::id());
        let stop: Arc<Stop> = Arc::new(Box::new(move || {
            let Some(shared) = weak.upgrade().filter(|_| process == process::id()) else {
                return true;
            };
            let handle = shared.read().unwrap_or_else(PoisonError::into_inner);
            handle.as_ref().is_none_or(stop)
        }));
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|stop| stop.strong_count() > 0);
        all.push(Arc::downgrade(&stop));
        (Self { shared, process }, Listed(stop))
    }

    /// Looks at it. The interpreter's lock is released meanwhile, so that `look` may wait for the network's thread.
    pub(crate) fn look<R: Send>(
        &self,
        py: Python<'_>,
        look: impl FnOnce(&T) -> R + Send,
    ) -> PyResult<R> {
        if self.is_forked() {
            return Err(error::forked());
        }
        py.detach(|| self.see(look)).ok_or_else(error::closed)
    }

    /// Looks at it, unless it was taken. Not with the interpreter's lock.
    pub(crate) fn see<R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        self.shared.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(look)
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

/// Ends all sources and monitors that are open, so that their peers need not wait for a timeout, and waits for their
/// threads, which may be in a function for samples. Called when the interpreter exits.
#[pyfunction]
#[pyo3(name = "_close_all")]
pub(crate) fn close_all(py: Python<'_>) {
    IS_EXITING.store(true, Ordering::Relaxed);
    py.detach(|| {
        let all = std::mem::take(&mut *ALL.lock().unwrap_or_else(PoisonError::into_inner));
        let mut all: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
        for _ in 0..LOOKS {
            all.retain(|stop| !stop());
            if all.is_empty() {
                return;
            }
            thread::sleep(LOOK);
        }
    });
}
