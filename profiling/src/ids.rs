//! A compact, immutable column of record ids.
//!
//! Ids come in batches that are a range (rows read in order), one value (an ungrouped
//! aggregate), close together (groups of a partition) or arbitrary. [`Ids`] keeps whichever
//! of these takes the least memory.

use datafusion::arrow::array::{Array, Int64Array};

/// An immutable column of record ids; an id may be absent ("none") if encoded as nullable.
#[derive(Debug, Clone, PartialEq)]
pub struct Ids(Encoding);

#[derive(Debug, Clone, PartialEq)]
enum Encoding {
    /// `start, start + 1, …`
    Range {
        start: i64,
        len: usize,
    },
    /// The same id, or none, `len` times.
    Constant {
        value: Option<i64>,
        len: usize,
    },
    /// `base + offset`; the greatest offset of the type stands for "none".
    Offset8 {
        base: i64,
        offsets: Box<[u8]>,
    },
    Offset16 {
        base: i64,
        offsets: Box<[u16]>,
    },
    Offset32 {
        base: i64,
        offsets: Box<[u32]>,
    },
    /// The ids themselves; [`NONE`] stands for "none".
    Raw(Box<[i64]>),
}

/// Stands for "none" among raw ids: row ids and record ids are never negative.
const NONE: i64 = i64::MIN;

impl Ids {
    /// `len` ascending ids from `start` on.
    pub fn range(start: i64, len: usize) -> Ids {
        Ids(Encoding::Range { start, len })
    }

    /// One id, `len` times.
    pub fn constant(value: i64, len: usize) -> Ids {
        Ids(Encoding::Constant {
            value: Some(value),
            len,
        })
    }

    /// Encodes ids, none of them absent.
    pub fn encode(ids: &[i64]) -> Ids {
        let Some(&first) = ids.first() else {
            return Ids::range(0, 0);
        };
        let (mut min, mut max) = (first, first);
        let mut ascending = true;
        for (position, &id) in ids.iter().enumerate() {
            min = min.min(id);
            max = max.max(id);
            ascending &= id.wrapping_sub(first) == position as i64;
        }
        if ascending {
            return Ids::range(first, ids.len());
        }
        if min == max {
            return Ids::constant(first, ids.len());
        }
        Ids(Encoding::offsets(min, max, ids.iter().copied(), |_| false))
    }

    /// Encodes ids of which some may be absent.
    pub fn encode_nullable(ids: &Int64Array) -> Ids {
        if ids.null_count() == 0 {
            return Ids::encode(ids.values());
        }
        let (mut min, mut max, mut any) = (i64::MAX, i64::MIN, false);
        for id in ids.iter().flatten() {
            min = min.min(id);
            max = max.max(id);
            any = true;
        }
        if !any {
            return Ids(Encoding::Constant {
                value: None,
                len: ids.len(),
            });
        }
        let values = ids.iter().map(|id| id.unwrap_or(NONE));
        Ids(Encoding::offsets(min, max, values, |id| id == NONE))
    }

    /// Number of ids.
    pub fn len(&self) -> usize {
        match &self.0 {
            Encoding::Range { len, .. } | Encoding::Constant { len, .. } => *len,
            Encoding::Offset8 { offsets, .. } => offsets.len(),
            Encoding::Offset16 { offsets, .. } => offsets.len(),
            Encoding::Offset32 { offsets, .. } => offsets.len(),
            Encoding::Raw(ids) => ids.len(),
        }
    }

    /// Whether there is no id.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the column occupies.
    pub fn memory(&self) -> usize {
        size_of::<Ids>()
            + match &self.0 {
                Encoding::Range { .. } | Encoding::Constant { .. } => 0,
                Encoding::Offset8 { offsets, .. } => offsets.len(),
                Encoding::Offset16 { offsets, .. } => 2 * offsets.len(),
                Encoding::Offset32 { offsets, .. } => 4 * offsets.len(),
                Encoding::Raw(ids) => 8 * ids.len(),
            }
    }

    /// The ids as an Arrow array; absent ids are null.
    pub fn decode(&self) -> Int64Array {
        fn widen<T: Copy + PartialEq + Into<i64>>(base: i64, offsets: &[T], none: T) -> Int64Array {
            if offsets.contains(&none) {
                offsets
                    .iter()
                    .map(|&offset| (offset != none).then(|| base + offset.into()))
                    .collect()
            } else {
                Int64Array::from_iter_values(offsets.iter().map(|&offset| base + offset.into()))
            }
        }
        match &self.0 {
            Encoding::Range { start, len } => {
                Int64Array::from_iter_values(*start..*start + *len as i64)
            }
            Encoding::Constant { value, len } => match value {
                Some(value) => Int64Array::from_value(*value, *len),
                None => Int64Array::new_null(*len),
            },
            Encoding::Offset8 { base, offsets } => widen(*base, offsets, u8::MAX),
            Encoding::Offset16 { base, offsets } => widen(*base, offsets, u16::MAX),
            Encoding::Offset32 { base, offsets } => widen(*base, offsets, u32::MAX),
            Encoding::Raw(ids) if ids.contains(&NONE) => {
                ids.iter().map(|&id| (id != NONE).then_some(id)).collect()
            }
            Encoding::Raw(ids) => Int64Array::from_iter_values(ids.iter().copied()),
        }
    }
}

impl Encoding {
    /// The narrowest offsets from `min` that hold `ids`, whose range is `min..=max` apart from
    /// the ids for which `none` holds.
    fn offsets(
        min: i64,
        max: i64,
        ids: impl Iterator<Item = i64>,
        none: impl Fn(i64) -> bool,
    ) -> Encoding {
        let span = max.wrapping_sub(min) as u64;
        if span < u64::from(u8::MAX) {
            let offset = |id: i64| if none(id) { u8::MAX } else { (id - min) as u8 };
            Encoding::Offset8 {
                base: min,
                offsets: ids.map(offset).collect(),
            }
        } else if span < u64::from(u16::MAX) {
            let offset = |id: i64| {
                if none(id) {
                    u16::MAX
                } else {
                    (id - min) as u16
                }
            };
            Encoding::Offset16 {
                base: min,
                offsets: ids.map(offset).collect(),
            }
        } else if span < u64::from(u32::MAX) {
            let offset = |id: i64| {
                if none(id) {
                    u32::MAX
                } else {
                    (id - min) as u32
                }
            };
            Encoding::Offset32 {
                base: min,
                offsets: ids.map(offset).collect(),
            }
        } else {
            Encoding::Raw(ids.collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nullable(ids: &[Option<i64>]) -> Int64Array {
        ids.iter().copied().collect()
    }

    #[test]
    fn ranges_and_constants_take_no_memory_per_id() {
        let ascending: Vec<i64> = (1_000_000..1_008_192).collect();
        let same = vec![7; 8192];
        for ids in [ascending, same] {
            let encoded = Ids::encode(&ids);
            assert_eq!(encoded.memory(), size_of::<Ids>());
            assert_eq!(encoded.decode().values().as_ref(), ids.as_slice());
        }
    }

    #[test]
    fn the_width_follows_the_span_of_the_ids() {
        for (span, width) in [(200, 1), (60_000, 2), (3_000_000_000, 4), (i64::MAX - 5, 8)] {
            let ids = [5 + span, 5, 5 + span / 2];
            let encoded = Ids::encode(&ids);
            assert_eq!(
                encoded.memory() - size_of::<Ids>(),
                3 * width,
                "span {span}"
            );
            assert_eq!(encoded.decode().values().as_ref(), ids);
        }
    }

    #[test]
    fn absent_ids_stay_absent_at_every_width() {
        for span in [0, 254, 255, 65_534, 65_535, u32::MAX as i64, 1 << 40] {
            let ids = nullable(&[Some(9), None, Some(9 + span), None]);
            assert_eq!(Ids::encode_nullable(&ids).decode(), ids, "span {span}");
        }
        let none = nullable(&[None, None]);
        assert_eq!(Ids::encode_nullable(&none).decode(), none);
    }

    proptest! {
        #[test]
        fn decoding_gives_back_what_was_encoded(
            ids in prop::collection::vec(prop::option::weighted(0.9, 0i64..), 0..200),
            scale in 0u32..60,
        ) {
            let ids: Vec<Option<i64>> = ids.iter().map(|id| id.map(|id| id >> scale)).collect();
            let array = nullable(&ids);
            let encoded = Ids::encode_nullable(&array);
            prop_assert_eq!(encoded.len(), ids.len());
            prop_assert_eq!(encoded.decode(), array);
        }
    }
}
