//! What statements have in common that differ only in literals and white space.

use std::fmt::{self, Write as _};
use std::hash::Hasher;

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

/// A number, as 16 hexadecimal digits, that is the same for statements which differ only in
/// literals, white space, comments and the case of unquoted words.
///
/// ```
/// use skewer_sql::fingerprint;
///
/// assert_eq!(fingerprint("SELECT a FROM t WHERE b = 1"), fingerprint("select A\nfrom t where b = 27"));
/// assert_ne!(fingerprint("SELECT a FROM t"), fingerprint("SELECT b FROM t"));
/// ```
pub fn fingerprint(sql: &str) -> String {
    let mut hash = Fnv::default();
    match Tokenizer::new(&GenericDialect {}, sql).tokenize() {
        Ok(tokens) => {
            for token in tokens {
                match token {
                    Token::Whitespace(_) | Token::SemiColon | Token::EOF => continue,
                    Token::Number(..)
                    | Token::SingleQuotedString(_)
                    | Token::NationalStringLiteral(_)
                    | Token::EscapedStringLiteral(_)
                    | Token::HexStringLiteral(_)
                    | Token::DollarQuotedString(_) => hash.write(b"?"),
                    Token::Word(word) if word.quote_style.is_none() => hash.lower_case(&word.value),
                    other => {
                        // Hashing never fails.
                        let _ = write!(hash, "{other}");
                    }
                }
                hash.write(b" ");
            }
        }
        Err(_) => hash.write(sql.as_bytes()),
    }
    format!("{:016x}", hash.finish())
}

/// FNV-1a: stable across versions and machines, which the standard library's hash is not.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn lower_case(&mut self, text: &str) {
        match text.is_ascii() {
            true => text
                .bytes()
                .for_each(|byte| self.write_u8(byte.to_ascii_lowercase())),
            false => self.write(text.to_lowercase().as_bytes()),
        }
    }
}

impl fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.write(text.as_bytes());
        Ok(())
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It is compared with what other versions have written.
    #[test]
    fn the_number_of_a_statement_stays() {
        let sql = "SELECT \"A b\", Straße FROM t -- all\nWHERE b <= 3 AND C = 'x';";
        // FNV-1a of `select "A b" , straße from t where b <= ? and c = ? `.
        assert_eq!(fingerprint(sql), "50953d8c4e1f0ade");
    }
}
