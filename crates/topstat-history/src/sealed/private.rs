// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Columns that sealed files have without a value, shortened or hashed, since sealed files are copied to other hosts. Logs have all
//! values, and stay on the host.

use std::net::IpAddr;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use topstat_model::{Column, ColumnKind, Field, Reach, Snapshot};

use super::rows::{About, AboutColumn};

/// The bits of an IPv4 address that [`Hide::Cut`] keeps.
const IPV4_BITS: u32 = 24;
/// The bits of an IPv6 address that [`Hide::Cut`] keeps: a site has at least as many.
const IPV6_BITS: u32 = 48;
/// The operation on the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hide {
    /// No value is left.
    Drop,
    /// The first 64 bits of HMAC-SHA256 over the value's text: hexadecimal digits, or in a column of numbers a number of 63 bits.
    /// Equal values have equal hashes wherever the key is equal. Two of a million values have equal ones with a probability below 1 in
    /// 30 million.
    Hash,
    /// The network of an address: its first 24 bits of IPv4, 48 of IPv6. No value that is not an address is left.
    Cut,
}

/// The columns that a rule applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// All columns with addresses.
    Addresses,
    /// The columns with this name, of all tables.
    Named(String),
}

/// The rules for the columns of all tables. Without rules, sealed files have all values.
#[derive(Clone, Default)]
pub struct Privacy {
    rules: Vec<(Which, Hide)>,
    key: Vec<u8>,
}

impl Privacy {
    /// The rule of a column's name takes precedence over [`Which::Addresses`]; of two rules for one column, the last one. `key` is
    /// the secret of the hashes.
    pub fn new(rules: Vec<(Which, Hide)>, key: &[u8]) -> Self {
        Self { rules, key: key.to_owned() }
    }

    fn rule(&self, column: &Column) -> Option<Hide> {
        let last = |of: &dyn Fn(&Which) -> bool| self.rules.iter().rev().find(|(which, _)| of(which));
        let named = last(&|which| matches!(which, Which::Named(name) if *name == column.name));
        let is_address = column.kind == ColumnKind::Address;
        named.or_else(|| last(&|which| *which == Which::Addresses && is_address)).map(|(_, hide)| *hide)
    }

    /// Applies the rules to all rows.
    pub(crate) fn apply(&self, snapshot: &mut Snapshot) {
        for (place, hide) in snapshot.columns.iter().enumerate().filter_map(|(at, c)| Some((at, self.rule(c)?))) {
            for field in snapshot.rows.iter_mut().filter_map(|row| row.object.get_mut(place)) {
                *field = self.hidden(std::mem::take(field), hide);
            }
        }
    }

    fn hidden(&self, field: Field, hide: Hide) -> Field {
        match (hide, field) {
            (Hide::Cut, Field::Ip(ip)) => Field::Text(network(ip)),
            (Hide::Drop | Hide::Cut, _) => Field::None,
            (Hide::Hash, Field::Ip(ip)) => Field::Text(format!("{:016x}", self.hash(&ip.to_canonical().to_string()))),
            (Hide::Hash, Field::Text(text)) => Field::Text(format!("{:016x}", self.hash(&text))),
            // Files have signed numbers.
            (Hide::Hash, Field::U64(number)) => Field::U64(self.hash(&number.to_string()) >> 1),
            (Hide::Hash, Field::Negative(number)) => Field::U64(self.hash(&number.to_string()) >> 1),
            // Whether there is a value is all that these say.
            (Hide::Hash, field @ (Field::True | Field::None)) => field,
        }
    }

    fn hash(&self, text: &str) -> u64 {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("a key may have any length");
        mac.update(text.as_bytes());
        let whole = mac.finalize().into_bytes();
        u64::from_be_bytes(std::array::from_fn(|at| whole[at]))
    }

    /// Objects that differed in a column of the key may be equal now: the key of the file is a part of the key of the table.
    pub(crate) fn widen(&self, about: &mut About) {
        let columns: Vec<Column> = about.columns.iter().map(AboutColumn::column).collect();
        let is_hidden = |name: &String| {
            let rule = columns.iter().find(|column| column.name == *name).and_then(|column| self.rule(column));
            matches!(rule, Some(Hide::Drop | Hide::Cut))
        };
        if let Some(key) = about.key.as_mut().filter(|key| key.columns.iter().any(is_hidden)) {
            key.reach = Reach::Part;
        }
    }
}

/// The network of an address, as `10.1.2.0/24`.
fn network(ip: IpAddr) -> String {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let mask = u32::MAX << (u32::BITS - IPV4_BITS);
            format!("{}/{IPV4_BITS}", std::net::Ipv4Addr::from(u32::from(ip) & mask))
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX << (u128::BITS - IPV6_BITS);
            format!("{}/{IPV6_BITS}", std::net::Ipv6Addr::from(u128::from(ip) & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(field: impl Into<Field>, hide: Hide, key: &[u8]) -> Field {
        Privacy::new(vec![], key).hidden(field.into(), hide)
    }

    fn ip(text: &str) -> Field {
        Field::Ip(text.parse().unwrap())
    }

    #[test]
    fn addresses_are_cut_to_their_network() {
        for (address, network) in [
            ("10.1.2.3", "10.1.2.0/24"),
            ("::ffff:10.1.2.3", "10.1.2.0/24"),
            ("2001:db8:1:2::3", "2001:db8:1::/48"),
            ("::1", "::/48"),
        ] {
            assert_eq!(hidden(ip(address), Hide::Cut, b""), Field::Text(network.to_owned()));
        }
        for other in [Field::from("name"), Field::U64(7), Field::True] {
            assert_eq!(hidden(other, Hide::Cut, b""), Field::None);
        }
    }

    #[test]
    fn hashes_depend_on_the_value_and_the_key_alone() {
        // printf 10.1.2.3 | openssl dgst -sha256 -hmac key
        let known = Field::Text("a5c9c80d2605782c".to_owned());
        assert_eq!(hidden(ip("10.1.2.3"), Hide::Hash, b"key"), known);
        assert_eq!(hidden(ip("::ffff:10.1.2.3"), Hide::Hash, b"key"), known);
        assert_eq!(hidden("10.1.2.3", Hide::Hash, b"key"), known);
        assert_ne!(hidden(ip("10.1.2.4"), Hide::Hash, b"key"), known);
        assert_ne!(hidden(ip("10.1.2.3"), Hide::Hash, b"other"), known);
        let Field::U64(number) = hidden(Field::U64(7), Hide::Hash, b"key") else { panic!("a number stays a number") };
        assert!(i64::try_from(number).is_ok() && number != 7);
        assert_eq!(hidden(Field::None, Hide::Hash, b"key"), Field::None);
    }

    #[test]
    fn the_name_of_a_column_takes_precedence() {
        let named = |name: &str| Which::Named(name.to_owned());
        let rules = vec![
            (named("raddr"), Hide::Hash),
            (Which::Addresses, Hide::Cut),
            (named("pid"), Hide::Cut),
            (named("pid"), Hide::Drop),
        ];
        let privacy = Privacy::new(rules, b"key");
        let rule = |name: &'static str, kind| privacy.rule(&Column { name: name.into(), kind, optional: false });
        assert_eq!(rule("raddr", ColumnKind::Address), Some(Hide::Hash));
        assert_eq!(rule("laddr", ColumnKind::Address), Some(Hide::Cut));
        assert_eq!(rule("pid", ColumnKind::Pid), Some(Hide::Drop));
        assert_eq!(rule("comm", ColumnKind::Text), None);
    }
}
