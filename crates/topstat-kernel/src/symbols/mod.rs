// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of the running kernel, ordered by address.

mod names;

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, LazyLock};

use crate::Error;
pub use names::plain;

const KALLSYMS: &str = "/proc/kallsyms";

/// The name of the function at this address of the running kernel, and the offset in it: `vfs_read+0x1c`. `None`: no function is
/// there, or the kernel hides its addresses. The functions are read once, at the first call.
pub fn name(address: u64) -> Option<String> {
    static ALL: LazyLock<Symbols> = LazyLock::new(|| Symbols::read().unwrap_or_default());
    let symbol = ALL.at(address)?;
    let offset = address - symbol.address;
    Some(if offset == 0 { symbol.name.to_string() } else { format!("{}+{offset:#x}", symbol.name) })
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// The address of its first instruction.
    pub address: u64,
    /// Its name.
    pub name: Box<str>,
    /// Its module.
    pub module: Option<Arc<str>>,
}

/// The functions of a kernel, ordered by address. Of several names for one address, the plainest is kept.
#[derive(Debug, Default)]
pub struct Symbols {
    all: Vec<Symbol>,
    /// By name: the index of the first function with that name. Also by the name in the source.
    places: HashMap<Box<str>, usize>,
}

impl Symbols {
    /// Reads the functions of the running kernel. The result is empty if the kernel hides their addresses.
    ///
    /// # Errors
    /// When the list can't be read.
    pub fn read() -> Result<Self, Error> {
        let read = fs::read_to_string(KALLSYMS);
        let text = read.map_err(|e| Error::Kernel { what: format!("read {KALLSYMS}"), why: e.to_string() })?;
        Ok(Self::parse(&text))
    }

    /// Parses a text in the form of `/proc/kallsyms`.
    pub fn parse(text: &str) -> Self {
        let mut modules: HashMap<&str, Arc<str>> = HashMap::new();
        let mut all: Vec<Symbol> = Vec::new();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else { continue };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            // T and W: global and weak text. Padding before a function is no part of it.
            if address == 0 || !matches!(kind, "t" | "T" | "w" | "W") || is_padding(name) {
                continue;
            }
            let module = words.next().map(|word| word.trim_matches(['[', ']'])).map(|name| {
                let known = modules.entry(name).or_insert_with(|| name.into());
                Arc::clone(known)
            });
            all.push(Symbol { address, name: name.into(), module });
        }
        all.sort_by(|a, b| a.address.cmp(&b.address).then_with(|| oddity(&a.name).cmp(&oddity(&b.name))));
        all.dedup_by_key(|symbol| symbol.address);
        let mut places = HashMap::with_capacity(all.len());
        for (place, symbol) in all.iter().enumerate() {
            places.entry(symbol.name.clone()).or_insert(place);
        }
        for (place, symbol) in all.iter().enumerate() {
            places.entry(plain(&symbol.name).into()).or_insert(place);
        }
        Self { all, places }
    }

    /// Whether there are no functions, because the kernel hides their addresses.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All functions.
    pub fn iter(&self) -> impl Iterator<Item = &Symbol> + Clone {
        self.all.iter()
    }

    /// The function that contains an address.
    pub fn at(&self, address: u64) -> Option<&Symbol> {
        let behind = self.all.partition_point(|symbol| symbol.address <= address);
        let symbol = &self.all[behind.checked_sub(1)?];
        (!is_end(&symbol.name)).then_some(symbol)
    }

    /// A function with this name.
    pub fn named(&self, name: &str) -> Option<&Symbol> {
        self.places.get(name).map(|place| &self.all[*place])
    }

    /// The functions of the same module behind (or before) a function with this name, the nearest first.
    pub fn around(&self, name: &str, behind: bool) -> impl Iterator<Item = &Symbol> {
        let place = self.places.get(name).copied();
        let step = move |at: usize| if behind { at.checked_add(1) } else { at.checked_sub(1) };
        let module = place.and_then(|place| self.all[place].module.clone());
        let places = std::iter::successors(place.and_then(step), move |at| step(*at));
        let symbols = places.map_while(|at| self.all.get(at));
        symbols.take_while(move |symbol| symbol.module == module && !is_end(&symbol.name))
    }
}

/// Symbols that stand before a function, for tracers and for CFI.
fn is_padding(name: &str) -> bool {
    name.starts_with("__pfx_") || name.starts_with("__cfi_")
}

/// The linker's names for the end of text: no function is behind them.
fn is_end(name: &str) -> bool {
    matches!(name, "_etext" | "_einittext" | "__end_rodata" | "__entry_text_end" | "__irqentry_text_end")
}

/// The order of several names of one address: the plainest comes first, and is shown.
fn oddity(name: &str) -> (bool, usize) {
    (is_end(name) || matches!(name, "_text" | "_stext"), name.bytes().take_while(|byte| *byte == b'_').count())
}

#[cfg(test)]
mod tests {
    use super::Symbols;

    const TEXT: &str = "\
ffffffff81000000 T _text
ffffffff81000000 t start
ffffffff81000010 t __pfx_memcpy
ffffffff81000020 T __memcpy
ffffffff81000020 W memcpy
ffffffff81000040 t tcp_ack
ffffffff81000060 T _etext
ffffffff82000000 D data
ffffffffc0000000 t veth_xmit\t[veth]
ffffffffc0000040 t veth_poll\t[veth]
ffffffffc0001000 t bpf_prog_123\t[bpf]
";

    #[test]
    fn an_address_is_in_the_function_before_it() {
        let symbols = Symbols::parse(TEXT);
        let name = |address| symbols.at(address).map(|symbol| &*symbol.name);
        for (address, found) in [
            (0xffff_ffff_8000_0000, None),
            (0xffff_ffff_8100_0005, Some("start")),
            (0xffff_ffff_8100_0030, Some("memcpy")),
            (0xffff_ffff_8100_0040, Some("tcp_ack")),
            (0xffff_ffff_8100_0070, None),
            (0xffff_ffff_c000_0050, Some("veth_poll")),
        ] {
            assert_eq!(name(address), found, "{address:x}");
        }
        let source = Symbols::parse("10 t __do_it.constprop.0\n20 t do_it2.part.0\n30 T do_it2\n");
        assert_eq!(source.named("do_it").map(|symbol| symbol.address), Some(0x10));
        assert_eq!(source.named("do_it2").map(|symbol| symbol.address), Some(0x30));
        assert_eq!(symbols.named("veth_poll").and_then(|s| s.module.as_deref()), Some("veth"));
    }

    #[test]
    fn those_around_are_of_the_same_module() {
        let symbols = Symbols::parse(TEXT);
        let around = |name, behind| symbols.around(name, behind).map(|s| &*s.name).collect::<Vec<_>>();
        assert_eq!(around("memcpy", true), ["tcp_ack"]);
        assert_eq!(around("tcp_ack", false), ["memcpy", "start"]);
        assert_eq!(around("veth_xmit", true), ["veth_poll"]);
        assert_eq!(around("veth_xmit", false), [""; 0]);
        assert_eq!(around("nothing", true), [""; 0]);
    }

    #[test]
    fn addresses_that_are_hidden_are_none() {
        assert!(Symbols::parse("0000000000000000 T tcp_ack\n").is_empty());
        assert!(Symbols::parse("not a list\n\n").is_empty());
    }
}
