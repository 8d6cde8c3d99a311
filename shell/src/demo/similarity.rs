//! A heavy library that is not thread-safe, as models of language often are: it compares texts by their best local
//! alignment.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result as FunctionResult, ScalarValue};
use datafusion::logical_expr::Volatility;
use skewer::Functions;

/// What equal characters add to an alignment's score.
const MATCH: i32 = 2;
/// What different characters, or a character without a partner, take from it.
const PENALTY: i32 = 1;

/// The library. It keeps its scratch memory from call to call, so that only one thread at a time can use it.
#[derive(Debug, Default)]
pub struct Aligner {
    scores: RefCell<Vec<i32>>,
}

impl Aligner {
    /// How well the best part of `text` fits the best part of `model`, from 0 to 1, by the algorithm of Smith and
    /// Waterman. It looks at each pair of bytes.
    pub fn similarity(&self, text: &[u8], model: &[u8]) -> f64 {
        let mut scores = self.scores.borrow_mut();
        scores.clear();
        scores.resize(model.len() + 1, 0);
        let mut best = 0;
        for byte in text {
            // The score of the alignment that ends before both bytes.
            let mut diagonal = 0;
            let mut left = 0;
            for (place, other) in model.iter().enumerate() {
                let above = scores[place + 1];
                let step = if byte == other { MATCH } else { -PENALTY };
                let score = (diagonal + step).max(left.max(above) - PENALTY).max(0);
                diagonal = above;
                left = score;
                scores[place + 1] = score;
                best = best.max(score);
            }
        }
        let most = MATCH as usize * text.len().min(model.len()).max(1);
        f64::from(best) / most as f64
    }
}

thread_local! {
    /// Each thread has a library of its own. A partition calls it for one row after the other.
    static LIBRARY: Aligner = Aligner::default();
}

/// SQL's `similarity(text, model)`.
pub fn functions() -> Functions {
    Functions::new().with_row_udf(
        "similarity",
        vec![DataType::Utf8View, DataType::Utf8View],
        DataType::Float64,
        Volatility::Immutable,
        |row| {
            let (text, model) = (text_of(&row[0])?, text_of(&row[1])?);
            let both = text.zip(model);
            let similarity = both.map(|(text, model)| {
                LIBRARY.with(|library| library.similarity(text.as_bytes(), model.as_bytes()))
            });
            Ok(ScalarValue::Float64(similarity))
        },
    )
}

/// How long one call takes for texts of so many bytes, as measured for `time`.
pub fn time_of_call(text: usize, model: usize, time: Duration) -> Duration {
    // Of hexadecimal digits, as the texts of the study are.
    let digits = |step: usize, many: usize| -> Vec<u8> {
        let digits = (0..many).map(|place| b"0123456789abcdef"[place * step % 97 % 16]);
        digits.collect()
    };
    let (text, model) = (digits(31, text), digits(53, model));
    let library = Aligner::default();
    let (begun, mut calls) = (Instant::now(), 0);
    while calls == 0 || begun.elapsed() < time {
        std::hint::black_box(library.similarity(&text, std::hint::black_box(&model)));
        calls += 1;
    }
    begun.elapsed() / calls
}

/// A text, or `None` for NULL.
fn text_of(value: &ScalarValue) -> FunctionResult<Option<&str>> {
    value.try_as_str().ok_or_else(|| {
        DataFusionError::Execution(format!("similarity expects texts and found {value}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_part_counts() {
        let library = Aligner::default();
        assert_eq!(library.similarity(b"abc", b"xxabcxx"), 1.0);
        assert_eq!(library.similarity(b"abc", b"xyz"), 0.0);
        // Two pairs, and a byte without a partner.
        assert_eq!(library.similarity(b"ab", b"axb"), 0.75);
        assert_eq!(library.similarity(b"", b"abc"), 0.0);
    }
}
