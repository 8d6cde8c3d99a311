//! Our scalar functions as bytes.

use std::sync::Arc;

use datafusion::common::{DataFusionError, Result, not_impl_err};
use datafusion::logical_expr::ScalarUDF;
use skewer_compat::functions::arithmetic::{Arithmetic, Operation};
use skewer_compat::functions::conversion::Conversion;
use skewer_compat::functions::octet_length::OctetLength;
use skewer_compat::functions::patterns::{EscapedPattern, PatternKind};
use skewer_compat::functions::quantified::{Quantified, Quantifier};
use skewer_compat::functions::read_array::ReadArray;
use skewer_compat::functions::row_numbers::RowNumbers;
use skewer_compat::functions::scalar_or_error::ScalarOrError;
use skewer_compat::functions::zones::{AddInterval, ReadTime, ShowTime, Timezone};
use skewer_exec::{Int32RowId, RecordColumn, SampledRowId};

use super::{SkewerCodec, external};

/// Stands for [`SampledRowId`].
const SAMPLED_ROW_ID: &[u8] = b"sampled";

/// Stands for [`RowNumbers`].
const ROW_NUMBERS: &[u8] = b"numbers";

/// Stands for [`ScalarOrError`].
const SCALAR_OR_ERROR: &[u8] = b"only";

/// Stands for [`OctetLength`].
const OCTET_LENGTH: &[u8] = b"octets";

/// Stands for [`Timezone`].
const TIMEZONE: &[u8] = b"zone";

/// Stands for [`EscapedPattern`] of LIKE.
const LIKE_ESCAPE: &[u8] = b"like";

/// Stands for [`EscapedPattern`] of SIMILAR TO.
const SIMILAR_ESCAPE: &[u8] = b"similar";

/// Stands for [`Quantified`] by ANY.
const ANY_OF: &[u8] = b"any of";

/// Stands for [`Quantified`] by ALL.
const ALL_OF: &[u8] = b"all of";

/// Stands for [`ReadTime`].
const READ_TIME: &[u8] = b"time";

/// Stands for [`ShowTime`].
const SHOW_TIME: &[u8] = b"show time";

/// Stands for [`AddInterval`].
const ADD_INTERVAL: &[u8] = b"add interval";

/// Stands for [`ReadArray`].
const READ_ARRAY: &[u8] = b"array";

/// Stands for [`RecordColumn`].
const PACKED_RECORD: &[u8] = b"packed";

/// Stands for [`Int32RowId`].
const NARROW_ID: &[u8] = b"narrow";

/// Stands for an [`Arithmetic`], before its operation.
const ARITHMETIC: &[u8] = b"arithmetic";

/// Stands for a [`Conversion`], before the name of its type.
const CAST: &[u8] = b"cast ";

/// The same for one that tries.
const TRY_CAST: &[u8] = b"try cast ";

/// What stands for `function`, if it is one of ours.
pub(super) fn encoded_function(function: &ScalarUDF) -> Option<Vec<u8>> {
    let function = function.inner();
    if let Some(arithmetic) = function.downcast_ref::<Arithmetic>() {
        let operation = postcard::to_stdvec(&arithmetic.operation()).ok()?;
        return Some([ARITHMETIC, &operation].concat());
    }
    if let Some(conversion) = function.downcast_ref::<Conversion>() {
        let kind = if conversion.tries() { TRY_CAST } else { CAST };
        return Some([kind, conversion.to().to_string().as_bytes()].concat());
    }
    let name = if function.is::<SampledRowId>() {
        Some(SAMPLED_ROW_ID)
    } else if function.is::<RowNumbers>() {
        Some(ROW_NUMBERS)
    } else if function.is::<ScalarOrError>() {
        Some(SCALAR_OR_ERROR)
    } else if function.is::<OctetLength>() {
        Some(OCTET_LENGTH)
    } else if function.is::<Timezone>() {
        Some(TIMEZONE)
    } else if function.is::<ReadTime>() {
        Some(READ_TIME)
    } else if let Some(pattern) = function.downcast_ref::<EscapedPattern>() {
        Some(match pattern.kind() {
            PatternKind::Like => LIKE_ESCAPE,
            PatternKind::Similar => SIMILAR_ESCAPE,
        })
    } else if let Some(quantified) = function.downcast_ref::<Quantified>() {
        Some(match quantified.quantifier() {
            Quantifier::Any => ANY_OF,
            Quantifier::All => ALL_OF,
        })
    } else if function.is::<ShowTime>() {
        Some(SHOW_TIME)
    } else if function.is::<AddInterval>() {
        Some(ADD_INTERVAL)
    } else if function.is::<ReadArray>() {
        Some(READ_ARRAY)
    } else if function.is::<RecordColumn>() {
        Some(PACKED_RECORD)
    } else if function.is::<Int32RowId>() {
        Some(NARROW_ID)
    } else {
        None
    };
    name.map(<[u8]>::to_vec)
}

impl SkewerCodec {
    /// The function that `bytes` stand for. Which records are traced is said with the plan, not in it.
    pub(super) fn decoded_function(&self, name: &str, bytes: &[u8]) -> Result<Arc<ScalarUDF>> {
        let recorder = || Ok::<_, DataFusionError>(&self.place()?.recorder);
        let function = match bytes {
            SAMPLED_ROW_ID => ScalarUDF::from(SampledRowId::new(Arc::clone(recorder()?))),
            ROW_NUMBERS => ScalarUDF::from(RowNumbers::new(recorder()?.worker_id())),
            SCALAR_OR_ERROR => ScalarUDF::from(ScalarOrError::default()),
            OCTET_LENGTH => ScalarUDF::from(OctetLength::default()),
            SHOW_TIME => ScalarUDF::from(ShowTime::default()),
            ADD_INTERVAL => ScalarUDF::from(AddInterval::default()),
            ANY_OF => ScalarUDF::from(Quantified::new(Quantifier::Any)),
            ALL_OF => ScalarUDF::from(Quantified::new(Quantifier::All)),
            LIKE_ESCAPE => ScalarUDF::from(EscapedPattern::new(PatternKind::Like)),
            SIMILAR_ESCAPE => ScalarUDF::from(EscapedPattern::new(PatternKind::Similar)),
            // The types that they give are in the plan.
            TIMEZONE => ScalarUDF::from(Timezone::default()),
            READ_TIME => ScalarUDF::from(ReadTime::default()),
            READ_ARRAY => ScalarUDF::from(ReadArray::default()),
            PACKED_RECORD => ScalarUDF::from(RecordColumn::default()),
            NARROW_ID => ScalarUDF::from(Int32RowId::default()),
            bytes if bytes.starts_with(CAST) => conversion(&bytes[CAST.len()..], false)?,
            bytes if bytes.starts_with(TRY_CAST) => conversion(&bytes[TRY_CAST.len()..], true)?,
            bytes if bytes.starts_with(ARITHMETIC) => {
                let operation: Operation =
                    postcard::from_bytes(&bytes[ARITHMETIC.len()..]).map_err(external)?;
                ScalarUDF::from(Arithmetic::new(operation))
            }
            _ => return not_impl_err!("function {name} is not ours"),
        };
        Ok(Arc::new(function))
    }
}

fn conversion(to: &[u8], tries: bool) -> Result<ScalarUDF> {
    let to = String::from_utf8_lossy(to).parse()?;
    Ok(ScalarUDF::from(Conversion::new(to, tries)))
}
