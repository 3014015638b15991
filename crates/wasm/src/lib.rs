//! The laboratory in a web page.
//!
//! ```text
//!   controls ─► Settings ─► Scenario ─► Live ─── advance ──► World (freshline-lab)
//!                                        │
//!                 packets, ages, numbers ┴──────────────────► canvas
//! ```
//!
//! [`run()`] runs a whole scenario and gives the same bytes as `freshline lab run --json`.
//! [`Live`] runs one in steps. [`bindings`] is the API of both for JavaScript.

pub mod bindings;
mod dial;
mod live;
mod run;
mod settings;

pub use dial::{Dial, Dialled};
pub use live::{Drops, Live, Numbers, Seen, SourceNumbers, Spot};
pub use run::{run, sweep_point};
pub use settings::{BadSettings, CrossTraffic, Delays, Queue, Settings};
