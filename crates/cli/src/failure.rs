//! Why a subcommand ends early, which decides the exit code.

/// Why a subcommand ended early.
pub(crate) enum Failure {
    /// The command line or a file is not valid.
    Usage(miette::Report),
    /// It was understood, and failed.
    Runtime(miette::Report),
    /// The command that it ran ended with this exit code, and has said why.
    Command(u8),
    /// Ctrl-C ended it before it was done; what there was has been printed.
    Interrupted,
}
