//! sqlparser's generic dialect with an end.
//!
//! Where sqlparser 0.62 finds no special expression behind a word, as `CAST` or `CASE`, it reads the same text
//! once more as an ordinary expression. So a mistake within 30 calls of CAST within each other takes 2³⁰ readings.

use std::any::TypeId;
use std::cell::Cell;

use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

/// So many operands are read in any text, and so many more per byte: few texts have one every two bytes, and
/// those are read twice at most.
const ANY_TEXT: usize = 100_000;
const PER_BYTE: usize = 4;

/// The generic dialect for one text.
#[derive(Debug)]
pub struct BoundedDialect {
    /// How many more operands may be read.
    left: Cell<usize>,
}

impl BoundedDialect {
    /// For a text of so many bytes.
    pub fn of(bytes: usize) -> Self {
        let left = bytes.saturating_mul(PER_BYTE).saturating_add(ANY_TEXT);
        Self {
            left: Cell::new(left),
        }
    }

    /// Whether no more is read.
    pub fn is_exhausted(&self) -> bool {
        self.left.get() == 0
    }
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
        match self.left.get().checked_sub(1) {
            Some(left) => {
                self.left.set(left);
                None
            }
            // The only error that the parser does not take for a reason to try otherwise.
            None => Some(Err(ParserError::RecursionLimitExceeded)),
        }
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
