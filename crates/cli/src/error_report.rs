//! Prints errors, each text once.
//!
//! An error often repeats the text of its cause, and is often the cause of another error. With the
//! whole chain of causes, the same words would appear twice, so causes whose text was already
//! printed are left out.

use std::error::Error;
use std::fmt;

use miette::{Diagnostic, LabeledSpan, MietteHandler, ReportHandler, Severity, SourceCode};

/// Prints all reports with [`Handler`] from now on.
pub(crate) fn install() {
    // Fails only if a handler is installed already.
    let _ = miette::set_hook(Box::new(|_| Box::new(Handler)));
}

struct Handler;

impl ReportHandler for Handler {
    fn debug(&self, error: &dyn Diagnostic, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let handler = MietteHandler::default();
        let mut texts = vec![error.to_string()];
        let mut cause = error.source();
        let mut repeats = false;
        while let Some(one) = cause {
            let text = one.to_string();
            let is_known = texts.last().is_some_and(|last| last.contains(&text));
            if !is_known {
                texts.push(text);
            }
            repeats |= is_known;
            cause = one.source();
        }
        if !repeats {
            return handler.debug(error, f);
        }
        let causes = texts.into_iter().skip(1).rev();
        let cause = causes.fold(None, |cause, text| Some(Box::new(Cause { text, cause })));
        handler.debug(&Once { error, cause }, f)
    }
}

/// An error with a filtered chain of causes.
struct Once<'a> {
    error: &'a dyn Diagnostic,
    cause: Option<Box<Cause>>,
}

#[derive(Debug)]
struct Cause {
    text: String,
    cause: Option<Box<Cause>>,
}

impl fmt::Debug for Once<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.error, f)
    }
}

impl fmt::Display for Once<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.error, f)
    }
}

impl Error for Once<'_> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

impl Diagnostic for Once<'_> {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.error.code()
    }

    fn severity(&self) -> Option<Severity> {
        self.error.severity()
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.error.help()
    }

    fn url<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.error.url()
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.error.source_code()
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.error.labels()
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Cause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use miette::{IntoDiagnostic, WrapErr, miette};
    use std::io;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read {name}: {source}")]
    struct Unreadable {
        name: &'static str,
        source: io::Error,
    }

    struct Printed<'a>(&'a dyn Diagnostic);

    impl fmt::Display for Printed<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            Handler.debug(self.0, f)
        }
    }

    #[test]
    fn a_text_is_printed_once() {
        let source = io::Error::other("no such thing");
        let failed = Err::<(), _>(Unreadable { name: "the key", source });
        let report = failed.into_diagnostic().wrap_err("no identity").unwrap_err();
        let told = Printed(&*report).to_string();
        assert_eq!(told.matches("no such thing").count(), 1, "{told}");
        assert!(told.contains("no identity") && told.contains("cannot read the key"), "{told}");

        let helped = miette!(help = "look again", "nothing found");
        let told = Printed(&*helped).to_string();
        assert!(told.contains("nothing found") && told.contains("look again"), "{told}");
    }
}
