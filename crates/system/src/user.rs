//! The user that runs a command which this process starts.
//!
//! Unsafe: code between `fork` and `exec` is the caller's responsibility. Here it is three system
//! calls, with arguments that were made before.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;

use nix::unistd::{self, Gid, Uid, getgrouplist, setgid, setgroups, setuid};

/// A user of this host, with the groups that a login of it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    name: String,
    home: PathBuf,
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

/// Why a user cannot run a command.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// The host does not have it.
    #[error(
        "this host has no user `{0}`; `getent passwd` lists the users, and a number works, too"
    )]
    Unknown(String),
    /// The host's lists of users and groups cannot be read.
    #[error("cannot look up the user `{name}`: {source}")]
    System {
        /// The name or number.
        name: String,
        /// The system's error.
        source: io::Error,
    },
}

impl FromStr for User {
    type Err = UserError;

    /// By name, or by number.
    fn from_str(text: &str) -> Result<Self, UserError> {
        let failed =
            |source: nix::Error| UserError::System { name: text.to_owned(), source: source.into() };
        let found = match text.parse() {
            Ok(number) => unistd::User::from_uid(Uid::from_raw(number)),
            Err(_) => unistd::User::from_name(text),
        };
        let found = found.map_err(failed)?;
        let unistd::User { name, uid, gid, dir, .. } =
            found.ok_or_else(|| UserError::Unknown(text.to_owned()))?;
        let c_name = CString::new(name.clone()).expect("names in C have no zero");
        let groups = getgrouplist(&c_name, gid).map_err(failed)?;
        Ok(Self { name, home: dir, uid, gid, groups })
    }
}

impl User {
    /// Runs the command as this user: with its groups, and without any privilege of this process.
    /// HOME, USER and LOGNAME are the user's; the rest of the environment and the directory stay.
    /// Comes after all other work in the new process ([`CommandExt::pre_exec`]).
    pub fn runs(&self, command: &mut Command) {
        command.env("HOME", &self.home).env("USER", &self.name).env("LOGNAME", &self.name);
        let Self { uid, gid, ref groups, .. } = *self;
        let groups = groups.clone();
        let become_user = move || {
            setgroups(&groups)?;
            setgid(gid)?;
            // The kernel clears all capabilities with the last user ID of root.
            Ok(setuid(uid)?)
        };
        // SAFETY: it makes system calls only; see the head of this file.
        unsafe { command.pre_exec(become_user) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_runs_with_the_groups_of_its_user_and_without_privileges() {
        if !Uid::effective().is_root() {
            println!("skipped: needs root");
            return;
        }
        let user: User = "nobody".parse().unwrap();
        assert_eq!(user, user.uid.to_string().parse().unwrap());
        let mut command = Command::new("sh");
        command.args(["-c", "id -un; id -Gn; grep CapPrm /proc/self/status; echo $USER"]);
        user.runs(&mut command);
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let mut groups = Command::new("id");
        let groups = groups.args(["-Gn", "nobody"]).output().unwrap().stdout;
        let groups = String::from_utf8(groups).unwrap();
        let expected = format!("nobody\n{groups}CapPrm:\t0000000000000000\nnobody\n");
        assert_eq!(said, expected);
    }

    #[test]
    fn a_user_that_the_host_has_not_is_refused() {
        for name in ["no-such-user", "", "4294967294", "-1"] {
            let error = name.parse::<User>().unwrap_err();
            assert!(matches!(&error, UserError::Unknown(unknown) if unknown == name), "{error}");
        }
    }
}
