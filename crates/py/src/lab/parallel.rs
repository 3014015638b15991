//! Work on all processors without the interpreter's lock, while Ctrl-C is heeded.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rayon::ThreadPoolBuilder;
use rayon::prelude::*;

/// How often signals are looked for and progress is reported.
const LOOK: Duration = Duration::from_millis(100);

/// More threads make nothing faster.
const MAX_THREADS: usize = 256;

/// Told how many jobs are done.
pub(crate) type Progress<'a> = Option<&'a Bound<'a, PyAny>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` on a thread of its own; `look` is called meanwhile, and its exception sets `stop`.
pub(crate) fn while_looking<T: Send>(
    py: Python<'_>,
    stop: &AtomicBool,
    look: impl Fn() -> PyResult<()>,
    work: impl FnOnce() -> T + Send,
) -> PyResult<T> {
    thread::scope(|scope| {
        let (done, ended) = channel();
        let work = move || {
            let result = work();
            // It is awaited until then.
            let _ = done.send(());
            result
        };
        let thread = thread::Builder::new().name("freshline lab".to_owned());
        let thread = thread.spawn_scoped(scope, work).map_err(|error| {
            PyRuntimeError::new_err(format!("the system has no thread left: {error}"))
        })?;
        let mut raised = Ok(());
        let ended = Mutex::new(ended);
        let wait = || lock(&ended).recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout);
        while py.detach(wait) {
            if raised.is_ok() {
                raised = py.check_signals().and_then(|()| look());
                stop.fetch_or(raised.is_err(), Ordering::Relaxed);
            }
        }
        let result = py.detach(move || thread.join());
        raised?;
        result.map_err(|_| {
            PyRuntimeError::new_err("the lab panicked; its message is on standard error")
        })
    })
}

/// The results of jobs, in their order, on `threads` threads (all processors by default). None begins once `stop` is true.
pub(crate) fn in_parallel<T: Send>(
    py: Python<'_>,
    jobs: usize,
    threads: Option<usize>,
    progress: Progress<'_>,
    stop: &AtomicBool,
    job: impl Fn(usize) -> PyResult<T> + Sync,
) -> PyResult<Vec<T>> {
    let done = AtomicUsize::new(0);
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.unwrap_or(processors).clamp(1, MAX_THREADS).min(jobs.max(1));
    let pool = py.detach(|| ThreadPoolBuilder::new().num_threads(threads).build());
    let pool = pool.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    let look = || match progress {
        Some(progress) => progress.call1((done.load(Ordering::Relaxed),)).map(|_| ()),
        None => Ok(()),
    };
    let one = |at: usize| {
        if stop.load(Ordering::Relaxed) {
            return Err(PyRuntimeError::new_err("cancelled"));
        }
        let result = job(at);
        done.fetch_add(1, Ordering::Relaxed);
        result
    };
    let work = || pool.install(|| (0..jobs).into_par_iter().map(one).collect::<PyResult<Vec<T>>>());
    let results = while_looking(py, stop, look, work)??;
    look()?;
    Ok(results)
}
