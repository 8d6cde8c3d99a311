//! Instants in the zone of the session that reads them.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::config::ConfigOptions;

use crate::functions::zones::UTC;

/// The session's zone.
pub fn zone_of(options: &ConfigOptions) -> &str {
    options.execution.time_zone.as_deref().unwrap_or(UTC)
}

/// The same columns, whose instants are shown in `zone`. They are stored as numbers that do not depend on it.
pub fn in_zone(schema: &SchemaRef, zone: &str) -> SchemaRef {
    let fields = schema.fields().iter();
    let shown: Vec<FieldRef> = fields.map(|field| field_in_zone(field, zone)).collect();
    let same = shown.iter().zip(schema.fields());
    if same.into_iter().all(|(new, old)| Arc::ptr_eq(new, old)) {
        return Arc::clone(schema);
    }
    Arc::new(Schema::new_with_metadata(shown, schema.metadata().clone()))
}

fn field_in_zone(field: &FieldRef, zone: &str) -> FieldRef {
    match type_in_zone(field.data_type(), zone) {
        Some(data_type) => Arc::new(field.as_ref().clone().with_data_type(data_type)),
        None => Arc::clone(field),
    }
}

/// `None` if the type has no instants of another zone.
fn type_in_zone(data_type: &DataType, zone: &str) -> Option<DataType> {
    let item = |item: &FieldRef| {
        let shown = field_in_zone(item, zone);
        (!Arc::ptr_eq(&shown, item)).then_some(shown)
    };
    match data_type {
        DataType::Timestamp(unit, Some(own)) if own.as_ref() != zone => {
            Some(DataType::Timestamp(*unit, Some(zone.into())))
        }
        DataType::List(field) => item(field).map(DataType::List),
        DataType::LargeList(field) => item(field).map(DataType::LargeList),
        DataType::FixedSizeList(field, n) => {
            item(field).map(|field| DataType::FixedSizeList(field, *n))
        }
        DataType::Struct(fields) => {
            let shown: Vec<Field> = fields
                .iter()
                .map(|field| field_in_zone(field, zone).as_ref().clone())
                .collect();
            let is_same = shown.iter().zip(fields).all(|(a, b)| a == b.as_ref());
            (!is_same).then(|| DataType::Struct(shown.into()))
        }
        _ => None,
    }
}
