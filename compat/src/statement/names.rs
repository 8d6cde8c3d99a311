//! Names as PostgreSQL and DuckDB read them, and columns that a wildcard leaves out.

use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Ident, ObjectName, WildcardAdditionalOptions,
};

/// A column that every table has and no wildcard shows.
pub const SYSTEM_COLUMN: &str = "_row_id";

/// An identifier as names compare: lower-case unless quoted.
pub fn fold(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

/// `options` with `hidden` added to what it excludes.
pub fn exclude(
    mut options: WildcardAdditionalOptions,
    hidden: Vec<Ident>,
) -> WildcardAdditionalOptions {
    if hidden.is_empty() {
        return options;
    }
    let mut names = match options.opt_exclude.take() {
        Some(ExcludeSelectItem::Single(name)) => vec![name],
        Some(ExcludeSelectItem::Multiple(names)) => names,
        None => Vec::new(),
    };
    names.extend(
        hidden
            .into_iter()
            .map(|ident| ObjectName::from(vec![ident])),
    );
    options.opt_exclude = Some(ExcludeSelectItem::Multiple(names));
    options
}

/// The columns that a wildcard leaves out.
pub fn excluded(options: &WildcardAdditionalOptions) -> Vec<Ident> {
    let names: &[ObjectName] = match &options.opt_exclude {
        Some(ExcludeSelectItem::Single(name)) => std::slice::from_ref(name),
        Some(ExcludeSelectItem::Multiple(names)) => names,
        None => &[],
    };
    let mut excluded: Vec<Ident> = names
        .iter()
        .filter_map(|name| name.0.last()?.as_ident().cloned())
        .collect();
    if let Some(except) = &options.opt_except {
        excluded.push(except.first_element.clone());
        excluded.extend(except.additional_elements.iter().cloned());
    }
    excluded
}
