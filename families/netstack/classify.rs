// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decides the category of a function, and of a sample: by rules on names; else by the functions around it, because functions of
//! one file are close together in the kernel; else by the nearest caller with a known category.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use topstat_model::stacks::{Category, Found, Frame, Side};

use super::rules::{Rules, Verdict};
use topstat_kernel::Error;
use topstat_kernel::symbols::Symbols;

/// Functions with a rule that vote on each side: most of them are in the same file, and outvote functions of the next file.
const ASKED: usize = 8;
/// The distance of these functions, at most: a file of the kernel has some tens of functions.
const REACH: usize = 60;

/// The reason for a function's category.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// This pattern.
    Rule(String),
    /// The functions around it; this is the nearest of the category.
    Near(String),
}

impl Why {
    /// The text that `topstat netstack classify` prints.
    pub fn text(&self) -> String {
        match self {
            Self::Rule(pattern) => pattern.clone(),
            Self::Near(symbol) => format!("near {symbol}"),
        }
    }
}

/// The function that contains an address, and the rules' results for it.
#[derive(Clone, Debug)]
struct Known {
    frame: Arc<Frame>,
    verdict: Option<Verdict>,
    side: Option<Side>,
    unmasks: bool,
}

/// The result for a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sampled {
    /// The CPU waited for work.
    Idle,
    /// The CPU ran.
    Ran {
        /// The category in both views, and how it was found.
        found: [Found; 2],
        /// The index in the stack of the function that the sample counts to, in both views.
        leaf: [usize; 2],
        /// The side that the CPU worked for.
        side: Side,
    },
}

/// Classifies functions and samples of the running kernel.
pub struct Classifier {
    rules: Rules,
    symbols: Symbols,
    known: HashMap<u64, Known>,
    /// Functions by their first address. All addresses within a function share one entry.
    frames: HashMap<u64, Known>,
}

impl Classifier {
    /// Opens a classifier with topstat's own rules, behind the rules of a file.
    ///
    /// # Errors
    /// When a rule is wrong, or the kernel's symbols can't be read.
    pub fn open(file: Option<&Path>) -> Result<Self, Error> {
        let rules = file.map_or_else(|| Ok(Rules::own()), Rules::with_file)?;
        Ok(Self::new(rules, Symbols::read()?))
    }

    pub(super) fn new(rules: Rules, symbols: Symbols) -> Self {
        Self { rules, symbols, known: HashMap::new(), frames: HashMap::new() }
    }

    /// Whether the kernel hides the addresses of its functions from this user.
    pub fn hidden(&self) -> bool {
        self.symbols.is_empty()
    }

    /// Patterns of the user's file that match nothing in this kernel: the line of each, and the pattern.
    pub fn unmatched(&self) -> Vec<(usize, String)> {
        if self.hidden() {
            return Vec::new();
        }
        self.rules.unmatched(self.symbols.iter().map(|symbol| (&*symbol.name, symbol.module.as_deref())))
    }

    /// Whether this kernel has a function of this name.
    pub fn has(&self, name: &str) -> bool {
        self.symbols.named(name).is_some()
    }

    /// The verdict on a function, and the reason. `module`: the module of a function that this kernel may lack.
    pub fn symbol(&self, name: &str, module: Option<&str>) -> Option<(Verdict, Why)> {
        let own = self.symbols.named(name).and_then(|symbol| symbol.module.as_deref());
        let ruled = self.rules.verdict(name, module.or(own));
        ruled.map(|(verdict, pattern)| (verdict, Why::Rule(pattern))).or_else(|| self.near(name))
    }

    /// The category of most of the functions around this one.
    fn near(&self, name: &str) -> Option<(Verdict, Why)> {
        let mut votes: Vec<(Category, usize, &str)> = Vec::new();
        for behind in [true, false] {
            let around = self.symbols.around(name, behind).take(REACH);
            let told = around.filter_map(|symbol| match self.rules.verdict(&symbol.name, symbol.module.as_deref()) {
                Some((Verdict::Category(category), _)) => Some((category, &*symbol.name)),
                _ => None,
            });
            for (category, symbol) in told.take(ASKED) {
                match votes.iter_mut().find(|(voted, ..)| *voted == category) {
                    Some((_, count, _)) => *count += 1,
                    None => votes.push((category, 1, symbol)),
                }
            }
        }
        // Among equal counts, the category that was met first.
        let most = votes.iter().rev().max_by_key(|(_, count, _)| *count)?;
        Some((Verdict::Category(most.0), Why::Near(most.2.to_owned())))
    }

    /// Reads the kernel's symbols again: modules and eBPF programs may have been loaded.
    ///
    /// # Errors
    /// When the symbols can't be read.
    pub fn refresh(&mut self) -> Result<(), Error> {
        self.symbols = Symbols::read()?;
        self.known.clear();
        self.frames.clear();
        Ok(())
    }

    /// Whether the address is in a known function.
    pub fn knows(&self, address: u64) -> bool {
        self.symbols.at(address).is_some()
    }

    /// The functions of a stack, the innermost first.
    pub fn frames(&mut self, addresses: &[u64]) -> Vec<Arc<Frame>> {
        addresses.iter().map(|address| Arc::clone(&self.at(*address).frame)).collect()
    }

    /// Classifies a sample with this stack, the innermost address first. `idle_task`: the CPU's idle task was running.
    pub fn stack(&mut self, addresses: &[u64], idle_task: bool) -> Sampled {
        let stack: Vec<Known> = addresses.iter().map(|address| self.at(*address).clone()).collect();
        if idle_task && matches!(decide(&stack), (Some(Verdict::Idle), _)) {
            return Sampled::Idle;
        }
        let side = stack.iter().find_map(|known| known.side).unwrap_or(Side::Other);
        let unmasking = stack.iter().take_while(|known| known.unmasks).count();
        // A stack with only such functions has no caller to give the sample to.
        let leaf = [0, if unmasking < stack.len() { unmasking } else { 0 }];
        let found = leaf.map(|leaf| match decide(&stack[leaf.min(stack.len())..]) {
            (Some(Verdict::Category(category)), 0) => Found::ByName(category),
            (Some(Verdict::Category(category)), _) => Found::ByCaller(category),
            // Waiting for work is no category of work: on another task it counts to the scheduler.
            (Some(Verdict::Idle), _) => Found::ByCaller(Category::Sched),
            _ => Found::Unknown,
        });
        Sampled::Ran { found, leaf, side }
    }

    fn at(&mut self, address: u64) -> &Known {
        if !self.known.contains_key(&address) {
            let known = self.look_up(address);
            self.known.insert(address, known);
        }
        &self.known[&address]
    }

    fn look_up(&mut self, address: u64) -> Known {
        let Some(symbol) = self.symbols.at(address).cloned() else {
            let frame = Arc::new(Frame { name: format!("0x{address:x}"), module: None });
            return Known { frame, verdict: None, side: None, unmasks: false };
        };
        if let Some(known) = self.frames.get(&symbol.address) {
            return known.clone();
        }
        let module = symbol.module.as_deref();
        let known = Known {
            frame: Arc::new(Frame { name: symbol.name.to_string(), module: module.map(str::to_owned) }),
            verdict: self.symbol(&symbol.name, module).map(|(verdict, _)| verdict),
            side: self.rules.side(&symbol.name),
            unmasks: self.rules.unmasks(&symbol.name),
        };
        self.frames.insert(symbol.address, known.clone());
        known
    }
}

/// The verdict of the first function of a stack that has one, and the number of calls before it.
fn decide(stack: &[Known]) -> (Option<Verdict>, usize) {
    let decided = stack.iter().enumerate().find_map(|(depth, known)| match known.verdict {
        None | Some(Verdict::Caller) => None,
        Some(verdict) => Some((Some(verdict), depth)),
    });
    decided.unwrap_or((None, 0))
}

#[cfg(test)]
#[path = "classify_test.rs"]
mod tests;
