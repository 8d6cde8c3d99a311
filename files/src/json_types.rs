//! Which types the values of a JSON file fit.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Fields};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

const BOOLEAN: u8 = 1;
const INTEGER: u8 = 1 << 1;
const FRACTION: u8 = 1 << 2;
const TEXT: u8 = 1 << 3;

/// An object in a column may have so many different keys; beyond, they are data rather than names,
/// and the column is text.
const MOST_KEYS: usize = 4096;

/// What the values of a place in records have been.
#[derive(Debug, Default, Clone)]
pub(crate) struct Seen {
    scalars: u8,
    elements: Option<Box<Seen>>,
    keys: Option<Keys>,
}

/// The keys of objects, in the order in which they first came.
#[derive(Debug, Default, Clone)]
pub(crate) struct Keys {
    names: Vec<Arc<str>>,
    seen: Vec<Seen>,
    places: HashMap<Arc<str>, usize>,
    too_many: bool,
}

impl Seen {
    /// Takes the values of another part of the file into account.
    pub(crate) fn merge(&mut self, other: Self) {
        self.scalars |= other.scalars;
        match (&mut self.elements, other.elements) {
            (Some(elements), Some(others)) => elements.merge(*others),
            (mine @ None, others) => *mine = others,
            (Some(_), None) => {}
        }
        match (&mut self.keys, other.keys) {
            (Some(keys), Some(others)) => keys.merge(others),
            (mine @ None, others) => *mine = others,
            (Some(_), None) => {}
        }
    }

    /// The keys if all values were objects.
    pub(crate) fn into_keys(self) -> Option<Keys> {
        let is_object = self.scalars == 0 && self.elements.is_none();
        self.keys.filter(|_| is_object)
    }

    /// The type that all values can be read as: text if there are none, or if they have nothing in
    /// common.
    fn data_type(&self) -> DataType {
        match (self.scalars, &self.elements, &self.keys) {
            (BOOLEAN, None, None) => DataType::Boolean,
            (INTEGER, None, None) => DataType::Int64,
            (FRACTION, None, None) => DataType::Float64,
            (numbers, None, None) if numbers == INTEGER | FRACTION => DataType::Float64,
            (0, Some(elements), None) => {
                DataType::List(Arc::new(Field::new_list_field(elements.data_type(), true)))
            }
            (0, None, Some(keys)) if !keys.names.is_empty() && !keys.too_many => {
                DataType::Struct(keys.fields())
            }
            _ => DataType::Utf8,
        }
    }

    /// Whether the type is text for values that are objects or lists.
    fn has_nested_text(&self) -> bool {
        match self.data_type() {
            DataType::Utf8 => self.elements.is_some() || self.keys.is_some(),
            DataType::List(_) => self.elements.as_ref().is_some_and(|e| e.has_nested_text()),
            DataType::Struct(_) => self.keys.as_ref().is_some_and(Keys::has_nested_text),
            _ => false,
        }
    }
}

impl Keys {
    /// Takes the keys of other records into account.
    pub(crate) fn merge(&mut self, other: Self) {
        self.too_many |= other.too_many;
        for (name, seen) in other.names.iter().zip(other.seen) {
            if let Some(place) = self.place(name, 0) {
                self.seen[place].merge(seen);
            }
        }
    }

    /// The place of a key, which is looked for at `expected` first. `None` if there are too many.
    fn place(&mut self, name: &str, expected: usize) -> Option<usize> {
        if self.names.get(expected).is_some_and(|key| **key == *name) {
            return Some(expected);
        }
        if let Some(place) = self.places.get(name) {
            return Some(*place);
        }
        if self.names.len() == MOST_KEYS {
            self.too_many = true;
            return None;
        }
        let name: Arc<str> = name.into();
        let place = self.names.len();
        self.places.insert(Arc::clone(&name), place);
        self.names.push(name);
        self.seen.push(Seen::default());
        Some(place)
    }

    /// The keys as columns.
    pub(crate) fn fields(&self) -> Fields {
        let fields = self.names.iter().zip(&self.seen);
        let fields = fields.map(|(name, seen)| Field::new(&**name, seen.data_type(), true));
        fields.collect()
    }

    /// Whether there were more keys than a table may have columns.
    pub(crate) fn too_many(&self) -> bool {
        self.too_many
    }

    /// Whether objects or lists are to be read as text.
    pub(crate) fn has_nested_text(&self) -> bool {
        self.seen.iter().any(Seen::has_nested_text)
    }
}

impl<'de> DeserializeSeed<'de> for &mut Seen {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Seen {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.scalars |= BOOLEAN;
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.scalars |= INTEGER;
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.scalars |= match i64::try_from(value) {
            Ok(_) => INTEGER,
            Err(_) => FRACTION,
        };
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.scalars |= FRACTION;
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        self.scalars |= TEXT;
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        let elements = self.elements.get_or_insert_default();
        while values.next_element_seed(&mut **elements)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let keys = self.keys.get_or_insert_default();
        let mut expected = 0;
        while let Some(place) = entries.next_key_seed(KeyOf(keys, expected))? {
            match place {
                Some(place) => {
                    entries.next_value_seed(&mut keys.seen[place])?;
                    expected = place + 1;
                }
                None => {
                    entries.next_value::<serde::de::IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Looks a key up, which is expected at a place.
struct KeyOf<'a>(&'a mut Keys, usize);

impl<'de> DeserializeSeed<'de> for KeyOf<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyOf<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.place(key, self.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types(records: &[&str]) -> Vec<String> {
        let mut all = Seen::default();
        for record in records {
            let mut seen = Seen::default();
            let mut deserializer = serde_json::Deserializer::from_str(record);
            seen.deserialize(&mut deserializer).unwrap();
            all.merge(seen);
        }
        let fields = all.into_keys().unwrap().fields();
        let types = fields
            .iter()
            .map(|f| format!("{} {}", f.name(), f.data_type()));
        types.collect()
    }

    #[test]
    fn a_key_has_the_narrowest_type_of_all_its_values() {
        for (records, expected) in [
            (
                &[r#"{"b":1,"a":null}"#, r#"{"c":true}"#][..],
                &["b Int64", "a Utf8", "c Boolean"][..],
            ),
            (&[r#"{"a":1}"#, r#"{"a":0.5}"#], &["a Float64"]),
            (&[r#"{"a":9223372036854775808}"#], &["a Float64"]),
            (&[r#"{"a":1}"#, r#"{"a":"x"}"#], &["a Utf8"]),
            (&[r#"{"a":1}"#, r#"{"a":{"b":2}}"#], &["a Utf8"]),
            (&[r#"{"a":[]}"#, r#"{"a":[1,null]}"#], &["a List(Int64)"]),
            (&[r#"{"a":[]}"#, r#"{"a":[1,"x"]}"#], &["a List(Utf8)"]),
            (&[r#"{"a":{}}"#], &["a Utf8"]),
            (
                &[r#"{"a":{"x":1}}"#, r#"{"a":{"y":[{"z":1.5}]}}"#],
                &[r#"a Struct("x": Int64, "y": List(Struct("z": Float64)))"#],
            ),
        ] {
            assert_eq!(types(records), expected, "{records:?}");
        }
    }
}
