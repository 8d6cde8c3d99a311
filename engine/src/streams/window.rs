//! Windows of event time: which end, and which rows they need.
//!
//! A window begins at a multiple of its slide since 1970 and is as long as its size. Of a tumbling
//! window, the slide is the size. A window is closed when the watermark has reached its end.

use datafusion::arrow::temporal_conversions::timestamp_ns_to_datetime;
use datafusion::sql::sqlparser::ast::{Expr, Function, FunctionArg, FunctionArgExpr};
use datafusion::sql::sqlparser::ast::{FunctionArguments, Ident};
use skewer_sql::streams::interval_ns;

use crate::catalog::names::fold;
use crate::error::Error;

/// Windows that one row can be in.
const MOST: i64 = 1000;

/// The windows that a query groups by. All times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Windows {
    /// Length of a window.
    pub(crate) size: i64,
    /// From the begin of a window to the begin of the next one.
    pub(crate) slide: i64,
}

/// Windows by their begins, which are multiples of the slide: all that begin after `after`, or all if
/// it is `None`, up to and with `last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closing {
    pub(crate) after: Option<i64>,
    pub(crate) last: i64,
}

/// What a call of a window function means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edge {
    /// `tumble` and `hop`: where the window begins.
    Begin,
    /// `tumble_end` and `hop_end`: where it ends.
    End,
}

/// A call of a window function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WindowCall {
    /// The column with the time of the event.
    pub(crate) column: Ident,
    pub(crate) windows: Windows,
    pub(crate) edge: Edge,
}

impl Windows {
    /// The begin of the last window that is closed at `watermark`.
    pub(crate) fn last_closed(self, watermark: i64) -> i64 {
        let begins = watermark.saturating_sub(self.size).div_euclid(self.slide);
        begins.saturating_mul(self.slide)
    }

    /// The windows that close as the watermark moves; `None` if none does.
    pub(crate) fn closing(self, before: Option<i64>, now: Option<i64>) -> Option<Closing> {
        let last = self.last_closed(now?);
        let after = before.map(|before| self.last_closed(before));
        (after.is_none_or(|after| after < last)).then_some(Closing { after, last })
    }

    /// Rows from this time on are in a window that is not closed at `watermark`.
    pub(crate) fn first_open(self, watermark: i64) -> i64 {
        self.last_closed(watermark).saturating_add(self.slide)
    }

    /// How many windows a row is in, at most.
    pub(crate) fn of_a_row(self) -> i64 {
        self.size.saturating_add(self.slide - 1) / self.slide
    }

    pub(crate) fn is_sliding(self) -> bool {
        self.size != self.slide
    }
}

impl Closing {
    /// The time from which rows are in one of the windows; `None` if there is no such time.
    pub(crate) fn first_row(self, windows: Windows) -> Option<i64> {
        self.after.map(|after| after.saturating_add(windows.slide))
    }

    /// The end of the last window.
    pub(crate) fn end(self, windows: Windows) -> i64 {
        self.last.saturating_add(windows.size)
    }
}

/// The call of a window function that an expression is, if it is one.
///
/// # Errors
/// [`Error::Invalid`] if its arguments make no window.
pub(crate) fn window_call(expr: &Expr) -> Result<Option<WindowCall>, Error> {
    let Expr::Function(function) = expr else {
        return Ok(None);
    };
    let (edge, is_sliding) = match function.name.to_string().to_lowercase().as_str() {
        "tumble" => (Edge::Begin, false),
        "tumble_end" => (Edge::End, false),
        "hop" => (Edge::Begin, true),
        "hop_end" => (Edge::End, true),
        _ => return Ok(None),
    };
    let wrong = || {
        let usage = match is_sliding {
            false => "tumble(ts, INTERVAL '1 minute')",
            true => "hop(ts, size, slide), as hop(ts, INTERVAL '1 minute', INTERVAL '10 seconds')",
        };
        Error::Invalid(format!(
            "{expr} is not a window: write {usage}, where ts is the column of the stream's WATERMARK \
             and intervals are above 0 and have no months"
        ))
    };
    let arguments = arguments(function).ok_or_else(wrong)?;
    let (column, lengths) = arguments.split_first().ok_or_else(wrong)?;
    let column = match column {
        Expr::Identifier(column) => column.clone(),
        Expr::CompoundIdentifier(parts) => parts.last().cloned().ok_or_else(wrong)?,
        _ => return Err(wrong()),
    };
    let lengths = lengths.iter().map(|length| interval_ns(length));
    let lengths = lengths.collect::<Option<Vec<i64>>>().ok_or_else(wrong)?;
    let windows = match (lengths.as_slice(), is_sliding) {
        ([size], false) => Windows {
            size: *size,
            slide: *size,
        },
        ([size, slide], true) => Windows {
            size: *size,
            slide: *slide,
        },
        _ => return Err(wrong()),
    };
    if windows.size <= 0 || windows.slide <= 0 {
        return Err(wrong());
    }
    if windows.slide > windows.size {
        return Err(Error::Invalid(format!(
            "{expr}: the slide is longer than the window, so that some rows would be in no window"
        )));
    }
    if windows.of_a_row() > MOST {
        return Err(Error::Invalid(format!(
            "{expr}: a row would be in {} windows; at most {MOST} are possible: make the slide longer",
            windows.of_a_row()
        )));
    }
    Ok(Some(WindowCall {
        column,
        windows,
        edge,
    }))
}

fn arguments(function: &Function) -> Option<Vec<&Expr>> {
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    let arguments = list.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    });
    arguments.collect()
}

/// Whether two columns have the same name.
pub(crate) fn is_column(ident: &Ident, column: &str) -> bool {
    fold(ident) == column
}

/// A time as SQL: nanoseconds since 1970 become `TIMESTAMP '…'`.
pub(crate) fn timestamp(nanoseconds: i64) -> String {
    match timestamp_ns_to_datetime(nanoseconds) {
        Some(time) => format!("TIMESTAMP '{time}'"),
        None => "TIMESTAMP '1970-01-01 00:00:00'".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TUMBLING: Windows = Windows {
        size: 10,
        slide: 10,
    };
    const SLIDING: Windows = Windows { size: 10, slide: 4 };

    #[test]
    fn a_window_closes_when_the_watermark_reaches_its_end() {
        for (watermark, last) in [(9, -10), (10, 0), (19, 0), (20, 10), (-1, -20), (0, -10)] {
            assert_eq!(TUMBLING.last_closed(watermark), last, "{watermark}");
        }
        // Windows begin at 0, 4 and 8 and end at 10, 14 and 18.
        for (watermark, last) in [(10, 0), (13, 0), (14, 4), (17, 4), (18, 8)] {
            assert_eq!(SLIDING.last_closed(watermark), last, "{watermark}");
        }
    }

    #[test]
    fn each_window_closes_once() {
        for windows in [TUMBLING, SLIDING] {
            let mut closed = None;
            let mut before = None;
            for watermark in [3, 9, 10, 10, 11, 25, 26, 70] {
                if let Some(closing) = windows.closing(before, Some(watermark)) {
                    assert_eq!(closing.after, closed);
                    assert!(closed.is_none_or(|closed| closed < closing.last));
                    closed = Some(closing.last);
                }
                before = Some(watermark);
            }
            assert_eq!(closed, Some(windows.last_closed(70)));
        }
        assert_eq!(TUMBLING.closing(None, None), None);
    }

    #[test]
    fn rows_are_needed_until_their_last_window_closes() {
        for watermark in -30..60 {
            for time in -30..60_i64 {
                let last_window = time.div_euclid(SLIDING.slide) * SLIDING.slide;
                let is_open = last_window + SLIDING.size > watermark;
                assert_eq!(SLIDING.first_open(watermark) <= time, is_open);
            }
        }
    }
}
