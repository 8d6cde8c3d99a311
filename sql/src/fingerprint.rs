//! What statements have in common that differ only in literals and white space.

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
                    Token::Word(word) if word.quote_style.is_none() => {
                        hash.write(word.value.to_lowercase().as_bytes());
                    }
                    other => hash.write(other.to_string().as_bytes()),
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
