//! "Did you mean …?"

/// Suggestions beyond three are noise.
const MOST: usize = 3;

/// The names of `known` that `wrong` was probably meant to be, best first, at most three.
///
/// Names compare without regard to case. A name is near if at most a third of its letters, or one
/// of two, would have to change, or if one contains the other: names of one letter each have
/// nothing in common.
pub fn suggest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let wrong = wrong.to_lowercase();
    let mut near: Vec<(usize, &str)> = known
        .into_iter()
        .filter_map(|name| {
            let candidate = name.to_lowercase();
            let distance = strsim::osa_distance(&wrong, &candidate);
            let letters = wrong.chars().count().max(candidate.chars().count());
            let allowed = (letters / 3).max(1).min(letters.saturating_sub(1));
            let contained = wrong.len() >= 3
                && candidate.len() >= 3
                && (candidate.contains(&wrong) || wrong.contains(&candidate));
            (distance <= allowed || contained).then_some((distance, name))
        })
        .collect();
    near.sort();
    near.dedup();
    near.into_iter()
        .take(MOST)
        .map(|(_, name)| name.to_owned())
        .collect()
}

/// The end of an error's sentence that offers `suggestions`, if there are any.
pub fn did_you_mean(suggestions: &[String]) -> String {
    match suggestions {
        [] => String::new(),
        [one] => format!("; did you mean {one}?"),
        [some @ .., last] => format!("; did you mean {} or {last}?", some.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{did_you_mean, suggest};

    #[test]
    fn the_last_suggestion_comes_after_or() {
        let said = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            did_you_mean(&names)
        };
        assert_eq!(said(&[]), "");
        assert_eq!(said(&["a"]), "; did you mean a?");
        assert_eq!(said(&["a", "b", "c"]), "; did you mean a, b or c?");
    }

    #[test]
    fn a_transposed_letter_finds_its_name() {
        assert_eq!(suggest("pirce", ["price", "name", "id"]), ["price"]);
    }

    #[test]
    fn nothing_near_suggests_nothing() {
        assert!(suggest("zebra", ["price", "name", "id"]).is_empty());
        assert!(suggest("nosuchfn", ["position", "cosh", "nanvl"]).is_empty());
    }

    #[test]
    fn names_of_one_letter_are_near_to_none() {
        assert!(suggest("u", ["t", "a"]).is_empty());
        assert_eq!(suggest("tt", ["t", "a"]), ["t"]);
    }
}
