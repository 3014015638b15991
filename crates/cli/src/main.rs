//! The `freshline` command.
fn main() {}
