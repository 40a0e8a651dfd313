// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Probes that a program or a library has at marked places: notes of the section `.note.stapsdt`, as SystemTap's <sys/sdt.h> makes
//! them. Each place of a probe is a note, with the places of the arguments at this instruction.
//! See <https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation>.

use std::fs::File;

use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};
use object::{Endianness, ReadCache, ReadRef};

use super::abi;
use super::btf::numbered;
use super::registers::register;
use super::similar;
use super::{Field, Format, Listed, Part};

/// The name and the type of the notes.
const OWNER: &[u8] = b"stapsdt";
const KIND: u32 = 3;
/// Places of one probe at most: each has a hook. A probe in a function that is copied to its callers has many.
pub const PLACES: usize = 64;

/// A probe, at one or several places.
pub struct Probe {
    pub places: Vec<At>,
}

/// A place of a probe.
#[derive(Debug, PartialEq, Eq)]
pub struct At {
    /// Bytes from the beginning of the file to the instruction.
    pub offset: usize,
    /// Bytes from the beginning of the file to the number of the probe's users; 0: there is no such number.
    pub semaphore: usize,
    arguments: Vec<Argument>,
}

/// An argument: a number of `size` bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Argument {
    size: u8,
    is_signed: bool,
    place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// At this offset of `struct pt_regs`.
    Register(u16),
    /// In the process's memory: bytes behind the address in a register.
    Memory(u16, i32),
    /// Another place, as the note has it: a constant, a symbol, a register of floating-point numbers.
    Other(String),
}

impl Probe {
    /// Finds the probe in the file.
    ///
    /// # Errors
    /// The file can't be read, or has no such probe.
    pub fn open(path: &str, provider: &str, name: &str) -> Result<Self, String> {
        let failed = |why: String| format!("cannot read the probes of {path}: {why}");
        let file = File::open(super::file::of(path)?).map_err(|e| failed(e.to_string()))?;
        let cache = ReadCache::new(file);
        let all = all(&cache).map_err(|e| failed(e.to_string()))?;
        let is_it = |note: &&Note| note.provider == provider && note.name == name;
        let places: Vec<_> = all.iter().filter(is_it).map(Note::place).collect();
        if places.is_empty() {
            let titles: Vec<String> = all.iter().map(|note| format!("{}:{}", note.provider, note.name)).collect();
            let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
            let wanted = format!("{provider}:{name}");
            return Err(match titles.is_empty() {
                true => format!("{path} has no probe {wanted}: it has no probes of this kind"),
                false => format!("{path} has no probe {wanted}{}", similar::perhaps(&wanted, &titles)),
            });
        }
        match places.len() > PLACES {
            true => {
                Err(format!("the probe is at {} places of {path}, and at most {PLACES} are possible", places.len()))
            }
            false => Ok(Self { places }),
        }
    }

    pub fn fields(&self) -> Vec<Listed> {
        let first = self.places.first().map_or(&[][..], |place| &place.arguments);
        let kind = |argument: &Argument| format!("{}{}", if argument.is_signed { "s" } else { "u" }, argument.size * 8);
        first.iter().enumerate().map(|(i, argument)| Listed::new(&format!("arg{i}"), &kind(argument), None)).collect()
    }

    /// An argument; none if no argument has this name.
    pub fn field(&self, name: &str, rest: &[Part], is_text: bool) -> Option<Result<Field, String>> {
        let number = numbered(name)?;
        let first = self.places.first()?.arguments.get(number)?;
        Some(if !rest.is_empty() {
            Err("is not possible: only arguments of events with btf: have members".to_owned())
        } else if self.places.iter().any(|place| place.arguments.get(number) != Some(first)) {
            let places = self.places.len();
            Err(format!(
                "can't be read: the probe is at {places} places, which have this argument in different registers"
            ))
        } else {
            first.field(is_text)
        })
    }
}

impl Argument {
    fn field(&self, is_text: bool) -> Result<Field, String> {
        let number = |source, at| {
            let format = if self.is_signed { Format::Signed } else { Format::Unsigned };
            let mut field = Field::new(source, self.size.into(), format).at(at);
            field.field.flags = if self.is_signed { abi::CUSTOM_SIGNED as u8 } else { 0 };
            field
        };
        match &self.place {
            Place::Register(_) | Place::Memory(..) if is_text && self.size != 8 => {
                Err("is not possible: the field is not the address of a text".to_owned())
            }
            Place::Register(at) if is_text => Ok(Field::text(abi::CUSTOM_USER_TEXT).at(*at)),
            Place::Memory(..) if is_text => {
                Err("is not possible: the address of the text is in memory, and not in a register".to_owned())
            }
            Place::Register(at) => Ok(number(abi::CUSTOM_NUMBER, *at)),
            Place::Memory(at, by) => {
                let mut field = number(abi::CUSTOM_USER_WORD, *at);
                let by = by.cast_unsigned();
                (field.field.step[0], field.field.step[1]) = (by as u16, (by >> 16) as u16);
                Ok(field)
            }
            Place::Other(text) => Err(format!("can't be read: its place is {text}")),
        }
    }

    /// `-4@%edi`, `8@-80(%rbx)`, `8@[x29, 24]`.
    fn parse(text: &str) -> Self {
        let other = || Self { size: 8, is_signed: false, place: Place::Other(text.to_owned()) };
        let Some((size, place)) = text.split_once('@') else { return other() };
        let Ok(bytes) = size.parse::<i8>() else { return other() };
        if !matches!(bytes.unsigned_abs(), 1 | 2 | 4 | 8) {
            return other();
        }
        Self { size: bytes.unsigned_abs(), is_signed: bytes < 0, place: Place::parse(place) }
    }
}

impl Place {
    fn parse(text: &str) -> Self {
        let other = || Self::Other(text.to_owned());
        if let Some(at) = text.strip_prefix('%').or(cfg!(target_arch = "aarch64").then_some(text)).and_then(register) {
            return Self::Register(at);
        }
        let (by, base) = if let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            let (base, by) = inner.split_once(',').unwrap_or((inner, "0"));
            (by, base)
        } else if let Some((by, base)) = text.strip_suffix(')').and_then(|text| text.split_once("(%")) {
            (if by.is_empty() { "0" } else { by }, base)
        } else {
            return other();
        };
        match (by.trim().parse(), register(base.trim())) {
            (Ok(by), Some(at)) => Self::Memory(at, by),
            _ => other(),
        }
    }
}

/// A note.
struct Note {
    provider: String,
    name: String,
    offset: usize,
    semaphore: usize,
    arguments: String,
}

impl Note {
    fn place(&self) -> At {
        // In `[x29, 24]` is a space.
        let text = self.arguments.replace(", ", ",");
        let arguments = text.split_whitespace().map(Argument::parse).collect();
        At { offset: self.offset, semaphore: self.semaphore, arguments }
    }
}

/// All notes of the file.
fn all<'d, R: ReadRef<'d>>(data: R) -> Result<Vec<Note>, object::Error> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let segments = header.program_headers(endian, data)?;
    // The file may have been given other addresses since it was linked: the section `.stapsdt.base` moves with them.
    let base = sections.section_by_name(endian, b".stapsdt.base").map(|(_, section)| section.sh_addr(endian));
    let in_file = |address: u64| {
        let segment = segments.iter().find(|segment| {
            let begin = segment.p_vaddr(endian);
            segment.p_type(endian) == PT_LOAD && (begin..begin + segment.p_filesz(endian)).contains(&address)
        });
        let offset = segment.map(|segment| address - segment.p_vaddr(endian) + segment.p_offset(endian));
        offset.and_then(|offset| usize::try_from(offset).ok())
    };
    let mut found = Vec::new();
    let Some((_, section)) = sections.section_by_name(endian, b".note.stapsdt") else { return Ok(found) };
    let Some(mut notes) = section.notes(endian, data)? else { return Ok(found) };
    while let Some(note) = notes.next()? {
        if note.name() != OWNER || note.n_type(endian) != KIND {
            continue;
        }
        let Some((words, texts)) = note.desc().split_first_chunk::<24>() else { continue };
        let word = |i: usize| -> u64 { words[i * 8..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes)) };
        let moved = base.filter(|_| word(1) != 0).map_or(0, |base| base.wrapping_sub(word(1)));
        let mut texts = texts.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned());
        let mut text = || texts.next().unwrap_or_default();
        let (provider, name, arguments) = (text(), text(), text());
        let semaphore = if word(2) == 0 { Some(0) } else { in_file(word(2).wrapping_add(moved)) };
        if let (Some(offset), Some(semaphore)) = (in_file(word(0).wrapping_add(moved)), semaphore) {
            found.push(Note { provider, name, offset, semaphore, arguments });
        }
    }
    Ok(found)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_in_registers_and_in_memory() {
        for (text, size, is_signed, place) in [
            ("8@%rdi", 8, false, Place::Register(112)),
            ("-4@%edi", 4, true, Place::Register(112)),
            ("-1@%dil", 1, true, Place::Register(112)),
            ("2@%r15w", 2, false, Place::Register(0)),
            ("8@-80(%rbx)", 8, false, Place::Memory(40, -80)),
            ("4@(%rsp)", 4, false, Place::Memory(152, 0)),
            ("8@$5", 8, false, Place::Other("$5".to_owned())),
            ("8@counter(%rip)", 8, false, Place::Other("counter(%rip)".to_owned())),
            ("8@8(%rax,%rbx,4)", 8, false, Place::Other("8(%rax,%rbx,4)".to_owned())),
            ("8f@%xmm0", 8, false, Place::Other("8f@%xmm0".to_owned())),
        ] {
            assert_eq!(Argument::parse(text), Argument { size, is_signed, place }, "{text}");
        }
    }
}
