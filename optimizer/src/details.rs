//! The details of operators as the unprofiled plan would show them.

use crate::lineage::HIDDEN;

/// Puts expressions back where columns stand for them: `upper(s)` for `__skewer_value_4@3`.
pub(crate) fn with_hoisted(details: &str, hoisted_exprs: &[(String, String)]) -> String {
    let mut text = details.to_owned();
    if text.contains(HIDDEN) {
        for (name, expression) in hoisted_exprs {
            let mut rest = std::mem::take(&mut text);
            while let Some(start) = rest.find(name) {
                let after = &rest[start + name.len()..];
                if after.starts_with(|c: char| c.is_ascii_digit()) {
                    // A longer name: __skewer_value_12 is not __skewer_value_1.
                    text.push_str(&rest[..start + name.len()]);
                } else {
                    text.push_str(&rest[..start]);
                    text.push_str(expression);
                }
                let index = after.strip_prefix('@').unwrap_or(after);
                let end = index.trim_start_matches(|c: char| c.is_ascii_digit());
                let tail = if after.starts_with('@') { end } else { after };
                rest = tail.to_owned();
            }
            text.push_str(&rest);
        }
    }
    text
}

/// Drops list items that name hidden columns: `[a@0 as a, __skewer_id_1@3]` → `[a@0 as a]`.
pub(crate) fn without_hidden(details: &str) -> String {
    if !details.contains(HIDDEN) {
        return details.to_owned();
    }
    let mut kept = String::with_capacity(details.len());
    let mut depth_start = 0;
    // Split at commas and brackets outside parentheses and structs, keeping the separators.
    let mut depth = 0;
    for (position, character) in details.char_indices() {
        match character {
            '(' | '{' => depth += 1,
            ')' | '}' => depth -= 1,
            ',' | '[' | ']' if depth == 0 => {
                push_visible(&mut kept, &details[depth_start..position]);
                if character == ']' {
                    let trimmed = kept.trim_end_matches([',', ' ']).len();
                    kept.truncate(trimmed);
                }
                if !(character == ',' && kept.ends_with('[')) {
                    kept.push(character);
                }
                depth_start = position + 1;
            }
            _ => {}
        }
    }
    push_visible(&mut kept, &details[depth_start..]);
    kept
}

fn push_visible(kept: &mut String, item: &str) {
    if item.contains(HIDDEN) {
        let trimmed = kept.trim_end_matches([',', ' ']).len();
        kept.truncate(trimmed);
    } else if kept.ends_with('[') {
        kept.push_str(item.trim_start());
    } else {
        kept.push_str(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_show_expressions_that_were_moved() {
        let hoisted_exprs = [
            ("__skewer_value_1".to_owned(), "upper(s)".to_owned()),
            ("__skewer_value_12".to_owned(), "lower(s)".to_owned()),
        ];
        assert_eq!(
            with_hoisted(
                "gby=[__skewer_value_12@3 as l], aggr=[max(__skewer_value_1)]",
                &hoisted_exprs
            ),
            "gby=[lower(s) as l], aggr=[max(upper(s))]"
        );
    }

    #[test]
    fn details_do_not_show_hidden_columns() {
        for (given, expected) in [
            ("expr=[a@0 as a, b@1 as b]", "expr=[a@0 as a, b@1 as b]"),
            (
                "expr=[a@0 as a, _row_id@3 as __skewer_id_1]",
                "expr=[a@0 as a]",
            ),
            (
                "expr=[__skewer_value_2@4 as a, b@1 as b, __skewer_id_1@3 as x]",
                "expr=[b@1 as b]",
            ),
            (
                "mode=Final, gby=[a@0 as a], aggr=[sum(b), __skewer_id_4]",
                "mode=Final, gby=[a@0 as a], aggr=[sum(b)]",
            ),
            (
                "expr=[a@0 as a, CASE WHEN x THEN y ELSE {p:0,q:1} END as __skewer_id_3]",
                "expr=[a@0 as a]",
            ),
            (
                "aggr=[lineage_capture(__skewer_id_1, x) AS __skewer_id_4], limit=3",
                "aggr=[], limit=3",
            ),
        ] {
            assert_eq!(without_hidden(given), expected);
        }
    }
}
