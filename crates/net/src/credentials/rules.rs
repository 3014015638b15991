//! The rules of one endpoint, for the session layer.

use freshline_core::session::Access;
use freshline_core::wire::{CloseReason, Opening};

use super::{Credentials, Right};

/// The rules for opening sessions at a monitor, or at the server of a downlink.
#[derive(Debug)]
pub struct Rules {
    /// The right that a session needs.
    pub right: Right,
    /// The accepted tokens; `None` if no token is required, unless the session's settings name
    /// some.
    pub credentials: Option<Credentials>,
    /// Whether a peer may take only names that its certificate lists (subject alternative names, DNS or
    /// URI).
    pub certified_names: bool,
}

impl Rules {
    /// Rules that permit everything.
    pub fn none(right: Right) -> Self {
        Self { right, credentials: None, certified_names: false }
    }

    /// The rules for a peer whose certificate lists these names; `None` if there are no rules.
    pub(crate) fn of<'a>(&'a self, names: &'a [Box<str>]) -> Option<Check<'a>> {
        let are_some = self.credentials.is_some() || self.certified_names;
        are_some.then_some(Check { rules: self, names })
    }

    /// Whether a session that was permitted before still is. The names in its certificate cannot
    /// have changed.
    pub(crate) fn permit(&self, credential: u64, name: &str) -> bool {
        self.grant(self.right, credential, name)
    }

    /// Whether an open session also has this right. Without credentials there are no rights to
    /// check.
    pub(crate) fn grant(&self, right: Right, credential: u64, name: &str) -> bool {
        let permits = |known: &Credentials| known.permits(credential, right, name);
        self.credentials.as_ref().is_none_or(permits)
    }
}

/// The rules for one peer.
pub(crate) struct Check<'a> {
    rules: &'a Rules,
    names: &'a [Box<str>],
}

impl Access for Check<'_> {
    fn check(&self, opening: &Opening<'_>) -> Result<u64, CloseReason> {
        let Rules { right, credentials, certified_names } = self.rules;
        let credential = match credentials {
            None => 0,
            Some(known) => known.check(opening.token, *right, opening.name)?,
        };
        if *certified_names && !self.names.iter().any(|name| **name == *opening.name) {
            return Err(CloseReason::NotPermitted);
        }
        Ok(credential)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshline_core::wire::Cookie;

    #[test]
    fn a_name_must_be_the_certificates_and_the_tokens() {
        let names = ["robot-7", "lidar"].map(Box::from);
        let rules = Rules {
            credentials: Some(Credentials::of_tokens([&b"one"[..]])),
            certified_names: true,
            ..Rules::none(Right::Publish)
        };
        let check = |name, token| {
            let opening = Opening { cookie: Cookie::default(), name, token };
            rules.of(&names).unwrap().check(&opening)
        };
        assert!(check("robot-7", b"one").is_ok());
        assert_eq!(check("robot-8", b"one"), Err(CloseReason::NotPermitted));
        assert_eq!(check("", b"one"), Err(CloseReason::NotPermitted));
        assert_eq!(check("robot-7", b"two"), Err(CloseReason::BadToken));
        assert!(Rules::none(Right::Publish).of(&names).is_none());
    }
}
