// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The work of the running kernel's verifier on topstat's programs, which takes most of the time until counting begins. And
//! the programs that a kernel must accept.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use topstat_families::catalogue;
use topstat_kernel::{Error, Family, verify};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Fail if this kernel lacks a feature for a family that is promised for a kernel of this name.
    #[arg(long, value_name = "KERNEL")]
    promised: Option<String>,
    /// Families; without one all of them
    families: Vec<String>,
}

/// Prints a line for each program. A family that needs a missing feature of this kernel is skipped, with the reason. Fails if
/// there is no program, if the kernel refuses one, or if a promised family is skipped.
pub fn run(Options { promised, families: named }: &Options) -> Result<()> {
    let all = catalogue().families();
    if let Some(unknown) = named.iter().find(|name| all.iter().all(|family| family.name != **name)) {
        bail!("there is no family {unknown}");
    }
    let chosen = all.iter().filter(|family| named.is_empty() || named.contains(&family.name));
    let promised = promised.as_deref().map(names_for).transpose()?.unwrap_or_default();
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    println!("## verified: instructions processed by the verifier of Linux {release} (at most 1000000)\n");
    println!("| family | object | program | instructions |\n|---|---|---|---:|");
    let (mut programs, mut sum, mut skipped) = (0, 0, Vec::new());
    for family in chosen {
        let (family, verified) = (&family.name, verify(family));
        let verified = match verified {
            Err(error @ (Error::Unsupported { .. } | Error::Lacking { .. })) if !promised.contains(family) => {
                skipped.push(format!("skipped: {family}: {error}"));
                continue;
            }
            verified => verified.with_context(|| format!("the family {family} does not load"))?,
        };
        for program in &verified {
            let instructions = program.instructions.map_or("not told".to_owned(), |number| number.to_string());
            println!("| {family} | {} | {} | {instructions} |", program.object, program.program);
        }
        programs += verified.len();
        sum += verified.iter().filter_map(|program| program.instructions).sum::<u64>();
    }
    println!("| | | all | {sum} |");
    for skipped in &skipped {
        println!("{skipped}");
    }
    ensure!(programs > 0, "no program was loaded");
    Ok(())
}

/// A kernel, by the name of its guests.
#[derive(Debug, clap::Args)]
pub struct Promised {
    kernel: String,
}

/// Prints the samples of the families that are promised for a kernel; for a name without a number, the samples of all
/// families.
pub fn promised(Promised { kernel }: &Promised) -> Result<()> {
    let samples = promised_for(kernel)?.into_iter().flat_map(|family| family.samples.clone());
    println!("{}", samples.map(|sample| sample.name.clone()).collect::<Vec<_>>().join(" "));
    Ok(())
}

/// The names of the families that are promised for a kernel.
fn names_for(kernel: &str) -> Result<Vec<String>> {
    Ok(promised_for(kernel)?.iter().map(|family| family.name.clone()).collect())
}

fn promised_for(kernel: &str) -> Result<Vec<Arc<Family>>> {
    let number = kernel.split_once('.').map(|(major, minor)| Ok::<_, anyhow::Error>((major.parse()?, minor.parse()?)));
    let number: Option<(u32, u32)> = number.transpose().with_context(|| format!("{kernel} is no kernel"))?;
    Ok(catalogue().families().into_iter().filter(|family| number.is_none_or(|number| family.since <= number)).collect())
}
