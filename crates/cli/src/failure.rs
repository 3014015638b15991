//! Reasons for which a subcommand ends early; they decide the exit code.

/// Why a subcommand ended early.
pub(crate) enum Failure {
    /// The command line or a file is not valid.
    Usage(miette::Report),
    /// The command line was valid, but the command failed.
    Runtime(miette::Report),
    /// The wrapped command ended with this exit code, and has printed why.
    Command(u8),
    /// Ctrl-C ended the command before it was done; results so far have been printed.
    Interrupted,
}

impl From<freshline::Error> for Failure {
    fn from(error: freshline::Error) -> Self {
        if let freshline::Error::Reachable { .. } = error {
            return Self::Usage(miette::miette!(
                help = "listen on quic://, with --credentials, --token-file or --client-ca to accept \
                        known peers only; or, on a network that you trust, give --insecure",
                "{error}"
            ));
        }
        // The library names its own settings; here they are flags.
        let is_usage = error.is_of_settings();
        let report = match error {
            freshline::Error::MaxState { max, .. } => miette::miette!(
                "--max-state must be at most {max}B by this transport: a state has at most 65536 parts"
            ),
            freshline::Error::NoStateDir => {
                miette::miette!("neither HOME nor --state-dir says where to keep the certificate")
            }
            error => miette::Report::msg(error),
        };
        if is_usage { Self::Usage(report) } else { Self::Runtime(report) }
    }
}
