//! Compares findings with the truth.

use crate::fault::{Accepted, CONTENTION, Fault, Place};
use crate::sql::Finding;

/// From this share of waiting in all time that threads could run on, a machine has too few processors.
pub const CONTENDED_FROM: f64 = 0.05;

/// Whether a finding names the cause.
pub fn names_cause(finding: &Finding, fault: Fault) -> bool {
    fault
        .accepted()
        .iter()
        .any(|accepted| accepts(accepted, finding))
}

/// Whether a finding says that processes wait for processors.
pub fn is_contention(finding: &Finding) -> bool {
    CONTENTION.iter().any(|accepted| accepts(accepted, finding))
}

/// Whether a finding names the cause and the place.
pub fn is_right(finding: &Finding, fault: Fault, place: &Place) -> bool {
    let mut accepted = fault.accepted().iter();
    accepted.any(|accepted| {
        // All that wait for a processor wait, on whichever worker it shows first.
        let placed = is_contention(finding) || names_place(finding, place, accepted.keyed);
        accepts(accepted, finding) && placed
    })
}

fn accepts(accepted: &Accepted, finding: &Finding) -> bool {
    let text = finding.text();
    let worded = accepted.words.is_empty() || accepted.words.iter().any(|word| text.contains(word));
    accepted.rule == finding.rule && worded
}

/// Whether a finding names all of the place that is known.
fn names_place(finding: &Finding, place: &Place, keyed: bool) -> bool {
    let text = finding.text();
    let worker = place.worker.is_none_or(|worker| match finding.worker_id {
        Some(named) => named == worker,
        None => has_word(&text, &format!("worker {worker}")),
    });
    let named = || place.keys.iter().any(|key| has_word(&text, key));
    let key = !keyed || place.keys.is_empty() || named();
    let table = place.table.as_deref().is_none_or(|table| {
        let named = finding.table_name.as_deref().unwrap_or_default();
        named == table || named.ends_with(&format!(".{table}"))
    });
    let row = place.row.is_none_or(|row| finding.row_id == Some(row));
    worker && key && table && row
}

/// Whether `text` contains `word`, not as a part of a longer word or number.
pub fn has_word(text: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let mut after = text[at + word.len()..].chars();
        let (next, second) = (after.next(), after.next());
        // 12 is not named by 12.5, nor by 12,000.
        let goes_on = matches!(next, Some('.' | ',')) && second.is_some_and(|c| c.is_ascii_digit());
        let begun = before.is_some_and(|c| joins(c) || c == '-' || c == '.');
        !begun && !next.is_some_and(joins) && !goes_on
    })
}

/// Whether a warning is wrong: no fault of the case, and not what the laboratory saw by itself.
pub fn is_false_alarm(finding: &Finding, faults: &[(Fault, Place)], contention: f64) -> bool {
    if !finding.is_warning() {
        return false;
    }
    if is_contention(finding) && contention >= CONTENDED_FROM {
        return false;
    }
    !faults
        .iter()
        .any(|(fault, place)| is_right(finding, *fault, place))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(rule: &str, worker_id: Option<i64>, cause: &str) -> Finding {
        Finding {
            rule: rule.to_owned(),
            severity: "warning".to_owned(),
            place: Some(1),
            worker_id,
            cause: cause.to_owned(),
            ..Finding::default()
        }
    }

    fn worker(number: i64) -> Place {
        Place {
            worker: Some(number),
            ..Place::default()
        }
    }

    fn key(key: &str) -> Place {
        Place {
            keys: vec![key.to_owned()],
            ..Place::default()
        }
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("the key 12 has", "12"));
        assert!(has_word("the key 12: treat", "12"));
        assert!(has_word("the key 12.", "12"));
        assert!(has_word("the key is -1, as", "-1"));
        assert!(!has_word("the key 120 has", "12"));
        assert!(!has_word("took 12.5 ms", "12"));
        assert!(!has_word("12,000 rows", "12"));
        assert!(!has_word("the key -12 has", "12"));
        assert!(!has_word("0.12 s", "12"));
    }

    #[test]
    fn the_right_rule_on_the_wrong_worker_is_wrong() {
        let named = finding("throttled worker", Some(2), "");
        assert!(names_cause(&named, Fault::ThrottledWorker));
        assert!(is_right(&named, Fault::ThrottledWorker, &worker(2)));
        assert!(!is_right(&named, Fault::ThrottledWorker, &worker(3)));
    }

    #[test]
    fn a_straggler_is_right_with_the_right_cause_only() {
        let throttled = finding(
            "straggler task",
            Some(2),
            "Worker 2 was throttled for 300 ms.",
        );
        let rows = finding("straggler task", Some(2), "It got 3 times more rows.");
        assert!(is_right(&throttled, Fault::ThrottledWorker, &worker(2)));
        assert!(!is_right(&rows, Fault::ThrottledWorker, &worker(2)));
        assert!(is_right(&rows, Fault::SizeSkew, &worker(2)));
    }

    #[test]
    fn a_key_is_named_in_words() {
        let mut named = finding("heavy key", None, "Key 4711 has 60 % of the rows.");
        assert!(is_right(&named, Fault::HeavyKey, &key("4711")));
        assert!(!is_right(&named, Fault::HeavyKey, &key("471")));
        named.cause = "NULL has 60 % of the rows.".to_owned();
        assert!(is_right(&named, Fault::NullKey, &key("NULL")));
    }

    #[test]
    fn a_record_is_named_by_table_and_row() {
        let place = Place {
            table: Some("t".to_owned()),
            row: Some(7),
            ..Place::default()
        };
        let mut named = finding("expensive input", None, "");
        named.table_name = Some("main.t".to_owned());
        named.row_id = Some(7);
        assert!(is_right(&named, Fault::ExpensiveRecord, &place));
        named.row_id = Some(8);
        assert!(!is_right(&named, Fault::ExpensiveRecord, &place));
    }

    #[test]
    fn contention_that_was_seen_is_no_false_alarm() {
        let named = finding("noisy neighbour", Some(1), "");
        assert!(is_false_alarm(&named, &[], 0.0));
        assert!(!is_false_alarm(&named, &[], 0.3));
        assert!(is_false_alarm(&finding("heavy key", None, ""), &[], 0.3));
    }

    #[test]
    fn what_is_folded_or_an_information_is_no_alarm() {
        let mut named = finding("heavy key", None, "");
        named.place = None;
        assert!(!is_false_alarm(&named, &[], 0.0));
        named.place = Some(1);
        named.severity = "info".to_owned();
        assert!(!is_false_alarm(&named, &[], 0.0));
    }

    #[test]
    fn every_fault_but_none_has_a_right_answer() {
        assert!(Fault::Clean.accepted().is_empty());
        for fault in Fault::ALL {
            assert!(!fault.accepted().is_empty(), "{fault:?}");
        }
    }
}
