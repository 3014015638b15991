//! Laws by their names, with their settings.

use super::{BandLaw, BandLawError, SorpcParams};

/// A law of the bands and its settings. In a file, a string such as `"sorpc"`, or a table such as
/// `{ law = "sorpc", threshold = 0.5 }`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum BandLawConfig {
    /// [`BandLaw::Single`].
    #[default]
    Single,
    /// [`Sorpc`](super::Sorpc).
    Sorpc(SorpcParams),
}

impl BandLawConfig {
    /// The law.
    ///
    /// # Errors
    /// A setting outside its range.
    pub fn build(&self) -> Result<BandLaw, BandLawError> {
        Ok(match *self {
            Self::Single => BandLaw::Single,
            Self::Sorpc(params) => BandLaw::Sorpc(params.build()?),
        })
    }
}

/// A law in a file.
#[cfg(feature = "serde")]
mod reading {
    use alloc::format;
    use alloc::string::String;

    use serde::{Deserialize, Deserializer};

    use super::{BandLawConfig, SorpcParams};
    use crate::reading::string_or_table;

    /// The table.
    #[derive(Deserialize)]
    #[serde(tag = "law", rename_all = "snake_case", deny_unknown_fields)]
    enum Table {
        Single {},
        Sorpc(SorpcParams),
    }

    impl From<Table> for BandLawConfig {
        fn from(table: Table) -> Self {
            match table {
                Table::Single {} => Self::Single,
                Table::Sorpc(params) => Self::Sorpc(params),
            }
        }
    }

    fn named(name: &str) -> Result<BandLawConfig, String> {
        match name {
            "single" => Ok(BandLawConfig::Single),
            "sorpc" => Ok(BandLawConfig::Sorpc(SorpcParams::default())),
            _ => Err(format!("`{name}` is no law of the bands; write `single` or `sorpc`")),
        }
    }

    impl<'de> Deserialize<'de> for BandLawConfig {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let expected = "`single`, `sorpc`, or a table with `law` and its settings";
            string_or_table::<Table, _, _, _>(deserializer, expected, named)
        }
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[derive(Debug, serde::Deserialize)]
    struct File {
        host: BandLawConfig,
    }

    fn read(host: &str) -> Result<BandLawConfig, toml::de::Error> {
        toml::from_str::<File>(&alloc::format!("host = {host}")).map(|file| file.host)
    }

    #[test]
    fn a_law_is_a_name_or_a_table() {
        let sorpc = |threshold| BandLawConfig::Sorpc(SorpcParams { threshold });
        assert_eq!(read("\"single\"").unwrap(), BandLawConfig::default());
        assert_eq!(read("{ law = \"single\" }").unwrap(), BandLawConfig::Single);
        assert_eq!(read("\"sorpc\"").unwrap(), sorpc(0.5));
        assert_eq!(read("{ law = \"sorpc\", threshold = 0.8 }").unwrap(), sorpc(0.8));
        assert!(read("{ law = \"single\", threshold = 0.8 }").is_err());
        let refusal = read("\"triple\"").unwrap_err().to_string();
        assert!(
            refusal.contains("`triple` is no law of the bands; write `single` or `sorpc`"),
            "{refusal}"
        );
    }

    #[test]
    fn a_law_that_makes_no_sense_is_not_built() {
        assert_eq!(read("\"single\"").unwrap().build(), Ok(BandLaw::Single));
        assert!(matches!(read("\"sorpc\"").unwrap().build(), Ok(BandLaw::Sorpc(_))));
        let error = read("{ law = \"sorpc\", threshold = 0.0 }").unwrap().build().unwrap_err();
        assert_eq!(error, BandLawError::Threshold(0.0));
    }
}
