//! Texts that are one of few, found by their views.
//!
//! A view has the text's length and its first four bytes, and the rest of a text of at most twelve. Longer ones say
//! where their bytes are. Rows of a column often refer to the same bytes, since a dictionary had them: which bytes
//! are equal to the text looked for is remembered, and the others are compared once.

use datafusion::arrow::array::{Array, AsArray, StringViewArray};
use datafusion::arrow::buffer::BooleanBuffer;

/// The length of texts that views have whole.
const WHOLE: usize = 12;

/// The texts that are looked for.
#[derive(Debug)]
pub(super) struct Texts {
    /// The views of short ones.
    short: Vec<u128>,
    /// Long ones, with the lower half of their views: the length and the first four bytes.
    long: Vec<(u64, Box<[u8]>)>,
}

impl Texts {
    pub(super) fn new<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let (mut short, mut long) = (Vec::new(), Vec::new());
        for text in texts {
            let views = StringViewArray::from_iter_values([text]);
            let view = views.views()[0];
            match text.len() <= WHOLE {
                true => short.push(view),
                false => long.push((view as u64, text.as_bytes().into())),
            }
        }
        Self { short, long }
    }

    /// Which rows have one of the texts. `None` if the column is not one of views.
    pub(super) fn find(&self, column: &dyn Array) -> Option<BooleanBuffer> {
        let column = column.as_string_view_opt()?;
        let views = column.views();
        let mut found = match (&self.short[..], &self.long[..]) {
            ([text], []) => of_rows(views, |view| view == *text),
            ([first, second], []) => of_rows(views, |view| (view == *first) | (view == *second)),
            (short, []) => of_rows(views, |view| short.contains(&view)),
            (short, long) => {
                let mut long: Vec<_> = long.iter().map(|text| Long::new(text, column)).collect();
                of_rows(views, |view| {
                    short.contains(&view) || long.iter_mut().any(|long| long.is_at(view))
                })
            }
        };
        if let Some(nulls) = column.nulls() {
            found = &found & nulls.inner();
        }
        Some(found)
    }
}

fn of_rows(views: &[u128], mut is_found: impl FnMut(u128) -> bool) -> BooleanBuffer {
    BooleanBuffer::collect_bool(views.len(), |row| is_found(views[row]))
}

/// A long text, and where it was found last.
struct Long<'a> {
    begin: u64,
    bytes: &'a [u8],
    column: &'a StringViewArray,
    /// The upper half of a view: buffer and offset.
    place: Option<u64>,
}

impl<'a> Long<'a> {
    fn new((begin, bytes): &'a (u64, Box<[u8]>), column: &'a StringViewArray) -> Self {
        Self {
            begin: *begin,
            bytes,
            column,
            place: None,
        }
    }

    #[inline]
    fn is_at(&mut self, view: u128) -> bool {
        view as u64 == self.begin && self.is_in(view)
    }

    /// Whether the bytes are these, of a view with the right length and beginning.
    fn is_in(&mut self, view: u128) -> bool {
        let place = (view >> 64) as u64;
        if self.place == Some(place) {
            return true;
        }
        let (buffer, offset) = (place as u32 as usize, (place >> 32) as usize);
        let buffer = self.column.data_buffers().get(buffer);
        let there = buffer.and_then(|buffer| buffer.get(offset..offset + self.bytes.len()));
        let is_equal = there == Some(self.bytes);
        if is_equal {
            self.place = Some(place);
        }
        is_equal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(texts: &[&str], column: &StringViewArray) -> Vec<bool> {
        let found = Texts::new(texts.iter().copied()).find(column).unwrap();
        found.iter().collect()
    }

    #[test]
    fn texts_of_any_length_are_found() {
        let values = [
            Some("AIR"),
            Some("AIR REG"),
            None,
            Some(""),
            Some("twelve bytes"),
            Some("thirteen byte"),
            Some("thirteen byts"),
            Some("thirteen byte"),
        ];
        let column = StringViewArray::from_iter(values);
        let sets: [&[&str]; 6] = [
            &["AIR"],
            &["AIR", ""],
            &["thirteen byte"],
            &["thirteen byts", "AIR REG", "twelve bytes"],
            &["", "AIR", "AIR REG", "none"],
            &["no such text at all"],
        ];
        for texts in sets {
            let expected = values.map(|value| value.is_some_and(|value| texts.contains(&value)));
            assert_eq!(found(texts, &column), expected, "{texts:?}");
        }
    }

    #[test]
    fn a_part_of_a_column_has_its_own_rows() {
        let column =
            StringViewArray::from_iter_values(["a", "thirteen byte", "b", "thirteen byte"]);
        let part = column.slice(1, 3);
        assert_eq!(found(&["thirteen byte"], &part), [true, false, true]);
        assert_eq!(found(&["b"], &part), [false, true, false]);
    }
}
