//! Confines a process to the files that it needs (Landlock): it writes and makes files below given
//! folders only, and executes nothing. Reading is not confined.
//!
//! Kernels before 5.13, and kernels that were built or started without Landlock, confine nothing;
//! older versions of Landlock confine less.

use std::path::PathBuf;

use landlock::{
    ABI, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, PathFdError, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus,
};

/// The version whose rights are handled; the last one added device controls, which stay open.
const VERSION: ABI = ABI::V4;

/// Why the kernel does not confine.
#[derive(Debug, thiserror::Error)]
pub enum ConfinementError {
    /// A folder cannot be opened.
    #[error(transparent)]
    Folder(#[from] PathFdError),
    /// The kernel refuses the rules.
    #[error("the kernel refuses Landlock's rules: {0}")]
    Rules(#[from] RulesetError),
}

/// How far the kernel confines the calling thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confined {
    /// As requested.
    Fully,
    /// As far as this kernel's version of Landlock can.
    Partly,
    /// Not at all: the kernel has no Landlock.
    Not,
}

/// Restricts the calling thread, and all threads that it starts from now on: they write and make
/// files only below these folders, and execute no file. Open files are not affected.
///
/// # Errors
/// [`ConfinementError`]; nothing is confined then.
pub fn write_only_below(folders: &[PathBuf]) -> Result<Confined, ConfinementError> {
    let writing = AccessFs::from_write(VERSION);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(writing | AccessFs::Execute)?
        .create()?;
    for folder in folders {
        rules = rules.add_rule(PathBeneath::new(PathFd::new(folder)?, writing))?;
    }
    Ok(match rules.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Confined::Fully,
        RulesetStatus::PartiallyEnforced => Confined::Partly,
        RulesetStatus::NotEnforced => Confined::Not,
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::{ErrorKind, Write};
    use std::process::Command;
    use std::thread;

    use super::*;

    #[test]
    fn files_are_written_below_the_folders_only_and_none_is_executed() {
        let [inside, outside] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let mut open = File::create(outside.path().join("open")).unwrap();
        let confine = || {
            let confined = write_only_below(&[inside.path().to_owned()]).unwrap();
            if confined == Confined::Not {
                return None;
            }
            let refused = fs::write(outside.path().join("new"), "").unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
            assert_eq!(Command::new("true").status().unwrap_err().kind(), refused.kind());
            fs::write(inside.path().join("new"), "").unwrap();
            open.write_all(b"still").unwrap();
            Some(fs::read(outside.path().join("open")).unwrap())
        };
        let Some(read) = thread::scope(|scope| scope.spawn(confine).join().unwrap()) else {
            println!("skipped: needs a kernel with Landlock");
            return;
        };
        assert_eq!(read, b"still");
        // Other threads go on as before.
        fs::write(outside.path().join("new"), "").unwrap();

        let missing = outside.path().join("missing");
        assert!(matches!(write_only_below(&[missing]), Err(ConfinementError::Folder(_))));
    }
}
