//! What the crates that meet the operating system share: locks on folders, privileges that a process
//! gives up, and the user that runs a command.

pub mod folder_lock;
pub mod privileges;
mod user;

pub use user::{User, UserError};
