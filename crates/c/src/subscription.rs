//! States as they arrive: by calls, by a descriptor to poll, or by a callback.
//!
//! Unsafe: exports functions under fixed names for C.

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use freshline::Subscription;

use crate::error::fl_error::{FL_ENDED, FL_SYSTEM};
use crate::error::{Failure, call, fl_error};
use crate::raw::{User, needed, place};
use crate::state::{fl_state, hand_out};

/// The states of the topics that match a pattern, as they arrive. Made by `fl_monitor_subscribe` and
/// `fl_source_subscribe`, freed by `fl_subscription_free`. It may outlive its monitor or source: it has ended then.
///
/// A slow reader receives the newest state of each topic and key, in turn; it delays neither the network nor other
/// readers. Records are never replaced. If several threads read, each state goes to one of them.
pub struct fl_subscription {
    states: Arc<Subscription>,
    /// Shared with the thread itself, which starts once this is set.
    listener: Arc<Mutex<Option<JoinHandle<()>>>>,
}

/// Receives a state. It runs on a thread of the library. `state` is valid during the call: use `fl_state_clone` to
/// keep it. It must not throw, nor leave by `longjmp`.
pub type fl_on_state = Option<extern "C" fn(user: User, state: &fl_state)>;

/// Called once, after the last state, on the same thread: the place to free `user`. If a callback has freed its own
/// subscription, `on_end` is the last use of `user`, and the only place to free it.
pub type fl_on_end = Option<extern "C" fn(user: User)>;

impl fl_subscription {
    pub(crate) fn new(states: Subscription) -> Self {
        Self { states: Arc::new(states), listener: Arc::default() }
    }

    fn hand_out(
        &self,
        state: Option<freshline::State>,
        into: &mut Option<Box<fl_state>>,
    ) -> Result<(), Failure> {
        match state.is_none() && self.states.is_over() {
            true => Err(Failure::outcome(FL_ENDED)),
            false => hand_out(state, into),
        }
    }
}

impl Drop for fl_subscription {
    fn drop(&mut self) {
        self.states.close();
        let listener = lock(&self.listener).take();
        // A callback may free its own subscription: then the thread ends after it.
        if let Some(listener) = listener
            && LISTENS_TO.get() != Arc::as_ptr(&self.states)
        {
            // A panic there has been printed.
            let _ = listener.join();
        }
    }
}

thread_local! {
    /// The subscription whose callbacks run on this thread; never read from. `thread::current` would say the same,
    /// but it allocates a handle on a thread of the caller's that is not freed.
    static LISTENS_TO: Cell<*const Subscription> = const { Cell::new(std::ptr::null()) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `on_end` when the thread ends, also by a panic.
struct End {
    on_end: fl_on_end,
    user: User,
}

impl Drop for End {
    fn drop(&mut self) {
        if let Some(on_end) = self.on_end {
            on_end(self.user);
        }
    }
}

/// Wait for the next state, at most `timeout_ms` milliseconds; forever if it is negative.
///
/// The caller frees `*state` with `fl_state_free`; it is NULL unless the call returns `FL_OK`. Errors: `FL_NULL`,
/// `FL_NO_STATE` at the end of the time, `FL_ENDED` once no more states will arrive. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_subscription_next(
    subscription: Option<&fl_subscription>,
    timeout_ms: i64,
    state: Option<&mut MaybeUninit<Option<Box<fl_state>>>>,
) -> fl_error {
    call(|| {
        let state = place(state, "state")?;
        let subscription = needed(subscription, "subscription")?;
        let next = match u64::try_from(timeout_ms) {
            Ok(timeout) => subscription.states.next_within(Duration::from_millis(timeout)),
            Err(_) => subscription.states.next_state(),
        };
        subscription.hand_out(next, state)
    })
}

/// Take the next state if one is pending. Never blocks.
///
/// The caller frees `*state` with `fl_state_free`; it is NULL unless the call returns `FL_OK`. Errors: `FL_NULL`,
/// `FL_NO_STATE` if none is pending, `FL_ENDED` once no more states will arrive. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_subscription_try_next(
    subscription: Option<&fl_subscription>,
    state: Option<&mut MaybeUninit<Option<Box<fl_state>>>>,
) -> fl_error {
    call(|| {
        let state = place(state, "state")?;
        let subscription = needed(subscription, "subscription")?;
        subscription.hand_out(subscription.states.try_next(), state)
    })
}

/// Store a descriptor (an eventfd) that is readable while a state is pending and once the subscription has ended.
/// When `poll` or `epoll` reports it, call `fl_subscription_try_next` until it returns `FL_NO_STATE` or `FL_ENDED`.
///
/// The descriptor belongs to the subscription and is valid until that is freed: neither read from it nor close it.
/// `*fd` is -1 unless the call returns `FL_OK`. Errors: `FL_NULL`, `FL_SYSTEM` if the system has no descriptor
/// left. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_subscription_fd(
    subscription: Option<&fl_subscription>,
    fd: Option<&mut MaybeUninit<c_int>>,
) -> fl_error {
    call(|| {
        let fd = place(fd, "fd")?;
        *fd = -1;
        let states = &needed(subscription, "subscription")?.states;
        *fd = states.descriptor().map_err(|error| Failure::new(FL_SYSTEM, error))?.as_raw_fd();
        Ok(())
    })
}

/// Call `on_state` with each state, on a new thread of the library, until the subscription is closed or ends; then
/// call `on_end`, unless it is NULL.
///
/// `user` is passed to both; the library does not read it. Callbacks may call any function of the library, also
/// `fl_subscription_close` and `fl_subscription_free` for their own subscription. The library does not use `user`
/// after `fl_subscription_free` has returned, with one exception: called by a callback of the subscription,
/// `fl_subscription_free` returns at once, and `on_end(user)` follows when the callback has returned. Then free
/// `user` in `on_end` and nowhere else. Errors: `FL_NULL`, `FL_INVALID` if the subscription has a
/// callback, `FL_SYSTEM` if the system has no thread left; then neither function is called. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_subscription_listen(
    subscription: Option<&fl_subscription>,
    on_state: fl_on_state,
    on_end: fl_on_end,
    user: User,
) -> fl_error {
    call(|| {
        let on_state = needed(on_state, "on_state")?;
        let subscription = needed(subscription, "subscription")?;
        let mut listener = lock(&subscription.listener);
        if listener.is_some() {
            return Err(Failure::invalid("the subscription has a callback"));
        }
        let (states, started) = (Arc::clone(&subscription.states), subscription.listener.clone());
        let run = move || {
            // A callback may free the subscription, which this call uses until it has set the handle.
            drop(lock(&started));
            LISTENS_TO.set(Arc::as_ptr(&states));
            let end = End { on_end, user };
            while let Some(state) = states.next_state() {
                on_state(end.user, &fl_state::new(state));
            }
        };
        let named = thread::Builder::new().name("freshline states".into());
        *listener = Some(named.spawn(run).map_err(|error| Failure::new(FL_SYSTEM, error))?);
        Ok(())
    })
}

/// Store whether no state is pending and no more will arrive: `fl_subscription_next` would return `FL_ENDED`.
///
/// Errors: `FL_NULL`. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_subscription_is_over(
    subscription: Option<&fl_subscription>,
    is_over: Option<&mut MaybeUninit<bool>>,
) -> fl_error {
    call(|| {
        *place(is_over, "is_over")? = needed(subscription, "subscription")?.states.is_over();
        Ok(())
    })
}

/// Store the number of states that a newer one replaced before they were read.
///
/// Errors: `FL_NULL`. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_subscription_replaced(
    subscription: Option<&fl_subscription>,
    count: Option<&mut MaybeUninit<u64>>,
) -> fl_error {
    call(|| {
        *place(count, "count")? = needed(subscription, "subscription")?.states.replaced();
        Ok(())
    })
}

/// End a subscription: pending states are dropped, and calls that wait return `FL_ENDED`. Does not wait for a
/// callback that runs.
///
/// The caller still frees it. Errors: `FL_NULL`. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_subscription_close(subscription: Option<&fl_subscription>) -> fl_error {
    call(|| {
        needed(subscription, "subscription")?.states.close();
        Ok(())
    })
}

/// End a subscription and free it; NULL is allowed. Waits until its callbacks have returned, `on_end` included: so do
/// not hold a lock that a callback takes. Called by one of its callbacks it does not wait, and `on_end` follows.
///
/// States that were received stay valid. Not thread-safe: no other call may use `subscription`; to end one that
/// another thread reads, call `fl_subscription_close` and let that thread return first.
#[unsafe(no_mangle)]
pub extern "C" fn fl_subscription_free(subscription: Option<Box<fl_subscription>>) {
    call(|| {
        drop(subscription);
        Ok(())
    });
}
