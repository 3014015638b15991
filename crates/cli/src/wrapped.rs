//! The command that `emulate run`, `receiver run` and `uplink run` start.

use std::ffi::OsString;
use std::process::Command;

use freshline_system::User;

/// The command that `run` starts.
#[derive(Debug, clap::Args)]
pub(crate) struct Wrapped {
    /// Run the command as this user of the host, a name or number, with its groups and without
    /// root's privileges. Default: as the user of this process, root. Programs such as sudo work as
    /// usual.
    #[arg(long, value_name = "NAME")]
    user: Option<User>,
    /// Run this command with its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Wrapped {
    pub(crate) fn program(&self) -> &OsString {
        self.command.first().expect("clap requires a command")
    }

    /// The user that runs the command.
    pub(crate) fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }

    /// The command, which runs as that user if `switches`.
    pub(crate) fn command(&self, switches: bool) -> Command {
        let mut command = Command::new(self.program());
        command.args(&self.command[1..]);
        if let Some(user) = self.user().filter(|_| switches) {
            user.runs(&mut command);
        }
        command
    }
}
