//! Numbers as a person reads them: the report's units for the types of the shell.

use std::time::Duration;

use skewer::diagnosis::units;

/// `1234567` → `1,234,567`.
pub fn count(n: u64) -> String {
    units::count(signed(n.into()))
}

/// `1 row`, `2,103 rows`.
pub fn counted(n: u64, noun: &str) -> String {
    units::counted(signed(n.into()), noun)
}

/// Three significant digits: `12.3 ms`, `4.56 s`, `2 min 05 s`.
pub fn duration(time: Duration) -> String {
    units::duration(signed(time.as_nanos()))
}

/// Bytes in binary units: `93.5 MiB`.
pub fn bytes(n: u64) -> String {
    units::bytes(signed(n.into()))
}

fn signed(n: u128) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_writes_numbers_as_reports_do() {
        assert_eq!(count(1_000), "1,000");
        assert_eq!(counted(1, "row"), "1 row");
        assert_eq!(duration(Duration::from_secs(125)), "2 min 05 s");
        assert_eq!(
            duration(Duration::MAX),
            duration(Duration::from_nanos(i64::MAX as u64))
        );
        assert_eq!(bytes(98_000_000), "93.5 MiB");
    }
}
