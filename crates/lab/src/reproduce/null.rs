//! The null test: each new law replaced by its baseline. A row that still holds does not
//! demonstrate the law.

use toml::{Table, Value};

use crate::scenario::{Baseline, Change, Scenario, SetError, Source};

/// Whether a law was replaced in a scenario; otherwise it contains only baselines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Replaced(pub(super) bool);

/// Reads a scenario after applying changes and replacing laws.
pub(super) fn parse(
    source: Source<'_>,
    changes: &[Change],
    baselines: &[Baseline],
) -> Result<(Scenario, Replaced), SetError> {
    let mut replaced = Replaced(false);
    let edit = |table: &mut Table| {
        for (key, value) in table.iter_mut() {
            // The rows' own settings are among the changes.
            if key != "reproduce" {
                replaced.0 |= replace(key, value, baselines);
            }
        }
    };
    Ok((Scenario::parse_edited(source, changes, edit)?, replaced))
}

/// The keys under which a table names its law.
const TAGS: [&str; 3] = ["law", "discipline", "control"];

/// Replaces all laws in the value of a key.
fn replace(key: &str, value: &mut Value, baselines: &[Baseline]) -> bool {
    if let Value::Array(values) = value {
        return values.iter_mut().fold(false, |any, value| replace(key, value, baselines) | any);
    }
    let baseline = named(key, value, baselines);
    let Some(table) = value.as_table_mut() else {
        let Some(baseline) = baseline else { return false };
        *value = baseline.to.clone();
        return true;
    };
    if table.get("count") == Some(&Value::Integer(0)) {
        return false; // It does not run, and the rest of the scenario shows baselines alone.
    }
    if let Some(Baseline { to, part, without, .. }) = baseline {
        let Some(without) = without else {
            let inner = part.as_ref().and_then(|key| table.remove(key));
            *value = inner.unwrap_or_else(|| to.clone());
            return true;
        };
        without.iter().for_each(|key| drop(table.remove(key)));
    }
    let keys: Vec<_> = table.keys().cloned().collect();
    keys.iter().fold(false, |any, key| {
        let under = named(key, &table[key], baselines).and_then(|baseline| baseline.under.clone());
        let is_replaced = replace(key, &mut table[key], baselines);
        if let Some((under, value)) = under.and_then(|under| Some((under, table.remove(key)?))) {
            table.insert(under, value);
        }
        is_replaced | any
    })
}

/// The baseline of the law that the value of a key names.
fn named<'a>(key: &str, value: &Value, baselines: &'a [Baseline]) -> Option<&'a Baseline> {
    baselines.iter().find(|baseline| {
        let names = |value: &Value| value.as_str() == Some(&baseline.from);
        let is_meant = baseline.key.as_ref().is_none_or(|only| only == key);
        is_meant && (names(value) || TAGS.iter().any(|tag| value.get(tag).is_some_and(names)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(text: &str, baselines: &[Baseline]) -> (Table, bool) {
        let mut value = Value::Table(text.parse().unwrap());
        let any = replace("", &mut value, baselines);
        (value.as_table().unwrap().clone(), any)
    }

    fn baseline(text: &str) -> Baseline {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_law_is_replaced_wherever_it_stands() {
        let baselines = [
            baseline("from = 'new'\nto = 'old'\nwithout = ['params']"),
            baseline("from = 'linear'\nkey = 'law'\nto = { law = 'fixed' }"),
            baseline("from = 'ifc'\nto = '1000p'\npart = 'averse'"),
            baseline("from = 'paced'\nto = { control = 'bbr' }\nunder = 'tcp'"),
        ];
        let text = r#"
            flow = [{ updates = { law = "new", params = { a = 1 }, rate = "1/s" } }]
            link = { queue = { discipline = "ifc", averse = "red" }, reverse = "ifc", name = "newer" }
            other = { discipline = "ifc" }
            downlink = { law = { law = "linear", target = 3 } }
            upward = { law = "linear", packet = "1B" }
            idle = [{ count = 0, updates = { law = "paced" } }]
            source = [{ count = 2, updates = { law = "paced", payload = "1B" } }]
        "#;
        let (table, any) = replaced(text, &baselines);
        let expected = r#"
            flow = [{ updates = { law = "old", rate = "1/s" } }]
            link = { queue = "red", reverse = "1000p", name = "newer" }
            other = "1000p"
            downlink = { law = { law = "fixed" } }
            upward = { law = { law = "fixed" }, packet = "1B" }
            idle = [{ count = 0, updates = { law = "paced" } }]
            source = [{ count = 2, tcp = { control = "bbr" } }]
        "#;
        assert_eq!((table, any), (expected.parse().unwrap(), true));
        assert!(!replaced("name = \"older\"", &baselines).1);
    }
}
