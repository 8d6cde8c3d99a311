//! What PostgreSQL's drivers set and ask for that is not the engine's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use datafusion::sql::sqlparser::tokenizer::Token;
use parking_lot::Mutex;

use crate::error::SqlError;

/// The PostgreSQL version whose protocol and catalog clients may expect.
pub(crate) const SERVER_VERSION: &str = "15.0";

/// What may become of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// Any value; it means nothing here.
    Any,
    /// Only values that begin so, ignoring case, `-` and `_`.
    Only(&'static str),
    /// A time in milliseconds.
    Time,
    Never,
}

/// Name, value at the beginning, what may become of it, and whether clients are told of changes.
const KNOWN: [(&str, &str, Change, bool); 26] = [
    ("application_name", "", Change::Any, true),
    ("bytea_output", "hex", Change::Only("hex"), false),
    ("client_encoding", "UTF8", Change::Only("utf8"), true),
    ("client_min_messages", "notice", Change::Any, false),
    ("datestyle", "ISO, YMD", Change::Only("iso"), true),
    (
        "default_transaction_isolation",
        "read committed",
        Change::Only("read"),
        false,
    ),
    (
        "default_transaction_read_only",
        "off",
        Change::Only("off"),
        true,
    ),
    ("extra_float_digits", "1", Change::Any, false),
    ("escape_string_warning", "on", Change::Any, false),
    (
        "idle_in_transaction_session_timeout",
        "0",
        Change::Any,
        false,
    ),
    ("in_hot_standby", "off", Change::Never, true),
    ("integer_datetimes", "on", Change::Never, true),
    ("intervalstyle", "postgres", Change::Only("postgres"), true),
    ("is_superuser", "on", Change::Never, true),
    ("jit", "off", Change::Any, false),
    ("lock_timeout", "0", Change::Any, false),
    ("max_identifier_length", "63", Change::Never, false),
    ("row_security", "on", Change::Any, false),
    ("server_encoding", "UTF8", Change::Never, true),
    ("server_version", SERVER_VERSION, Change::Never, true),
    ("server_version_num", "150000", Change::Never, false),
    ("session_authorization", "", Change::Never, true),
    (
        "standard_conforming_strings",
        "on",
        Change::Only("on"),
        true,
    ),
    ("statement_timeout", "0", Change::Time, false),
    (
        "transaction_isolation",
        "read committed",
        Change::Only("read"),
        false,
    ),
    ("transaction_read_only", "off", Change::Only("off"), false),
];

/// Values of settings by their names.
type Values = Arc<Mutex<BTreeMap<&'static str, String>>>;

/// The settings of a connection, as the functions that it calls see them.
#[derive(Debug, Clone)]
pub(crate) struct SharedSettings(Values);

impl SharedSettings {
    /// The value of a setting; `None` if there is none of this name.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let (name, ..) = known(name)?;
        self.0.lock().get(name).cloned()
    }

    /// Sets a setting that means nothing here.
    ///
    /// # Errors
    /// For others, which SET sets: clients would not be told, or nothing would come of it.
    pub(crate) fn set(&self, name: &str, value: &str) -> Result<(), String> {
        match known(name) {
            Some((name, _, Change::Any, false)) => {
                self.0.lock().insert(name, value.to_owned());
                Ok(())
            }
            Some(_) => Err(format!(
                "set_config does not set {name}: write SET {name} = …"
            )),
            None => Err(format!("there is no setting {name}")),
        }
    }
}

/// The settings of a connection.
#[derive(Debug)]
pub(crate) struct Settings {
    values: Values,
    /// How long a statement may take.
    pub(crate) timeout: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        let values = KNOWN
            .iter()
            .map(|(name, value, ..)| (*name, (*value).to_owned()));
        Self {
            values: Arc::new(Mutex::new(values.collect())),
            timeout: None,
        }
    }
}

impl Settings {
    /// Sets a known setting. Gives its name and new value if clients are to be told.
    ///
    /// # Errors
    /// 22023 for values that are not possible, 55P02 for settings that cannot be changed.
    pub(crate) fn set(
        &mut self,
        name: &str,
        value: &str,
    ) -> Result<Option<(&'static str, String)>, SqlError> {
        let Some((name, initial, change, reported)) = known(name) else {
            return Err(SqlError::new(
                "42704",
                format!("there is no setting {name}"),
            ));
        };
        let value = if value.eq_ignore_ascii_case("default") {
            initial
        } else {
            value
        };
        match change {
            Change::Any => {}
            Change::Only(beginning) => {
                // asyncpg sends 'utf-8' with quotes.
                let plain = value.to_lowercase().replace(['-', '_', '\''], "");
                if !plain.starts_with(beginning) {
                    return Err(SqlError::new(
                        "22023",
                        format!("{name} cannot be '{value}': it is {initial}"),
                    ));
                }
            }
            Change::Time => {
                self.timeout = time(value).map_err(|()| {
                    SqlError::new(
                        "22023",
                        format!("{name} cannot be '{value}': it is a time, as 5000 or '5s'"),
                    )
                })?
            }
            Change::Never => {
                let message = format!("setting {name} cannot be changed");
                return Err(SqlError::new("55P02", message));
            }
        }
        self.values.lock().insert(name, value.to_owned());
        Ok(reported.then(|| (spelled(name), value.to_owned())))
    }

    /// Who is connected; no client can change that.
    pub(crate) fn set_user(&mut self, user: &str) {
        let mut values = self.values.lock();
        values.insert("session_authorization", user.to_owned());
    }

    pub(crate) fn get(&self, name: &str) -> Option<String> {
        self.shared().get(name)
    }

    /// The same, for functions.
    pub(crate) fn shared(&self) -> SharedSettings {
        SharedSettings(Arc::clone(&self.values))
    }

    /// What clients are told of at the beginning.
    pub(crate) fn reported(&self) -> impl Iterator<Item = (&'static str, String)> {
        let reported = KNOWN.iter().filter(|(.., reported)| *reported);
        reported.filter_map(|(name, ..)| Some((spelled(name), self.get(name)?)))
    }
}

fn known(name: &str) -> Option<(&'static str, &'static str, Change, bool)> {
    KNOWN
        .iter()
        .find(|(known, ..)| name.eq_ignore_ascii_case(known))
        .copied()
}

/// Whether a setting is one of these, not of the engine's.
pub(crate) fn is_known(name: &str) -> bool {
    known(name).is_some()
}

/// As drivers look for them.
fn spelled(name: &'static str) -> &'static str {
    match name {
        "datestyle" => "DateStyle",
        "intervalstyle" => "IntervalStyle",
        other => other,
    }
}

/// `5000`, `'5s'`, `'2 min'`; 0 is none.
fn time(value: &str) -> Result<Option<Duration>, ()> {
    let value = value.trim();
    let end = value
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(value.len());
    let number: u64 = value[..end].parse().map_err(|_| ())?;
    let unit = match value[end..].trim() {
        "" | "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        _ => return Err(()),
    };
    let millis = number.checked_mul(unit).ok_or(())?;
    Ok((millis > 0).then(|| Duration::from_millis(millis)))
}

/// `SET [SESSION | LOCAL] name TO | = value`, if the name is known here.
///
/// # Errors
/// For isolation levels above READ COMMITTED.
pub(crate) fn parse_set(tokens: &[Token]) -> Result<Option<(String, String)>, SqlError> {
    let word = |n: usize| match tokens.get(n) {
        Some(Token::Word(word)) => word.value.to_lowercase(),
        _ => String::new(),
    };
    let mut at = 1;
    if matches!(word(1).as_str(), "session" | "local") {
        at = 2;
    }
    let isolation = |rest: &[Token]| {
        let text = words(rest);
        match text.contains("repeatable") || text.contains("serializable") || text.contains("only")
        {
            true => Err(SqlError::unsupported(
                "this kind of transaction; each statement is one of its own, on a snapshot",
            )),
            false => Ok(Some((
                "transaction_isolation".to_owned(),
                "read committed".to_owned(),
            ))),
        }
    };
    match word(at).as_str() {
        "transaction" | "characteristics" => {
            return isolation(tokens.get(at..).unwrap_or_default());
        }
        "names" => {
            return Ok(Some((
                "client_encoding".to_owned(),
                values(tokens.get(at + 1..)),
            )));
        }
        _ => {}
    }
    let name = word(at);
    if !is_known(&name) {
        return Ok(None);
    }
    let is_assignment = matches!(tokens.get(at + 1), Some(Token::Eq)) || word(at + 1) == "to";
    Ok(is_assignment.then(|| (name, values(tokens.get(at + 2..)))))
}

/// `SHOW name`, if the name is known here.
pub(crate) fn parse_show(tokens: &[Token]) -> Option<String> {
    let text = words(tokens.get(1..)?);
    let name = match text.as_str() {
        "transaction isolation level" => "transaction_isolation",
        "session authorization" => "session_authorization",
        other => other,
    };
    is_known(name).then(|| name.to_owned())
}

fn words(tokens: &[Token]) -> String {
    let words = tokens.iter().map(|token| token.to_string().to_lowercase());
    words.collect::<Vec<_>>().join(" ")
}

/// What is assigned, without quotes.
fn values(tokens: Option<&[Token]>) -> String {
    let texts = tokens
        .unwrap_or_default()
        .iter()
        .filter_map(|token| match token {
            Token::SingleQuotedString(text) => Some(text.clone()),
            Token::Word(word) => Some(word.value.clone()),
            Token::Comma => None,
            other => Some(other.to_string()),
        });
    texts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_see_settings_and_set_those_that_mean_nothing() {
        let mut settings = Settings::default();
        let shared = settings.shared();
        settings.set("application_name", "x").unwrap();
        assert_eq!(shared.get("Application_Name").as_deref(), Some("x"));
        assert_eq!(shared.get("nothing"), None);
        shared.set("jit", "on").unwrap();
        assert_eq!(settings.get("jit").as_deref(), Some("on"));
        assert!(shared.set("statement_timeout", "1").is_err());
    }

    #[test]
    fn settings_that_mean_nothing_here_are_accepted_and_others_only_as_they_are() {
        let mut settings = Settings::default();
        assert_eq!(settings.set("extra_float_digits", "3"), Ok(None));
        assert_eq!(
            settings.set("DateStyle", "ISO"),
            Ok(Some(("DateStyle", "ISO".to_owned())))
        );
        assert_eq!(
            settings.set("client_encoding", "LATIN1").unwrap_err().code,
            "22023"
        );
        assert_eq!(
            settings.set("server_version", "9").unwrap_err().code,
            "55P02"
        );
        settings.set("statement_timeout", "2 min").unwrap();
        assert_eq!(settings.timeout, Some(Duration::from_secs(120)));
        assert_eq!(settings.get("extra_float_digits").as_deref(), Some("3"));
    }
}
