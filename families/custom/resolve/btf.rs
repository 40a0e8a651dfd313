// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arguments of BTF tracepoints, and paths through the kernel's types that begin at an argument: `skb.dev.name`.
//!
//! Each pointer on the way ends a step of the program. Structures within structures, and elements of arrays, only move
//! the end of the current step.

use std::collections::{BTreeMap, HashMap};

use libbpf_rs::btf::types::{Array, Composite, FuncProto, MemberAttr};
use libbpf_rs::btf::{Btf, BtfKind, BtfType, TypeId};

use super::abi;
use super::list;
use super::meaning;
use super::similar;
use super::system::System;
use super::types::{Simple, describe, is_text, simple, size_of};
use super::{Field, Format, Listed, Part, for_people};

/// The name that the type of a tracepoint's function has in front of the name of the tracepoint.
const TYPEDEF: &str = "btf_trace_";
/// The name that the function which calls the programs of a tracepoint has in front of it. Its parameters have names.
const FUNCTION: &str = "__traceiter_";
/// Nested structures without a name at most: the kernel has few.
const NESTED: u32 = 16;
/// Members in one message at most.
const MEMBERS: usize = 40;

/// The arguments of a BTF tracepoint.
pub struct Arguments<'s> {
    btf: &'s Btf<'static>,
    arguments: Vec<(String, TypeId)>,
}

/// A type of the kernel by its name. Types of other kinds may have the name, too.
pub fn find<'s>(btf: &'s Btf<'static>, kind: BtfKind, name: &str) -> Option<BtfType<'s>> {
    if name.contains('\0') {
        return None;
    }
    let first = btf.type_by_name::<BtfType>(name)?;
    if first.kind() == kind {
        return Some(first);
    }
    btf.type_by_kind::<BtfType>().find(|ty| ty.kind() == kind && ty.name().is_some_and(|found| found == name))
}

/// The types that describe one tracepoint.
pub struct Tracepoint<'s> {
    typedef: BtfType<'s>,
    function: Option<BtfType<'s>>,
}

/// All tracepoints by their names. One look through all types takes as long as five searches for a name.
pub fn tracepoints<'s>(btf: &'s Btf<'static>) -> BTreeMap<String, Tracepoint<'s>> {
    let (mut typedefs, mut functions) = (Vec::new(), HashMap::new());
    for ty in btf.type_by_kind::<BtfType>() {
        let Some(name) = ty.name().and_then(|name| name.to_str()) else { continue };
        match ty.kind() {
            BtfKind::Typedef => typedefs.extend(name.strip_prefix(TYPEDEF).map(|name| (name, ty))),
            BtfKind::Func => functions.extend(name.strip_prefix(FUNCTION).map(|name| (name, ty))),
            _ => {}
        }
    }
    let tracepoint =
        |(name, typedef): (&str, _)| (name.to_owned(), Tracepoint { typedef, function: functions.get(name).copied() });
    typedefs.into_iter().map(tracepoint).collect()
}

/// Names and types of a function's parameters. A parameter without a name is called by its number, from 0.
pub fn parameters(proto: &FuncProto, skipped: usize) -> Vec<(String, TypeId)> {
    let name = |i: usize| proto.get(i).and_then(|p| p.name.map(|name| name.to_string_lossy().into_owned()));
    (skipped..proto.len())
        .filter_map(|i| Some((name(i).unwrap_or_else(|| format!("arg{}", i - skipped)), proto.get(i)?.ty)))
        .collect()
}

/// The number in `arg0`.
pub fn numbered(name: &str) -> Option<usize> {
    name.strip_prefix("arg").filter(|number| number.len() == 1 || !number.starts_with('0'))?.parse().ok()
}

impl<'s> Arguments<'s> {
    /// Looks up the arguments of a tracepoint.
    pub fn open(system: &'s System, name: &str) -> Result<Self, String> {
        let btf = system.btf()?;
        let typedef = find(btf, BtfKind::Typedef, &format!("{TYPEDEF}{name}"));
        let function = find(btf, BtfKind::Func, &format!("{FUNCTION}{name}"));
        let tracepoint = typedef.map(|typedef| Tracepoint { typedef, function });
        tracepoint.and_then(|tracepoint| Self::of(btf, &tracepoint)).ok_or_else(|| list::no_btf_event(btf, name))
    }

    /// The arguments of a tracepoint. The first parameter of its function is the program's own.
    pub fn of(btf: &'s Btf<'static>, tracepoint: &Tracepoint<'s>) -> Option<Self> {
        let pointer = tracepoint.typedef.next_type()?;
        let proto = FuncProto::try_from(pointer.next_type()?).ok()?;
        let named = tracepoint.function.and_then(|function| FuncProto::try_from(function.next_type()?).ok());
        let named = named.filter(|named| named.len() == proto.len());
        Some(Self { btf, arguments: parameters(&named.unwrap_or(proto), 1) })
    }

    pub fn fields(&self) -> Vec<Listed> {
        let list = |(name, ty): &(String, TypeId)| {
            let ty = self.btf.type_by_id::<BtfType>(*ty);
            let kind = ty.as_ref().map_or_else(String::new, describe);
            let pointed = ty.map(|ty| ty.skip_mods_and_typedefs()).filter(|ty| ty.kind() == BtfKind::Ptr);
            let pointed = pointed.and_then(|ty| ty.next_type()).map(|ty| ty.skip_mods_and_typedefs());
            let meaning = match pointed {
                Some(ty) if ty.is_composite() => Some(format!("members: {name}.MEMBER")),
                Some(ty) if is_text(&ty) && ty.kind() != BtfKind::Void => Some(format!("text: str.{name}")),
                _ => self.field(name, &[], false).and_then(|field| match field {
                    Ok(field) => for_people(field.format).map(str::to_owned),
                    Err(why) => Some(why),
                }),
            };
            Listed::new(name, &kind, meaning.as_deref())
        };
        self.arguments.iter().map(list).collect()
    }

    /// An argument, or the end of a path that begins at it; none if no argument has this name.
    pub fn field(&self, first: &str, rest: &[Part], is_text: bool) -> Option<Result<Field, String>> {
        let by_name = || self.arguments.iter().position(|(name, _)| name == first);
        let at = by_name().or_else(|| numbered(first).filter(|number| *number < self.arguments.len()))?;
        let ty = self.btf.type_by_id::<BtfType>(self.arguments[at].1)?;
        let mut walk = Walk { btf: self.btf, ty, name: first.to_owned(), steps: Vec::new(), offset: None, bits: None };
        Some(rest.iter().try_for_each(|part| walk.go(part)).and_then(|()| walk.end(at, is_text)))
    }
}

/// A place on a path.
struct Walk<'s> {
    btf: &'s Btf<'static>,
    /// The type of the value at the place.
    ty: BtfType<'s>,
    /// The name of the member that the path has come to.
    name: String,
    /// The steps that ended with a pointer, in bytes.
    steps: Vec<u64>,
    /// Bytes from the last pointer to the value; none for the argument itself.
    offset: Option<u64>,
    /// Of a bit field: the bits of the byte at `offset` that are in front of it, and its width.
    bits: Option<(u8, u8)>,
}

impl<'s> Walk<'s> {
    fn go(&mut self, part: &Part) -> Result<(), String> {
        let ty = self.ty.skip_mods_and_typedefs();
        match part {
            Part::Index(index) => self.element(&ty, *index),
            Part::Name(name) => {
                let composite = if ty.kind() == BtfKind::Ptr { self.follow(&ty)? } else { ty };
                let found = Composite::try_from(composite).map_err(|_| {
                    let (before, what) = (&self.name, describe(&composite));
                    format!("is not possible: '{before}' is {what}, which has no members")
                })?;
                self.member(&found, name)
            }
        }
    }

    /// Follows a pointer to a structure.
    fn follow(&mut self, pointer: &BtfType<'s>) -> Result<BtfType<'s>, String> {
        self.steps.extend(self.offset);
        self.offset = Some(0);
        let to = pointer.next_type().map(|to| to.skip_mods_and_typedefs());
        let to = to.ok_or_else(|| format!("is not possible: the type of '{}' is not known", self.name))?;
        if to.kind() == BtfKind::Fwd {
            let (before, what) = (&self.name, describe(&to));
            return Err(format!("is not possible: '{before}' points to {what}, which the kernel does not describe"));
        }
        Ok(to)
    }

    fn member(&mut self, composite: &Composite<'s>, name: &str) -> Result<(), String> {
        let Some((bits, ty, width)) = member(self.btf, composite, name, 0) else {
            let what = describe(composite);
            return Err(format!(
                "is not possible: {what} has no member '{name}'{}",
                members(self.btf, composite, name)
            ));
        };
        let ty =
            self.btf.type_by_id(ty).ok_or_else(|| format!("is not possible: the type of '{name}' is not known"))?;
        self.bits = width.map(|width| ((bits % 8) as u8, width));
        self.move_to(bits / 8, ty, name.to_owned())
    }

    fn element(&mut self, ty: &BtfType<'s>, index: u32) -> Result<(), String> {
        let array = Array::try_from(*ty)
            .map_err(|_| format!("is not possible: '{}' is {}, which is no array", self.name, describe(ty)))?;
        if index as usize >= array.capacity() {
            let elements = array.capacity();
            return Err(format!("is behind the end of the array: '{}' has {elements} elements", self.name));
        }
        let element = array.contained_type();
        let size = size_of(&element).ok_or_else(|| format!("is not possible: {} has no size", describe(&element)))?;
        self.move_to(u64::from(index) * size as u64, element, self.name.clone())
    }

    fn move_to(&mut self, bytes: u64, ty: BtfType<'s>, name: String) -> Result<(), String> {
        let offset = self.offset.ok_or_else(|| format!("is not possible: '{}' is passed by value", self.name))?;
        (self.offset, self.ty, self.name) = (Some(offset + bytes), ty, name);
        Ok(())
    }

    /// The field at the end of the path.
    fn end(mut self, argument: usize, is_text: bool) -> Result<Field, String> {
        let mut found = self.found(is_text)?;
        if let (Some((before, width)), Some(offset)) = (self.bits, &mut self.offset) {
            let (size, below) = window(offset, before, width)?;
            found = found.in_bits(size, below, width);
        }
        self.steps.extend(self.offset);
        if self.steps.len() > abi::CUSTOM_STEPS as usize {
            let (steps, most) = (self.steps.len(), abi::CUSTOM_STEPS);
            return Err(format!("can't be read: it follows {steps} pointers, and at most {most} are possible"));
        }
        let mut field = found.at(argument as u16);
        field.field.steps = self.steps.len() as u8;
        for (to, step) in field.field.step.iter_mut().zip(&self.steps) {
            *to = u16::try_from(*step).map_err(|_| {
                format!("can't be read: a member on the way is {step} bytes behind its structure's beginning")
            })?;
        }
        Ok(field)
    }

    /// The field without its place.
    fn found(&mut self, wants_text: bool) -> Result<Field, String> {
        let not_an_address = || Err("is not possible: the field is not the address of a text".to_owned());
        self.enter_wrappings();
        let ty = self.ty.skip_mods_and_typedefs();
        match ty.kind() {
            BtfKind::Ptr if wants_text => {
                let to = ty.next_type().map(|to| to.skip_mods_and_typedefs());
                if to.is_some_and(|to| is_text(&to)) {
                    Ok(Field::text(abi::CUSTOM_PATH_TEXT))
                } else {
                    not_an_address()
                }
            }
            BtfKind::Array => self.array(&ty, wants_text),
            _ if wants_text => not_an_address(),
            BtfKind::Struct | BtfKind::Union => match Composite::try_from(ty) {
                Ok(found) if found.name().is_some_and(|name| name == "in6_addr") && self.offset.is_some() => {
                    Ok(Field::new(abi::CUSTOM_PATH_BYTES, 16, Format::Ipv6))
                }
                Ok(found) => Err(format!("is {}: name a member{}", describe(&ty), members(self.btf, &found, ""))),
                Err(_) => Err(format!("can't be read: it is {}", describe(&ty))),
            },
            _ => {
                let simple = simple(&self.ty)?;
                Ok(simple.field(&self.name, abi::CUSTOM_PATH))
            }
        }
    }

    /// Enters structures that are the wrapping of one number: `atomic_t`, `refcount_t`, `kuid_t`, `struct in_addr`.
    fn enter_wrappings(&mut self) {
        for _ in 0..NESTED {
            let Ok(composite) = Composite::try_from(self.ty.skip_mods_and_typedefs()) else { return };
            let Some(only) = composite.get(0).filter(|_| composite.len() == 1 && self.offset.is_some()) else { return };
            let (MemberAttr::Normal { offset: 0 }, Some(ty)) = (only.attr, self.btf.type_by_id::<BtfType>(only.ty))
            else {
                return;
            };
            if composite.name().is_some_and(|name| name == "in6_addr")
                || ty.skip_mods_and_typedefs().kind() == BtfKind::Array
            {
                return;
            }
            self.ty = ty;
            if let Some(name) = only.name.filter(|name| name.to_string_lossy().contains("addr")) {
                self.name = name.to_string_lossy().into_owned();
            }
        }
    }

    fn array(&self, ty: &BtfType<'s>, wants_text: bool) -> Result<Field, String> {
        let array = Array::try_from(*ty).map_err(|_| format!("can't be read: it is {}", describe(ty)))?;
        let (element, elements) = (array.contained_type(), array.capacity());
        if elements == 0 || self.offset.is_none() {
            return Err(format!("can't be read: the length of {} is not known", describe(ty)));
        }
        let size = u32::try_from(elements).unwrap_or(u32::MAX);
        let Ok(Simple { size: 1, is_char, .. }) = simple(&element) else {
            let example = if element.skip_mods_and_typedefs().is_composite() { "[0].MEMBER" } else { "[0]" };
            return Err(format!("is an array of {elements} elements: use {}{example} and following", self.name));
        };
        if is_char {
            return Ok(Field::new(abi::CUSTOM_PATH_CHARS, size, Format::Text));
        }
        if wants_text {
            return Err("is not possible: the field is not the address of a text".to_owned());
        }
        if size > super::KEPT {
            return Err(format!("is an array of {elements} bytes: use {}[0] and following", self.name));
        }
        Ok(Field::new(abi::CUSTOM_PATH_BYTES, size, meaning::of_bytes(&self.name, size)))
    }
}

/// The aligned bytes that hold a bit field: moves `offset` to them. Returns their number, and the bits in front of the field.
fn window(offset: &mut u64, before: u8, width: u8) -> Result<(u8, u8), String> {
    let first = *offset * 8 + u64::from(before);
    let fits = |size: &u64| first / 8 / size == (first + u64::from(width).max(1) - 1) / 8 / size;
    let size = [1, 2, 4, 8].into_iter().find(fits).ok_or("can't be read: the bit field is in two words")?;
    *offset -= *offset % size;
    Ok((size as u8, (first - *offset * 8) as u8))
}

/// The bits in front of a member, its type, and of a bit field its width. Members of structures without a name are members, too.
fn member(btf: &Btf, composite: &Composite, name: &str, nested: u32) -> Option<(u64, TypeId, Option<u8>)> {
    for member_of in (0..composite.len()).filter_map(|i| composite.get(i)) {
        let (offset, width) = match member_of.attr {
            MemberAttr::Normal { offset } => (offset, None),
            MemberAttr::BitField { offset, size } => (offset, Some(size)),
        };
        match member_of.name {
            Some(found) if found == name => return Some((offset.into(), member_of.ty, width)),
            Some(_) => {}
            None if nested < NESTED => {
                let inner = btf.type_by_id::<BtfType>(member_of.ty)?.skip_mods_and_typedefs();
                let inner = Composite::try_from(inner).ok();
                if let Some((bits, ty, width)) = inner.and_then(|inner| member(btf, &inner, name, nested + 1)) {
                    return Some((u64::from(offset) + bits, ty, width));
                }
            }
            None => {}
        }
    }
    None
}

fn collect(btf: &Btf, composite: &Composite, names: &mut Vec<String>, nested: u32) {
    for member in (0..composite.len()).filter_map(|i| composite.get(i)) {
        match (member.name, btf.type_by_id::<BtfType>(member.ty)) {
            (Some(name), _) => names.push(name.to_string_lossy().into_owned()),
            (None, Some(inner)) if nested < NESTED => {
                if let Ok(inner) = Composite::try_from(inner.skip_mods_and_typedefs()) {
                    collect(btf, &inner, names, nested + 1);
                }
            }
            (None, _) => {}
        }
    }
}

/// The end of a message that a structure has no such member.
fn members(btf: &Btf, composite: &Composite, name: &str) -> String {
    let mut names = Vec::new();
    collect(btf, composite, &mut names, 0);
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let perhaps = if name.is_empty() { String::new() } else { similar::perhaps(name, &all) };
    let shown = all[..all.len().min(MEMBERS)].join(", ");
    let more = if all.len() > MEMBERS { format!(" and {} more", all.len() - MEMBERS) } else { String::new() };
    format!("{perhaps}; it has {shown}{more}")
}
