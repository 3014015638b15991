//! Orders to a running router, carried out between two turns of its loop.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use freshline_core::router::{AoiShare, RouterReport};
use freshline_core::unit::BitRate;
use mio::Waker;
use serde::{Deserialize, Serialize};

/// What is to change. What is left out stays as it is, so that nothing at all is a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Order {
    /// The share γ of the AoI class.
    pub aoi_share: Option<AoiShare>,
    /// The rate to which the router shapes.
    pub rate: Option<BitRate>,
}

/// Why an order was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// The discipline does not know classes.
    #[error("the queue `{0}` has no share to set: it does not tell classes apart; `ifc` does")]
    NoShare(String),
    /// Nothing would ever leave.
    #[error("the rate is zero, and nothing would ever leave; give a rate such as 20mbit")]
    ZeroRate,
    /// The system refuses.
    #[error("the kernel refused the new rate: {0}")]
    System(String),
    /// The router does not run any more.
    #[error("the router has ended")]
    Gone,
}

pub(super) type Answer = Result<RouterReport, OrderError>;

struct Letter {
    order: Order,
    answer: Sender<Answer>,
}

/// Gives orders to a router that runs on another thread.
#[derive(Clone)]
pub struct Orders {
    letters: Sender<Letter>,
    waker: Arc<Waker>,
}

impl Orders {
    /// Has an order carried out: what the router did until then, and how it is set now.
    ///
    /// # Errors
    /// [`OrderError`] if it was not carried out; then nothing of it was.
    pub fn give(&self, order: Order) -> Result<RouterReport, OrderError> {
        let (answer, answered) = channel();
        self.letters.send(Letter { order, answer }).map_err(|_| OrderError::Gone)?;
        self.waker.wake().map_err(|_| OrderError::Gone)?;
        answered.recv().map_err(|_| OrderError::Gone)?
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

    /// Answers everything that has come.
    pub(super) fn attend(&self, mut carry_out: impl FnMut(Order) -> Answer) {
        while let Ok(Letter { order, answer }) = self.letters.try_recv() {
            // Who has asked may have gone meanwhile.
            let _ = answer.send(carry_out(order));
        }
    }
}
