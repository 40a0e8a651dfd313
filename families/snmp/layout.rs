// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds each counter: its array by the kernel's types (BTF), and its number in the array by the kernel's lists of names.

use std::sync::Arc;

use libbpf_rs::btf::types::{Array, Enum, MemberAttr, Ptr, Struct};
use libbpf_rs::btf::{Btf, BtfType};
use libbpf_rs::{HasSize as _, ReferencesType as _};
use topstat_model::counters::CounterKind;

use super::files::Shown;
use super::lists::{Element, Memory};
use super::protocols::{Protocol, TYPES, is_gauge};

/// An array of a holder: a namespace or a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The field that points to the array.
    pub field: &'static str,
    /// The index of that pointer among the holder's pointers.
    pub pointer: usize,
    /// The number of its counters, of 8 bytes each.
    pub words: usize,
    /// Whether all CPUs share it.
    pub shared: bool,
    /// A bit that connects two arrays: the messages of a protocol, and these messages by type. 0: no group.
    pub group: u8,
    /// The indexes of the counters of all messages, received and sent, if the array has them.
    pub messages: Option<(usize, usize)>,
}

impl Block {
    /// Whether the array is read only if messages of its group were counted.
    pub fn on_demand(&self) -> bool {
        self.group != 0 && self.messages.is_none()
    }
}

/// The place of a counter among the words that are read of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Among the words of each CPU.
    Cpu(usize),
    /// Among the words that all CPUs share.
    Shared(usize),
    /// Among the messages by type. They are read only if the group's messages were counted; else all are 0.
    ByType {
        /// The index among the words that all CPUs share.
        word: usize,
        /// See [`Block::group`].
        group: u8,
    },
}

/// A counter.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its standard name.
    pub name: Arc<str>,
    /// Count or gauge.
    pub kind: CounterKind,
    /// Its place.
    pub at: At,
    /// The counter is shown only if it is not 0, as in `/proc`.
    pub if_any: bool,
}

/// The places of all counters of a holder.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// The arrays that are read. Their words come one after the other.
    pub blocks: Vec<Block>,
    /// The counters of each protocol.
    pub protocols: Vec<(&'static str, Vec<Place>)>,
    /// Counters that `/proc` has, and that were not found.
    pub unknown: Vec<String>,
}

/// The kernel's types.
pub struct Types {
    btf: Btf<'static>,
}

/// The kind of a counter in `/proc`.
pub fn kind(name: &str) -> CounterKind {
    if is_gauge(name) { CounterKind::Gauge } else { CounterKind::Count }
}

impl Types {
    /// The types of the running kernel.
    ///
    /// # Errors
    /// The reason why the types can't be read.
    pub fn read() -> Result<Self, String> {
        Btf::from_vmlinux().map(|btf| Self { btf }).map_err(|e| format!("the kernel's types can't be read: {e}"))
    }

    /// The size of a structure, in bytes.
    pub fn size(&self, structure: &str) -> Option<usize> {
        self.btf.type_by_name::<Struct<'_>>(structure).map(|structure| structure.size())
    }

    /// The offset of a field in a structure, and the field's type.
    fn field(&self, structure: &str, field: &str) -> Option<(usize, BtfType<'_>)> {
        let structure: Struct<'_> = self.btf.type_by_name(structure)?;
        let member = structure.iter().find(|member| member.name.is_some_and(|name| name == field))?;
        let MemberAttr::Normal { offset } = member.attr else { return None };
        Some((offset as usize / 8, self.btf.type_by_id(member.ty)?))
    }

    /// The offsets of the fields of `struct snmp_mib`.
    pub fn element(&self) -> Option<Element> {
        let structure = "snmp_mib";
        let at = |field| self.field(structure, field).map(|(offset, _)| offset);
        Some(Element { size: self.size(structure)?, name: at("name")?, entry: at("entry")? })
    }

    /// The array that a field in a structure of pointers points to. `None`: this kernel does not have it.
    fn block(&self, structure: &str, field: &'static str, shared: bool) -> Option<Block> {
        let (offset, pointer) = self.field(structure, field)?;
        let target = Ptr::try_from(pointer.skip_mods_and_typedefs()).ok()?.referenced_type().skip_mods_and_typedefs();
        let target = Struct::try_from(target).ok()?;
        let counters = target.iter().find(|member| member.name.is_some_and(|name| name == "mibs"))?;
        let array = self.btf.type_by_id::<Array<'_>>(counters.ty)?;
        let (pointer, words) = (offset / size_of::<u64>(), array.capacity());
        Some(Block { field, pointer, words, shared, group: 0, messages: None })
    }

    /// The value of a constant in an enumeration.
    fn constant(&self, wanted: &str) -> Option<usize> {
        self.btf.type_by_kind::<Enum<'_>>().find_map(|constants| {
            let constant = constants.iter().find(|constant| constant.name.is_some_and(|name| name == wanted))?;
            usize::try_from(constant.value).ok()
        })
    }

    /// The number of a counter that no list has: `InMsgs` is `ICMP_MIB_INMSGS`, `InCsumErrors` is `ICMP_MIB_CSUMERRORS`.
    fn number(&self, prefix: &str, name: &str) -> Option<usize> {
        let bare = name.strip_prefix("In").or_else(|| name.strip_prefix("Out")).unwrap_or(name);
        [name, bare].iter().find_map(|name| self.constant(&format!("{prefix}{}", name.to_uppercase())))
    }
}

/// The holders whose arrays are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    Namespaces,
    Devices,
}

impl Of {
    /// The structure of pointers to arrays.
    pub fn pointers(self) -> &'static str {
        match self {
            Self::Namespaces => "netns_mib",
            Self::Devices => "ipv6_devstat",
        }
    }

    /// The fields of a protocol's arrays: its counters, with whether CPUs share them, and its messages by type.
    fn arrays(self, protocol: &Protocol) -> (Option<(&'static str, bool)>, Option<&'static str>) {
        match self {
            Self::Namespaces => (Some((protocol.array, false)), protocol.types.map(|types| types.array)),
            Self::Devices => (protocol.device, protocol.types.and_then(|types| types.device)),
        }
    }
}

impl Layout {
    /// The layout of the counters in `/proc`, in the kernel's arrays.
    pub fn of_arrays(of: Of, shown: &Shown, types: &Types, memory: &Memory, element: Element) -> Self {
        let mut layout = Self::default();
        let wanted: Vec<Vec<&str>> =
            shown.iter().map(|(_, counters)| counters.iter().map(|(name, _)| name.as_str()).collect()).collect();
        let lists = memory.lists(&wanted, element);
        for ((protocol, counters), entries) in shown.iter().zip(lists) {
            let (array, by_type) = of.arrays(protocol);
            let array = array.and_then(|(field, shared)| layout.add(types, of, field, shared));
            let by_type = by_type.and_then(|field| layout.add(types, of, field, true));
            layout.group(types, protocol, array.as_ref(), by_type.as_ref());
            let by_type = by_type.and_then(|block| layout.blocks.iter().find(|own| own.field == block.field).cloned());
            let mut places = Vec::new();
            for (index, (name, _)) in counters.iter().enumerate() {
                let listed = entries.get(index).copied();
                // Types come before constants: the kernel still has constants of types that it now counts by type.
                let by_type = protocol.type_of(name).zip(by_type.as_ref()).filter(|_| listed.is_none());
                let at = match by_type {
                    Some((number, by_type)) => layout.place(by_type, number),
                    None => listed
                        .or_else(|| types.number(protocol.numbers?, name))
                        .and_then(|number| layout.place(array.as_ref()?, number)),
                };
                match at {
                    _ if is_by_number(protocol, name) => {}
                    Some(at) => places.push(Place { name: name.as_str().into(), kind: kind(name), at, if_any: false }),
                    None => layout.unknown.push(format!("snmp_{}/{name}", protocol.name)),
                }
            }
            if let Some(array) = &by_type {
                let numbered = protocol.types_by_number().enumerate();
                places.extend(numbered.filter_map(|(number, name)| {
                    let at = layout.place(array, number)?;
                    Some(Place { name: name.into(), kind: CounterKind::Count, at, if_any: true })
                }));
            }
            layout.protocols.push((protocol.name, places));
        }
        layout
    }

    /// The layout of the counters in `/proc`, one after the other.
    pub fn of_files(shown: &Shown) -> Self {
        let mut layout = Self::default();
        let mut words = 0;
        let mut next = || {
            words += 1;
            At::Shared(words - 1)
        };
        for (protocol, counters) in shown {
            let names = counters.iter().map(|(name, _)| name).filter(|name| !is_by_number(protocol, name));
            let mut places: Vec<Place> = names
                .map(|name| Place { name: name.as_str().into(), kind: kind(name), at: next(), if_any: false })
                .collect();
            places.extend(protocol.types_by_number().map(|name| Place {
                name: name.into(),
                kind: CounterKind::Count,
                at: next(),
                if_any: true,
            }));
            layout.protocols.push((protocol.name, places));
        }
        layout.blocks.push(Block { field: "", pointer: 0, words, shared: true, group: 0, messages: None });
        layout
    }

    /// The places of these counters, by protocol and name. Counters that do not exist are left out.
    pub fn find(&self, names: &[(&str, &str)]) -> Vec<At> {
        let find = |(protocol, name): &(&str, &str)| {
            let (_, places) = self.protocols.iter().find(|(known, _)| known == protocol)?;
            Some(places.iter().find(|place| *place.name == **name)?.at)
        };
        names.iter().filter_map(find).collect()
    }

    /// Adds an array, unless it was added before.
    fn add(&mut self, types: &Types, of: Of, field: &'static str, shared: bool) -> Option<Block> {
        if let Some(block) = self.blocks.iter().find(|block| block.field == field) {
            return Some(block.clone());
        }
        let block = types.block(of.pointers(), field, shared)?;
        self.blocks.push(block.clone());
        Some(block)
    }

    /// Makes the array of a protocol's messages by type be read only if any messages were counted, provided that the counters of
    /// all messages are known.
    fn group(&mut self, types: &Types, protocol: &Protocol, array: Option<&Block>, by_type: Option<&Block>) {
        let bit = 1 << self.blocks.iter().filter(|block| block.on_demand()).count();
        let messages = protocol.types.and_then(|by_type| {
            let number = |name| types.constant(name).filter(|number| *number > 0);
            Some((number(by_type.messages.0)?, number(by_type.messages.1)?))
        });
        let (Some(messages), Some(array), Some(by_type)) = (messages, array, by_type) else { return };
        for block in &mut self.blocks {
            if block.field == array.field {
                (block.group, block.messages) = (bit, Some(messages));
            } else if block.field == by_type.field {
                block.group = bit;
            }
        }
    }

    /// The number of words in all arrays that CPUs share, or in all arrays that they don't share.
    pub fn words(&self, shared: bool) -> usize {
        self.blocks.iter().filter(|block| block.shared == shared).map(|block| block.words).sum()
    }

    /// The place of an array's counter.
    fn place(&self, array: &Block, number: usize) -> Option<At> {
        if number >= array.words {
            return None;
        }
        let same = self.blocks.iter().filter(|block| block.shared == array.shared);
        let before: usize = same.take_while(|block| block.field != array.field).map(|block| block.words).sum();
        let word = before + number;
        Some(match array.shared {
            true if array.on_demand() => At::ByType { word, group: array.group },
            true => At::Shared(word),
            false => At::Cpu(word),
        })
    }
}

/// Whether a name belongs to a type by number. `/proc` has only the types that were counted; a layout has all.
fn is_by_number(protocol: &Protocol, name: &str) -> bool {
    const _: () = assert!(TYPES == 256);
    protocol.types.is_some() && name.contains("Type") && protocol.type_of(name).is_some()
}
