//! `last_query_id()`.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

/// `last_query_id()`: the `query_id` of the last statement that finished in this session, NULL
/// before the first.
#[derive(Debug)]
pub(crate) struct LastQueryId {
    id: Arc<AtomicI64>,
    signature: Signature,
}

impl LastQueryId {
    pub(crate) fn new(id: Arc<AtomicI64>) -> Self {
        Self {
            id,
            // Stable: planning puts the value in, so that scans of schema `sys` can prune by it.
            signature: Signature::nullary(Volatility::Stable),
        }
    }
}

impl PartialEq for LastQueryId {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.id, &other.id)
    }
}

impl Eq for LastQueryId {}

impl Hash for LastQueryId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.id).hash(state);
    }
}

impl ScalarUDFImpl for LastQueryId {
    fn name(&self) -> &str {
        "last_query_id"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let id = self.id.load(Ordering::Acquire);
        let id = (id > 0).then_some(id);
        Ok(ColumnarValue::Scalar(ScalarValue::Int64(id)))
    }
}
