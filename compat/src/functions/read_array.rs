//! PostgreSQL's array literals.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, ListArray, NullBufferBuilder, StringBuilder,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::utils::take_function_args;
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

/// The scalar function `read_array(text) → TEXT[]…`: the texts in an array as PostgreSQL writes it, as
/// `{a,NULL,"b, c"}`.
///
/// # Errors
/// When it runs: for a text that is no array of so many dimensions; if it is `safe`, that is NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ReadArray {
    signature: Signature,
    arrays: DataType,
}

impl ReadArray {
    /// The function for arrays of so many dimensions, from 1.
    pub fn new(dimensions: usize) -> Self {
        let mut arrays = DataType::Utf8;
        for _ in 0..dimensions {
            arrays = DataType::List(Arc::new(Field::new_list_field(arrays, true)));
        }
        Self {
            signature: Signature::any(2, Volatility::Immutable),
            arrays,
        }
    }
}

impl Default for ReadArray {
    fn default() -> Self {
        Self::new(1)
    }
}

impl ScalarUDFImpl for ReadArray {
    fn name(&self) -> &'static str {
        "read_array"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.arrays.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [texts, safe] = take_function_args(self.name(), &args.args)?;
        let is_safe = matches!(
            safe,
            ColumnarValue::Scalar(ScalarValue::Boolean(Some(true)))
        );
        let is_scalar = matches!(texts, ColumnarValue::Scalar(_));
        let texts = texts.to_array(if is_scalar { 1 } else { args.number_rows })?;
        let texts = cast(&texts, &DataType::Utf8View)?;
        let texts = texts.as_string_view();
        let arrays = args.return_field.data_type();
        let mut read = Vec::with_capacity(texts.len());
        for text in texts {
            let Some(text) = text else {
                read.push(Item::Null);
                continue;
            };
            read.push(match read_array(text) {
                Ok(array) if array.depth() <= dimensions(arrays) => array,
                _ if is_safe => Item::Null,
                Ok(array) => {
                    return exec_err!(
                        "'{text}' is an array of {} dimensions, which is no value of type {}",
                        array.depth(),
                        "[]".repeat(dimensions(arrays))
                    );
                }
                Err(why) => return Err(exec_datafusion_err!("'{text}' is no array: {why}")),
            });
        }
        let array = built(&read.iter().collect::<Vec<_>>(), arrays);
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?),
            false => ColumnarValue::Array(array),
        })
    }
}

/// How many dimensions arrays of a type have; 0 if it is another type.
pub fn dimensions(data_type: &DataType) -> usize {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => 1 + dimensions(item.data_type()),
        _ => 0,
    }
}

/// An element of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// `NULL`.
    Null,
    /// An element's text, without quotes.
    Text(String),
    /// An array within an array.
    Array(Vec<Item>),
}

impl Item {
    /// How many arrays are within each other, at least: an empty one may have had more.
    fn depth(&self) -> usize {
        match self {
            Self::Null | Self::Text(_) => 0,
            Self::Array(items) => 1 + items.iter().map(Self::depth).max().unwrap_or(0),
        }
    }
}

/// Reads an array as PostgreSQL writes it: `{1,NULL,"with, comma"}`, and arrays within it. Bounds before it,
/// as in `[2:3]={1,2}`, are read over: arrays begin with 1 here.
///
/// # Errors
/// What is wrong with the text.
pub fn read_array(text: &str) -> Result<Item, &'static str> {
    let mut text = text.trim();
    if text.starts_with('[') {
        let (_, array) = text.split_once('=').ok_or("= is missing behind bounds")?;
        text = array.trim_start();
    }
    let mut reader = Reader { rest: text };
    if !reader.takes('{') {
        return Err("it does not begin with {");
    }
    let array = reader.array(1)?;
    match reader.rest.trim().is_empty() {
        true => Ok(array),
        false => Err("something follows its }"),
    }
}

/// PostgreSQL has no more dimensions.
const DEEPEST: usize = 6;

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn takes(&mut self, wanted: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// The elements up to the closing brace.
    fn array(&mut self, depth: usize) -> Result<Item, &'static str> {
        let mut items = Vec::new();
        if depth > DEEPEST {
            return Err("it has more than 6 dimensions");
        }
        if self.takes('}') {
            return Ok(Item::Array(items));
        }
        loop {
            items.push(match self.takes('{') {
                true => self.array(depth + 1)?,
                false => self.element()?,
            });
            if self.takes('}') {
                break;
            }
            if !self.takes(',') {
                return Err("a comma or } is missing");
            }
        }
        let arrays = items.iter().filter(|item| matches!(item, Item::Array(_)));
        match arrays.count() {
            0 => Ok(Item::Array(items)),
            count if count == items.len() => Ok(Item::Array(items)),
            _ => Err("some of its elements are arrays and others are not"),
        }
    }

    fn element(&mut self) -> Result<Item, &'static str> {
        match self.takes('"') {
            true => self.quoted(),
            false => self.plain(),
        }
    }

    fn quoted(&mut self) -> Result<Item, &'static str> {
        let mut element = String::new();
        let mut chars = self.rest.chars();
        loop {
            match chars.next().ok_or("a closing quote is missing")? {
                '"' => break,
                '\\' => element.push(chars.next().ok_or("nothing follows a backslash")?),
                other => element.push(other),
            }
        }
        self.rest = chars.as_str();
        Ok(Item::Text(element))
    }

    fn plain(&mut self) -> Result<Item, &'static str> {
        let mut element = String::new();
        // Space at the end is none of it, unless it is escaped.
        let (mut end, mut is_escaped) = (0, false);
        let mut chars = self.rest.chars();
        loop {
            let rest = chars.as_str();
            match chars.next().ok_or("its } is missing")? {
                ',' | '}' => {
                    self.rest = rest;
                    break;
                }
                '{' | '"' => return Err("a quote or { is within an element: quote the element"),
                '\\' => {
                    element.push(chars.next().ok_or("nothing follows a backslash")?);
                    is_escaped = true;
                    end = element.len();
                }
                space if space.is_whitespace() => element.push(space),
                other => {
                    element.push(other);
                    end = element.len();
                }
            }
        }
        element.truncate(end);
        if element.is_empty() {
            return Err("an element is missing");
        }
        Ok(match element.eq_ignore_ascii_case("null") && !is_escaped {
            true => Item::Null,
            false => Item::Text(element),
        })
    }
}

/// Items, none of which is deeper than `data_type`, as an array of it. What is less deep, as `{}`, is as deep
/// as it has to be.
fn built(items: &[&Item], data_type: &DataType) -> ArrayRef {
    let DataType::List(field) = data_type else {
        let mut texts = StringBuilder::new();
        for item in items {
            match item {
                Item::Text(text) => texts.append_value(text),
                Item::Null | Item::Array(_) => texts.append_null(),
            }
        }
        return Arc::new(texts.finish());
    };
    let mut nulls = NullBufferBuilder::new(items.len());
    let mut below = Vec::new();
    let mut lengths = Vec::with_capacity(items.len());
    for item in items {
        let length = match item {
            Item::Array(inner) => {
                below.extend(inner);
                inner.len()
            }
            Item::Null | Item::Text(_) => 0,
        };
        nulls.append(matches!(item, Item::Array(_)));
        lengths.push(length);
    }
    let values = built(&below, field.data_type());
    let offsets = OffsetBuffer::from_lengths(lengths);
    Arc::new(ListArray::new(
        Arc::clone(field),
        offsets,
        values,
        nulls.finish(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(texts: &[Option<&str>]) -> Item {
        let items = texts.iter().map(|text| match text {
            Some(text) => Item::Text((*text).to_owned()),
            None => Item::Null,
        });
        Item::Array(items.collect())
    }

    #[test]
    fn arrays_are_read_as_postgresql_writes_them() {
        for (text, expected) in [
            ("{}", items(&[])),
            (" { } ", items(&[])),
            ("{a,b}", items(&[Some("a"), Some("b")])),
            ("{ a b , c }", items(&[Some("a b"), Some("c")])),
            (
                r#"{a,NULL,"b, \"c\"","",null,"NULL"}"#,
                items(&[
                    Some("a"),
                    None,
                    Some("b, \"c\""),
                    Some(""),
                    None,
                    Some("NULL"),
                ]),
            ),
            (
                r"{a\,b,\ ,\null}",
                items(&[Some("a,b"), Some(" "), Some("null")]),
            ),
            ("[2:3]={x,y}", items(&[Some("x"), Some("y")])),
            (
                "{{1,2},{3,NULL}}",
                Item::Array(vec![
                    items(&[Some("1"), Some("2")]),
                    items(&[Some("3"), None]),
                ]),
            ),
        ] {
            assert_eq!(read_array(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_array_is_refused() {
        for text in [
            "",
            "a",
            "{",
            "{a",
            "{a,}",
            "{,a}",
            "{a}b",
            "{a{b}}",
            "{\"a\"b}",
            "{\"a}",
            "{a,{b}}",
            "{{{{{{{1}}}}}}}",
            "[1:2]",
        ] {
            assert!(read_array(text).is_err(), "{text}");
        }
    }
}
