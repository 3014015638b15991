//! The state that all connections of browsers share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

use crate::certificate::Certificate;
use crate::hub::Hub;
use crate::session::Settings;
use crate::statuses::Statuses;
use crate::token::Token;

/// The path of WebTransport.
pub(crate) const WEBTRANSPORT: &str = "/freshline";

/// The longest control message, in bytes.
pub(crate) const MAX_CONTROL: usize = 64 << 10;

/// The state that all connections share.
pub(crate) struct Shared {
    pub(crate) hub: Arc<dyn Hub>,
    pub(crate) token: Token,
    pub(crate) settings: Settings,
    pub(crate) certificate: Arc<Certificate>,
    pub(crate) address: SocketAddr,
    pub(crate) statuses: watch::Receiver<Arc<Statuses>>,
    pub(crate) max_browsers: usize,
    /// Browsers now.
    pub(crate) browsers: AtomicUsize,
}

impl Shared {
    /// A place for a browser, if there is one.
    pub(crate) fn place(self: &Arc<Self>) -> Option<Place> {
        let taken = self.browsers.fetch_add(1, Ordering::Relaxed);
        let place = Place(Arc::clone(self));
        (taken < self.max_browsers).then_some(place)
    }
}

/// A browser's place, until it is dropped.
pub(crate) struct Place(Arc<Shared>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.browsers.fetch_sub(1, Ordering::Relaxed);
    }
}
