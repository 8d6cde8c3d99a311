//! `octet_length` of text and of bytes.

use datafusion::arrow::compute::kernels::length::length;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::types::logical_string;
use datafusion::common::utils::take_function_args;
use datafusion::common::{Result, ScalarValue};
use datafusion::functions::string::octet_length::OctetLengthFunc;
use datafusion::logical_expr::{
    Coercion, ColumnarValue, Documentation, EncodingPreservation, ScalarFunctionArgs,
    ScalarUDFImpl, Signature, TypeSignature, TypeSignatureClass, Volatility,
};

/// The scalar function `octet_length(value) → INT`: how many bytes a text has, as DataFusion's, or a BYTEA,
/// as in PostgreSQL.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct OctetLength {
    signature: Signature,
    of_text: OctetLengthFunc,
}

impl Default for OctetLength {
    fn default() -> Self {
        let text = Coercion::new_exact(TypeSignatureClass::Native(logical_string()))
            .with_encoding_preservation(EncodingPreservation::dictionary());
        let bytes = Coercion::new_exact(TypeSignatureClass::Binary);
        let signatures = [text, bytes].map(|one| TypeSignature::Coercible(vec![one]));
        Self {
            signature: Signature::one_of(signatures.to_vec(), Volatility::Immutable),
            of_text: OctetLengthFunc::new(),
        }
    }
}

impl ScalarUDFImpl for OctetLength {
    fn name(&self) -> &'static str {
        "octet_length"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [DataType::LargeBinary] => Ok(DataType::Int64),
            [
                DataType::Null
                | DataType::Binary
                | DataType::BinaryView
                | DataType::FixedSizeBinary(_),
            ] => Ok(DataType::Int32),
            text => self.of_text.return_type(text),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = take_function_args(self.name(), &args.args)?;
        if value.data_type() == DataType::Null {
            return Ok(ColumnarValue::Scalar(ScalarValue::Int32(None)));
        }
        let is_bytes = matches!(
            value.data_type(),
            DataType::LargeBinary
                | DataType::Binary
                | DataType::BinaryView
                | DataType::FixedSizeBinary(_)
        );
        if !is_bytes {
            return self.of_text.invoke_with_args(args);
        }
        let lengths = length(&value.to_array(args.number_rows)?)?;
        Ok(ColumnarValue::Array(lengths))
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.of_text.documentation()
    }
}
