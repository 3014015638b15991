//! Orders to a running router, carried out between two turns of its loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::waker::Waker;
use freshline_core::router::{AoiShare, RouterReport};
use freshline_core::unit::BitRate;
use serde::{Deserialize, Serialize};

/// How long the router's loop may take to carry out an order; shorter than its clients wait for an
/// answer.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// The settings to change. Missing settings stay as they are, so an empty order only queries the
/// state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Order {
    /// The share γ of the AoI class.
    pub aoi_share: Option<AoiShare>,
    /// The rate to which the router shapes.
    pub rate: Option<BitRate>,
}

/// The reason why an order was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// The discipline has no classes.
    #[error("the queue `{0}` has no share to set: it does not tell classes apart; `ifc` does")]
    NoShare(String),
    /// At this rate no packet would ever leave.
    #[error("the rate is zero, and nothing would ever leave; give a rate such as 20mbit")]
    ZeroRate,
    /// The system refused the change.
    #[error("the kernel refused the new rate: {0}")]
    System(String),
    /// The loop does not process orders.
    #[error(
        "the router's loop did not answer within 1.5 s: it hangs, or the machine is too busy; look at \
         the router's messages, or start it again"
    )]
    Silent,
    /// The router is no longer running.
    #[error("the router has ended")]
    Gone,
}

pub(super) type Answer = Result<RouterReport, OrderError>;

struct Letter {
    order: Order,
    answer: Sender<Answer>,
    /// Set by the first of both sides: the loop, which carries the order out, or the sender, which
    /// withdraws it.
    is_taken: Arc<AtomicBool>,
}

/// Gives orders to a router that runs on another thread.
#[derive(Clone)]
pub struct Orders {
    letters: Sender<Letter>,
    waker: Arc<Waker>,
}

impl Orders {
    /// Has an order carried out; returns the router's report until then, and its new settings.
    ///
    /// # Errors
    /// [`OrderError`] if it was not carried out; then no part of it was. After
    /// [`OrderError::Silent`] it is carried out later only if the loop hung in the midst of it.
    pub fn give(&self, order: Order) -> Result<RouterReport, OrderError> {
        let (answer, answered) = channel();
        let is_taken = Arc::<AtomicBool>::default();
        let letter = Letter { order, answer, is_taken: Arc::clone(&is_taken) };
        self.letters.send(letter).map_err(|_| OrderError::Gone)?;
        self.waker.wake().map_err(|_| OrderError::Gone)?;
        let mut answer = answered.recv_timeout(PATIENCE);
        if answer == Err(RecvTimeoutError::Timeout) && is_taken.swap(true, Ordering::SeqCst) {
            // The loop has just taken it.
            answer = answered.recv_timeout(PATIENCE / 4);
        }
        match answer {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => Err(OrderError::Silent),
            Err(RecvTimeoutError::Disconnected) => Err(OrderError::Gone),
        }
    }
}

/// The router's side.
pub(super) struct Desk {
    orders: Orders,
    letters: Receiver<Letter>,
}

impl Desk {
    pub(super) fn new(waker: Arc<Waker>) -> Self {
        let (sender, letters) = channel();
        Self { orders: Orders { letters: sender, waker }, letters }
    }

    pub(super) fn orders(&self) -> Orders {
        self.orders.clone()
    }

    /// Answers all orders that have arrived.
    pub(super) fn attend(&self, mut carry_out: impl FnMut(Order) -> Answer) {
        while let Ok(Letter { order, answer, is_taken }) = self.letters.try_recv() {
            if is_taken.swap(true, Ordering::SeqCst) {
                continue;
            }
            // The requester may have gone meanwhile.
            let _ = answer.send(carry_out(order));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_that_a_hanging_loop_does_not_take_is_refused_and_never_carried_out() {
        let poll = mio::Poll::new().unwrap();
        let waker = Arc::new(Waker::of_poll(poll.registry(), mio::Token(0)).unwrap());
        let desk = Desk::new(waker);
        let orders = desk.orders();
        assert_eq!(orders.give(Order::default()), Err(OrderError::Silent));
        desk.attend(|_| panic!("the order was withdrawn"));
        drop(desk);
        assert_eq!(orders.give(Order::default()), Err(OrderError::Gone));
    }
}
