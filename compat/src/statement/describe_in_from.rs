//! DESCRIBE in FROM: `FROM (DESCRIBE SELECT …)`, `FROM (DESCRIBE t)`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Query, VisitMut, VisitorMut};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// How the query is called in a `WITH` that is to be described. Nobody types the first character.
const NAME: &str = "\0described";

/// Whether a text may have a DESCRIBE within it.
pub fn may_describe(sql: &str) -> bool {
    let word = b"describe";
    sql.as_bytes()
        .windows(word.len())
        .any(|part| part.eq_ignore_ascii_case(word))
}

/// Puts queries that are to be described where sqlparser knows them, for [`take`] to find:
///
/// ```sql
/// FROM (DESCRIBE SELECT …)
/// FROM (WITH "\0described" AS (SELECT …) SELECT NULL)
/// ```
pub fn mark(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let places: Vec<usize> = (0..tokens.len())
        .filter(|place| !matches!(tokens[*place].token, Token::Whitespace(_)))
        .collect();
    let at = |place: usize| places.get(place).map(|place| &tokens[*place].token);
    let keyword = |place: Option<usize>| match place.and_then(at) {
        Some(Token::Word(word)) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    };
    let mut marked = Vec::with_capacity(tokens.len());
    // For each open parenthesis whether it is that of a DESCRIBE.
    let mut open = Vec::new();
    let mut place = 0;
    while let Some(index) = places.get(place) {
        // White space stays where it is.
        let last = place.checked_sub(1).map_or(0, |last| places[last] + 1);
        marked.extend_from_slice(&tokens[last..*index]);
        let token = &tokens[*index];
        let put = |marked: &mut Vec<TokenWithSpan>, words: &[&str]| {
            for word in words {
                let token = match *word {
                    "(" => Token::LParen,
                    ")" => Token::RParen,
                    "*" => Token::Mul,
                    NAME => Token::make_word(NAME, Some('"')),
                    keyword => Token::make_keyword(keyword),
                };
                marked.push(TokenWithSpan::new(token, tokens[*index].span));
            }
        };
        match token.token {
            // Within another it stays a mistake.
            Token::LParen
                if keyword(Some(place + 1)) == Keyword::DESCRIBE && !open.contains(&true) =>
            {
                let is_query = matches!(
                    keyword(Some(place + 2)),
                    Keyword::SELECT | Keyword::WITH | Keyword::VALUES
                );
                let in_from =
                    matches!(keyword(place.checked_sub(1)), Keyword::FROM | Keyword::JOIN);
                let is_table = in_from && matches!(at(place + 2), Some(Token::Word(_)));
                marked.push(token.clone());
                open.push(is_query || is_table);
                if is_query || is_table {
                    put(&mut marked, &["WITH", NAME, "AS", "("]);
                    place += 1;
                    if !is_query {
                        put(&mut marked, &["SELECT", "*", "FROM"]);
                    }
                }
            }
            Token::LParen => {
                open.push(false);
                marked.push(token.clone());
            }
            Token::RParen => {
                if open.pop() == Some(true) {
                    put(&mut marked, &[")", "SELECT", "NULL"]);
                }
                marked.push(token.clone());
            }
            _ => marked.push(token.clone()),
        }
        place += 1;
    }
    let last = places.last().map_or(0, |last| last + 1);
    marked.extend_from_slice(&tokens[last..]);
    marked
}

/// Takes the queries out of a statement that are to be described, in their order. Those within
/// them stay there.
pub fn take(node: &mut impl VisitMut) -> Vec<Query> {
    let mut taken = Vec::new();
    for_each(node, |query| {
        let stub = Query {
            with: None,
            ..query.clone()
        };
        let with = query.with.as_mut();
        if let Some(cte) = with.and_then(|with| with.cte_tables.first_mut()) {
            taken.push(std::mem::replace(&mut *cte.query, stub));
        }
    });
    taken
}

/// Puts descriptions in the places of the queries that were [taken](take).
pub fn put(node: &mut impl VisitMut, descriptions: Vec<Query>) {
    let mut descriptions = descriptions.into_iter();
    for_each(node, |query| {
        if let Some(description) = descriptions.next() {
            *query = description;
        }
    });
}

/// Calls `work` with the queries that [`mark`] marked.
fn for_each(node: &mut impl VisitMut, work: impl FnMut(&mut Query)) {
    struct Marked<F>(F);
    impl<F: FnMut(&mut Query)> VisitorMut for Marked<F> {
        type Break = ();
        fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
            let first = query.with.as_ref().and_then(|with| with.cte_tables.first());
            if first.is_some_and(|cte| cte.alias.name.value == NAME) {
                self.0(query);
            }
            ControlFlow::Continue(())
        }
    }
    let _: ControlFlow<()> = node.visit(&mut Marked(work));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::testing::{parse, query};

    #[test]
    fn queries_in_from_can_be_described() {
        let sql =
            "SELECT (SELECT 1), n FROM (describe SELECT (a), b FROM t) d, (DESCRIBE VALUES (1))
            JOIN (DESCRIBE s.u) ON true";
        let mut outer = query(sql);
        let taken = take(&mut *outer);
        let taken: Vec<String> = taken.iter().map(ToString::to_string).collect();
        assert_eq!(taken.len(), 3, "{taken:?}");
        assert_eq!(
            taken,
            ["SELECT (a), b FROM t", "VALUES (1)", "SELECT * FROM s.u"]
        );
        put(
            &mut *outer,
            (1..=3).map(|n| *query(&format!("SELECT {n}"))).collect(),
        );
        assert_eq!(
            outer.to_string(),
            "SELECT (SELECT 1), n FROM (SELECT 1) d, (SELECT 2) JOIN (SELECT 3) ON true"
        );
        assert!(parse("SELECT 1 FROM (DESCRIBE SELECT 1 FROM (DESCRIBE SELECT 2))").is_err());
    }

    #[test]
    fn names_are_still_names() {
        for sql in [
            "SELECT max(describe) FROM t",
            "SELECT 1 FROM (SELECT describe FROM describe)",
        ] {
            assert!(take(&mut *query(sql)).is_empty());
            assert_eq!(query(sql).to_string(), sql);
        }
        assert!(parse("CREATE TABLE t (describe TEXT)").is_ok());
    }
}
