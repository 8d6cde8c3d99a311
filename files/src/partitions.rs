//! Columns that the names of folders make: `year=2024/month=1/x.parquet`.

use std::sync::Arc;

use datafusion::arrow::compute::kernels::cast_utils::Parser;
use datafusion::arrow::datatypes::{DataType, Date32Type, Field, FieldRef, Schema};
use datafusion::scalar::ScalarValue;

use crate::error::FilesError;
use crate::locate::{Located, unreadable};
use skewer_sql::sql_name;

/// The partition columns of files, and their values for each file.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    pub(crate) fields: Vec<FieldRef>,
    /// One list per file.
    pub(crate) values: Vec<Vec<ScalarValue>>,
}

impl Partitions {
    /// The columns that folders of `files` name, outermost first; of a table with `given` columns
    /// those among them. Integers and dates have their types, others are text.
    ///
    /// # Errors
    /// A value that does not fit the type of a given column.
    pub(crate) fn of_files(files: &[Located], given: Option<&Schema>) -> Result<Self, FilesError> {
        let mut keys: Vec<&str> = Vec::new();
        for (key, _) in files.iter().flat_map(|file| &file.partitions) {
            let is_wanted = given.is_none_or(|schema| schema.column_with_name(key).is_some());
            if is_wanted && !keys.contains(&key.as_str()) {
                keys.push(key);
            }
        }
        let mut partitions = Self {
            fields: Vec::new(),
            values: vec![Vec::new(); files.len()],
        };
        for key in keys {
            let texts: Vec<Option<&str>> = files.iter().map(|file| value(file, key)).collect();
            let data_type = match given.and_then(|schema| schema.field_with_name(key).ok()) {
                Some(field) => field.data_type().clone(),
                None => type_of(&texts),
            };
            for ((text, file), values) in texts.iter().zip(files).zip(&mut partitions.values) {
                let text = ScalarValue::Utf8(text.map(str::to_owned));
                let value = text.cast_to(&data_type).map_err(|_| {
                    let message = format!(
                        "{text} of the folder {key}={text} is not {}",
                        sql_name(&data_type)
                    );
                    unreadable(&file.name(), &message)
                })?;
                values.push(value);
            }
            let nullable = texts.contains(&None);
            partitions
                .fields
                .push(Arc::new(Field::new(key, data_type, nullable)));
        }
        Ok(partitions)
    }

    /// Whether a column is one of them.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name() == name)
    }
}

/// The innermost folder with this key counts.
fn value<'a>(file: &'a Located, key: &str) -> Option<&'a str> {
    let mut partitions = file.partitions.iter().rev();
    let (_, value) = partitions.find(|(name, _)| name == key)?;
    value.as_deref()
}

fn type_of(texts: &[Option<&str>]) -> DataType {
    let all = |is: fn(&str) -> bool| {
        let mut values = texts.iter().flatten();
        values.clone().next().is_some() && values.all(|text| is(text))
    };
    let is_date = |text: &str| text.len() == 10 && Date32Type::parse(text).is_some();
    match () {
        () if all(|text| text.parse::<i64>().is_ok() && !text.starts_with('+')) => DataType::Int64,
        () if all(is_date) => DataType::Date32,
        () => DataType::Utf8,
    }
}
