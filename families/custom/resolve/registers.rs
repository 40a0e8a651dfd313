// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The registers at a probe, or at a sample of perf: arguments and return values of functions, and addresses.

use libbpf_rs::btf::types::FuncProto;
use libbpf_rs::btf::{BtfKind, BtfType, ReferencesType, TypeId};

use super::abi;
use super::btf::{find, numbered, parameters};
use super::system::System;
use super::types::{describe, simple, size_of};
use super::{Field, Format, Listed, Part, Place};

/// Offsets in `struct pt_regs`; `struct bpf_perf_event_data` has the period and the address behind these registers.
struct Offsets {
    arguments: [u16; 6],
    returned: u16,
    ip: u16,
    period: u16,
    address: u16,
}

/// System V ABI: `di`, `si`, `dx`, `cx`, `r8`, `r9`; `ax`; `ip`.
#[cfg(target_arch = "x86_64")]
const OFFSETS: Offsets =
    Offsets { arguments: [112, 104, 96, 88, 72, 64], returned: 80, ip: 128, period: 168, address: 176 };
/// Procedure call standard: `x0` to `x5`; `x0`; `pc`.
#[cfg(target_arch = "aarch64")]
const OFFSETS: Offsets = Offsets { arguments: [0, 8, 16, 24, 32, 40], returned: 0, ip: 256, period: 272, address: 280 };

const REGISTER: u32 = 8;

/// The offset in `struct pt_regs` of a register, by one of its names: `rdi`, `edi`, `di`, `dil`.
#[cfg(target_arch = "x86_64")]
pub fn register(name: &str) -> Option<u16> {
    const NAMED: [(u16, [&str; 4]); 9] = [
        (80, ["rax", "eax", "ax", "al"]),
        (40, ["rbx", "ebx", "bx", "bl"]),
        (88, ["rcx", "ecx", "cx", "cl"]),
        (96, ["rdx", "edx", "dx", "dl"]),
        (104, ["rsi", "esi", "si", "sil"]),
        (112, ["rdi", "edi", "di", "dil"]),
        (32, ["rbp", "ebp", "bp", "bpl"]),
        (152, ["rsp", "esp", "sp", "spl"]),
        (128, ["rip", "eip", "ip", ""]),
    ];
    /// From `r8` to `r15`.
    const NUMBERED: [u16; 8] = [72, 64, 56, 48, 24, 16, 8, 0];
    if let Some((at, _)) = NAMED.iter().find(|(_, names)| !name.is_empty() && names.contains(&name)) {
        return Some(*at);
    }
    let number: usize = name.strip_prefix('r')?.trim_end_matches(['d', 'w', 'b']).parse().ok()?;
    NUMBERED.get(number.checked_sub(8)?).copied()
}

/// The offset in `struct pt_regs` of a register: `x0`, `w0`, `sp`.
#[cfg(target_arch = "aarch64")]
pub fn register(name: &str) -> Option<u16> {
    match name {
        "sp" => Some(248),
        _ => name.strip_prefix(['x', 'w'])?.parse().ok().filter(|number| *number <= 30).map(|number: u16| number * 8),
    }
}

/// The fields of a probe or of a sample.
pub struct Registers<'s> {
    place: Place,
    system: &'s System,
}

/// A function of the kernel, by its type.
struct Function<'s> {
    /// The parameters in registers.
    parameters: Vec<(String, TypeId)>,
    returned: BtfType<'s>,
}

impl<'s> Registers<'s> {
    pub fn new(place: &Place, system: &'s System) -> Self {
        Self { place: place.clone(), system }
    }

    /// The function at the probe, if the kernel's types have it, and if each of its parameters has one register.
    fn function(&self) -> Option<Function<'s>> {
        let Place::Kprobe { function, .. } = &self.place else { return None };
        let btf = self.system.btf().ok()?;
        let proto = FuncProto::try_from(find(btf, BtfKind::Func, function)?.next_type()?).ok()?;
        let mut parameters = parameters(&proto, 0);
        let one_register =
            |(_, ty): &(String, TypeId)| btf.type_by_id::<BtfType>(*ty).is_some_and(|ty| simple(&ty).is_ok());
        parameters.truncate(OFFSETS.arguments.len());
        parameters.iter().all(one_register).then_some(Function { parameters, returned: proto.referenced_type() })
    }

    fn at_return(&self) -> Option<bool> {
        match &self.place {
            Place::Kprobe { at_return, .. } | Place::Uprobe { at_return, .. } => Some(*at_return),
            Place::Tracepoint { .. } | Place::Btf { .. } | Place::Usdt { .. } | Place::Perf { .. } => None,
        }
    }

    pub fn fields(&self) -> Vec<Listed> {
        let (ip, register) = (Listed::new("ip", "u64", Some("address")), |name: &str| Listed::new(name, "u64", None));
        let Some(at_return) = self.at_return() else { return vec![ip, register("period"), register("addr")] };
        let function = self.function();
        if at_return {
            let kind = function.map_or_else(|| "s64".to_owned(), |function| describe(&function.returned));
            return vec![Listed::new("retval", &kind, None), ip];
        }
        let mut all: Vec<Listed> = match function {
            Some(function) => {
                let btf = self.system.btf().ok();
                let ty = |ty| btf.and_then(|btf| btf.type_by_id::<BtfType>(ty));
                let kind = |id| ty(id).as_ref().map_or_else(String::new, describe);
                function.parameters.iter().map(|(name, id)| Listed::new(name, &kind(*id), None)).collect()
            }
            None => (0..OFFSETS.arguments.len()).map(|number| register(&format!("arg{number}"))).collect(),
        };
        all.push(ip);
        all
    }

    /// A register; none if no register has this name.
    pub fn field(&self, first: &str, rest: &[Part], is_text: bool) -> Option<Result<Field, String>> {
        let number = |at: u16, format| Field::new(abi::CUSTOM_NUMBER, REGISTER, format).at(at);
        let Some(at_return) = self.at_return() else {
            let field = match first {
                "ip" => number(OFFSETS.ip, Format::Symbol),
                "period" => number(OFFSETS.period, Format::Unsigned),
                "addr" => number(OFFSETS.address, Format::Hex),
                _ => return None,
            };
            return Some(whole(rest).and_then(|()| if is_text { Err(not_an_address()) } else { Ok(field) }));
        };
        let function = self.function();
        let named = function.as_ref().and_then(|f| f.parameters.iter().position(|(name, _)| name == first));
        let argument = named.or_else(|| numbered(first));
        let (at, ty) = match (first, argument) {
            ("retval", None) if !at_return => {
                return Some(Err(format!("is known when the function returns: use {} instead", self.other())));
            }
            ("retval", None) => (OFFSETS.returned, function.map(|function| function.returned)),
            ("ip", None) => {
                let is_kernel = matches!(self.place, Place::Kprobe { .. });
                let field = number(OFFSETS.ip, if is_kernel { Format::Symbol } else { Format::Hex });
                return Some(whole(rest).and_then(|()| if is_text { Err(not_an_address()) } else { Ok(field) }));
            }
            (_, Some(_)) if at_return => {
                return Some(Err(format!("is gone when the function returns: use {} instead", self.other())));
            }
            (_, Some(argument)) => {
                let Some(at) = OFFSETS.arguments.get(argument) else {
                    let most = OFFSETS.arguments.len() - 1;
                    return Some(Err(format!("is not in a register: the last one is arg{most}")));
                };
                let id = function.and_then(|function| function.parameters.get(argument).map(|(_, id)| *id));
                (*at, id.and_then(|id| self.system.btf().ok()?.type_by_id::<BtfType>(id)))
            }
            _ => return None,
        };
        Some(whole(rest).and_then(|()| self.value(first, at, ty, is_text)))
    }

    /// An argument, or what the function returns.
    fn value(&self, name: &str, at: u16, ty: Option<BtfType>, is_text: bool) -> Result<Field, String> {
        if is_text {
            if ty.as_ref().is_some_and(|ty| size_of(ty) != Some(8)) {
                return Err(not_an_address());
            }
            let is_kernel = matches!(self.place, Place::Kprobe { .. });
            return Ok(Field::text(if is_kernel { abi::CUSTOM_KERNEL_TEXT } else { abi::CUSTOM_USER_TEXT }).at(at));
        }
        // The upper half of a register may have anything, if the value has 4 bytes.
        if let Some(simple) = ty.filter(|_| cfg!(target_endian = "little")).and_then(|ty| simple(&ty).ok()) {
            return Ok(simple.field(name, abi::CUSTOM_NUMBER).at(at));
        }
        let is_signed = name == "retval";
        let mut field =
            Field::new(abi::CUSTOM_NUMBER, REGISTER, if is_signed { Format::Signed } else { Format::Unsigned });
        field.field.flags = if is_signed { abi::CUSTOM_SIGNED as u8 } else { 0 };
        Ok(field.at(at))
    }

    /// The probe at the other end of the function.
    fn other(&self) -> String {
        match self.place.clone() {
            Place::Kprobe { function, at_return } => Place::Kprobe { function, at_return: !at_return }.to_string(),
            Place::Uprobe { path, function, offset, at_return } => {
                Place::Uprobe { path, function, offset, at_return: !at_return }.to_string()
            }
            place => place.to_string(),
        }
    }
}

/// Checks that no part is behind a register.
fn whole(rest: &[Part]) -> Result<(), String> {
    if rest.is_empty() {
        return Ok(());
    }
    Err("is not possible: only arguments of events with btf: have members".to_owned())
}

fn not_an_address() -> String {
    "is not possible: the field is not the address of a text".to_owned()
}
