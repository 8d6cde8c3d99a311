//! The dialect that statements are parsed in: sqlparser's generic dialect, with three differences.
//!
//! * Parsing ends. Where sqlparser 0.62 finds no special expression behind a word, as `CAST` or `CASE`, it reads the
//!   same text once more as an ordinary expression. A mistake within 30 nested calls of CAST takes 2³⁰ readings.
//! * `||` binds less than arithmetic, as in PostgreSQL (["Operator Precedence"]) and DuckDB. The generic dialect gives
//!   it the precedence of `*`.
//! * `IS [NOT] DISTINCT FROM` binds more than NOT, AND and OR. sqlparser takes everything that follows for its right
//!   operand: `a IS DISTINCT FROM b AND c` for `a IS DISTINCT FROM (b AND c)`.
//!
//! It also reads `ORDER BY ALL`.
//!
//! ["Operator Precedence"]: https://www.postgresql.org/docs/current/sql-syntax-lexical.html

use std::any::TypeId;
use std::cell::Cell;

use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

/// So many operands are read in any text, and so many more per byte: few texts have one every two bytes, and
/// those are read twice at most.
const ANY_TEXT: usize = 100_000;
const PER_BYTE: usize = 4;

/// The precedence of `||`: below `+` and `-` (30), above the operators of bits (24 to 21).
const CONCATENATION: u8 = 27;

/// The dialect for one text.
#[derive(Debug)]
pub struct BoundedDialect {
    /// How many more operands may be read.
    left: Cell<usize>,
}

impl BoundedDialect {
    /// For a text of so many bytes.
    pub fn for_text_of(bytes: usize) -> Self {
        let left = bytes.saturating_mul(PER_BYTE).saturating_add(ANY_TEXT);
        Self {
            left: Cell::new(left),
        }
    }

    /// Counts operands that are read.
    ///
    /// # Errors
    /// If too many were read: the only error that the parser does not take for a reason to try otherwise.
    fn charge(&self, operands: usize) -> Result<(), ParserError> {
        match self.left.get().checked_sub(operands) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => {
                self.left.set(0);
                Err(ParserError::RecursionLimitExceeded)
            }
        }
    }

    /// Whether no more is read.
    pub fn is_exhausted(&self) -> bool {
        self.left.get() == 0
    }
}

/// How many operators a chain has that leans to the left.
fn chain_length(mut expr: &Expr) -> usize {
    let mut length = 1;
    while let Expr::IsDistinctFrom(left, _)
    | Expr::IsNotDistinctFrom(left, _)
    | Expr::BinaryOp { left, .. } = expr
    {
        length += 1;
        expr = left;
    }
    length
}

/// What [`GenericDialect`] overrides, handed on to it.
macro_rules! as_generic {
    ($($name:ident)*) => {
        $(fn $name(&self) -> bool {
            GenericDialect.$name()
        })*
    };
}

impl Dialect for BoundedDialect {
    /// The parser asks in places whether it is this one.
    fn dialect(&self) -> TypeId {
        GenericDialect.dialect()
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        GenericDialect.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        GenericDialect.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        GenericDialect.is_identifier_part(ch)
    }

    fn parse_prefix(&self, _: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        self.charge(1).err().map(Err)
    }

    fn parse_infix(
        &self,
        parser: &mut Parser<'_>,
        left: &Expr,
        precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        const DISTINCT_FROM: [Keyword; 3] = [Keyword::IS, Keyword::DISTINCT, Keyword::FROM];
        const NOT_DISTINCT_FROM: [Keyword; 4] =
            [Keyword::IS, Keyword::NOT, Keyword::DISTINCT, Keyword::FROM];
        let negated = if parser.parse_keywords(&DISTINCT_FROM) {
            false
        } else if parser.parse_keywords(&NOT_DISTINCT_FROM) {
            true
        } else {
            return None;
        };
        // The left side is copied: a chain of n copies n² / 2 operands.
        if let Err(error) = self.charge(chain_length(left)) {
            return Some(Err(error));
        }
        Some(parser.parse_subexpr(precedence).map(|right| {
            let (left, right) = (Box::new(left.clone()), Box::new(right));
            if negated {
                Expr::IsNotDistinctFrom(left, right)
            } else {
                Expr::IsDistinctFrom(left, right)
            }
        }))
    }

    fn get_next_precedence(&self, parser: &Parser<'_>) -> Option<Result<u8, ParserError>> {
        let next = &parser.peek_token_ref().token;
        matches!(next, Token::StringConcat).then_some(Ok(CONCATENATION))
    }

    fn supports_order_by_all(&self) -> bool {
        true
    }

    as_generic! {
        supports_unicode_string_literal
        supports_partition_by_after_order_by
        supports_array_join_syntax
        supports_group_by_expr
        supports_group_by_with_modifier
        supports_left_associative_joins_without_parens
        supports_connect_by
        supports_match_recognize
        supports_pipe_operator
        supports_start_transaction_modifier
        supports_window_function_null_treatment_arg
        supports_dictionary_syntax
        supports_window_clause_named_window_reference
        supports_parenthesized_set_variables
        supports_select_wildcard_except
        support_map_literal_syntax
        allow_extract_custom
        allow_extract_single_quotes
        supports_extract_comma_syntax
        supports_create_view_comment_syntax
        supports_parens_around_table_factor
        supports_values_as_table_factor
        supports_create_index_with_clause
        supports_explain_with_utility_options
        supports_limit_comma
        supports_update_order_by
        supports_from_first_select
        supports_projection_trailing_commas
        supports_asc_desc_in_column_definition
        supports_try_convert
        supports_bitwise_shift_operators
        supports_comment_on
        supports_load_extension
        supports_named_fn_args_with_assignment_operator
        supports_struct_literal
        supports_empty_projections
        supports_nested_comments
        supports_multiline_comment_hints
        supports_user_host_grantee
        supports_string_escape_constant
        supports_array_typedef_with_brackets
        supports_match_against
        supports_set_names
        supports_comma_separated_set_assignments
        supports_filter_during_aggregation
        supports_select_wildcard_exclude
        supports_data_type_signed_suffix
        supports_interval_options
        supports_quote_delimited_string
        supports_select_wildcard_replace
        supports_select_wildcard_ilike
        supports_select_wildcard_rename
        supports_optimize_table
        supports_install
        supports_detach
        supports_prewhere
        supports_with_fill
        supports_limit_by
        supports_interpolate
        supports_settings
        supports_select_format
        supports_comment_optimizer_hint
        supports_constraint_keyword_without_name
        supports_key_column_option
        supports_comma_separated_trim
        supports_cte_without_as
        supports_select_item_multi_column_alias
        supports_xml_expressions
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::{Expr, SelectItem, SetExpr};

    use crate::statement::testing::{parse, query};

    /// The expression with all its parentheses.
    fn grouped(sql: &str) -> String {
        fn write(expr: &Expr) -> String {
            match expr {
                Expr::BinaryOp { left, op, right } => {
                    format!("({} {op} {})", write(left), write(right))
                }
                Expr::UnaryOp { op, expr } => format!("({op} {})", write(expr)),
                Expr::IsDistinctFrom(left, right) => {
                    format!("({} <> {})", write(left), write(right))
                }
                Expr::IsNotDistinctFrom(left, right) => {
                    format!("({} == {})", write(left), write(right))
                }
                Expr::Nested(inner) => format!("[{}]", write(inner)),
                other => other.to_string(),
            }
        }
        let query = query(&format!("SELECT {sql}"));
        let SetExpr::Select(select) = query.body.as_ref() else {
            panic!("{query}")
        };
        let [SelectItem::UnnamedExpr(expr)] = select.projection.as_slice() else {
            panic!("{query}")
        };
        write(expr)
    }

    #[test]
    fn concatenation_binds_less_than_arithmetic_and_more_than_comparisons() {
        for (sql, expected) in [
            ("a || b % c", "(a || (b % c))"),
            ("a || b || c", "((a || b) || c)"),
            ("a * b || c", "((a * b) || c)"),
            ("a + b || c - d * e", "((a + b) || (c - (d * e)))"),
            ("a || b + c || d", "((a || (b + c)) || d)"),
            ("a - b - c || d", "(((a - b) - c) || d)"),
            ("a || b / c * d % e", "(a || (((b / c) * d) % e))"),
            ("a || -b + c", "(a || ((- b) + c))"),
            ("(a || b) % c", "([(a || b)] % c)"),
            ("a || b + 1 = c || d", "((a || (b + 1)) = (c || d))"),
            ("a LIKE 'x' || b + 1", "a LIKE 'x' || b + 1"),
        ] {
            assert_eq!(grouped(sql), expected, "{sql}");
        }
    }

    #[test]
    fn is_distinct_from_binds_more_than_not_and_and_or() {
        for (sql, expected) in [
            ("a IS DISTINCT FROM b", "(a <> b)"),
            ("a IS DISTINCT FROM b AND c", "((a <> b) AND c)"),
            ("a IS NOT DISTINCT FROM b OR c", "((a == b) OR c)"),
            (
                "x OR a IS DISTINCT FROM b AND c OR d AND e",
                "((x OR ((a <> b) AND c)) OR (d AND e))",
            ),
            (
                "a IS DISTINCT FROM b AND c IS NOT DISTINCT FROM d OR e",
                "(((a <> b) AND (c == d)) OR e)",
            ),
            (
                "NOT a IS DISTINCT FROM b AND NOT c",
                "((NOT (a <> b)) AND (NOT c))",
            ),
            (
                "a IS DISTINCT FROM b = c AND d < 1",
                "((a <> (b = c)) AND (d < 1))",
            ),
            (
                "a IS DISTINCT FROM (b AND c) AND d",
                "((a <> [(b AND c)]) AND d)",
            ),
        ] {
            assert_eq!(grouped(sql), expected, "{sql}");
        }
    }

    /// Parsing runs on a stack that grows with the text, as it does outside tests.
    #[test]
    fn long_chains_end() {
        let parses = |sql: &str| stacker::grow(256 << 20, || parse(sql).is_ok());
        let chain = |n: usize| format!("SELECT {}", vec!["a"; n].join(" IS DISTINCT FROM "));
        assert!(parses(&chain(100)));
        assert!(!parses(&chain(3_000)));
        let sum = format!("SELECT {}", vec!["a || 1"; 1_000].join(" + "));
        assert!(parses(&sum));
    }
}
