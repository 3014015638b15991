//! Cells in flags: `standard=802.11ac,rate=mcs9,width=80MHz`.

use freshline_core::wlan::mac::CellConfig;
use toml::{Table, Value};

/// Reads a cell from a flag. Its keys are those keys of the table in a file that are not tables.
pub(super) fn parse(text: &str) -> Result<CellConfig, String> {
    let mut table = Table::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').ok_or_else(|| {
            format!("`{part}` is not of the form `key=value`; write for example `rate=mcs9`")
        })?;
        let (key, value) = (key.trim(), value.trim());
        let number = value.parse().ok().filter(|_| is_number(key)).map(Value::Integer);
        let value = number.unwrap_or_else(|| Value::String(value.to_owned()));
        if table.insert(key.to_owned(), value).is_some() {
            return Err(format!("`{key}` is given twice; give it once"));
        }
    }
    table.try_into().map_err(|error: toml::de::Error| error.message().to_owned())
}

fn is_number(key: &str) -> bool {
    Table::try_from(CellConfig::default())
        .is_ok_and(|table| table.get(key).is_some_and(Value::is_integer))
}

/// The inverse of [`parse`]; subtables are only named.
pub(super) fn print(cell: &CellConfig) -> String {
    let mut table = Table::try_from(cell).expect("a cell is a table");
    // Left out, as stations depend on the clients.
    table.remove("stations");
    let parts = table.iter().map(|(key, value)| match value {
        Value::String(text) => format!("{key}={text}"),
        Value::Integer(_) | Value::Float(_) => format!("{key}={value}"),
        _ => format!("{key}=…"),
    });
    parts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_reads_as_it_prints() {
        let cell = parse("standard=802.11ac, rate=mcs9,width=80MHz,streams=2").unwrap();
        let printed = "guard=long,lifetime=500ms,max_mpdus=64,max_msdus=1,queue=500p,rate=mcs9,\
                       slot=short,standard=802.11ac,streams=2,width=80MHz";
        assert_eq!(print(&cell), printed);
        assert_eq!(parse(printed).unwrap(), cell);
        assert_eq!(parse("").unwrap(), CellConfig::default());
    }

    #[test]
    fn a_flag_that_cannot_be_read_is_explained() {
        for (text, explanation) in [
            ("fast", "`fast` is not of the form `key=value`"),
            ("rate=mcs9,rate=mcs8", "`rate` is given twice"),
            ("colour=red", "unknown field `colour`, expected one of `standard`"),
            ("rate=fast", "or `mcs7`, or `minstrel`"),
            ("width=80", "80MHz"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(explanation), "{text}: {message}");
        }
    }
}
