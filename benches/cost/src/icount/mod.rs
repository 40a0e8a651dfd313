// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The instructions of a request and its response: without attached programs, with topstat, and with other tools. Counted in
//! guests whose time is the number of executed instructions (`topstat-vm`'s icount tier), so that the result does not depend
//! on the machine and its load. The count includes everything on the one CPU: kernel and program, both ends.

mod cases;
pub mod guest;
pub mod hooks;
mod module;
pub mod peers;
mod table;

use std::ffi::OsString;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use topstat_vm::cache::Cache;
use topstat_vm::deps::{self, Tools};
use topstat_vm::guest::Job;
use topstat_vm::kernel::{self, Kernel, Series};
use topstat_vm::klog::AllowList;
use topstat_vm::qemu::{Cgroup, Flavour, Machine, Tier};
use topstat_vm::session::{self, Outcome, Plan};
use topstat_vm::watch::Stream;

pub use guest::Selection;
pub use table::{Column, More};

use guest::Measured;

#[derive(Args)]
pub struct Options {
    /// Kernels to count on.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Series::V6_1, Series::Newest])]
    kernels: Vec<Series>,
    /// Guests per kernel: their results must agree.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=8))]
    boots: u32,
    #[command(flatten)]
    what: Selection,
}

/// The maximum difference of two boots, in percent of a transaction: it must be possible to see an effect of 1%.
const AGREEMENT_PERCENT: f64 = 0.5;

/// An emulated guest runs about 100 million instructions per second, and waits for bcc.
const LIMIT: Duration = Duration::from_secs(3600);

/// Runs `argv` of this program in a guest; returns the lines of its output, and passes its standard error on.
pub fn in_guest(tools: &Tools, kernel: &Kernel, machine: &Machine, argv: &[OsString]) -> Result<Vec<String>> {
    in_guest_with(tools, kernel, machine, &[], argv)
}

/// As [`in_guest`], with these variables in the environment.
fn in_guest_with(
    tools: &Tools,
    kernel: &Kernel,
    machine: &Machine,
    variables: &[String],
    argv: &[OsString],
) -> Result<Vec<String>> {
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let words = argv.iter().map(|word| word.to_string_lossy().into_owned());
    // Passes the variable that selects how UDP is counted to the guest.
    let way = |name: &&str| Some(format!("{name}={}", std::env::var(name).ok()?));
    let ways = ["TOPSTAT_UDP"].iter().filter_map(way);
    let env = ["env".to_owned()].into_iter().chain(ways).chain(variables.iter().cloned());
    let argv = env.chain([program.to_string_lossy().into_owned()]).chain(words).collect();
    let plan = Plan {
        tools,
        kernel,
        machine,
        cgroup: Cgroup::V2,
        jobs: &[Job::new(argv, &[])?],
        limit: LIMIT,
        allow: &AllowList::built_in()?,
        out: None,
    };
    let (mut printed, mut said) = (Vec::new(), Vec::new());
    let session = session::run(&plan, &mut |_, stream, bytes| match stream {
        Stream::Out => printed.extend_from_slice(bytes),
        Stream::Err => said.extend_from_slice(bytes),
    })?;
    let judged = session.judged.first().context("the guest ran no command")?;
    if judged.outcome != Outcome::Passed {
        let said = String::from_utf8_lossy(&said);
        bail!("{}: {} {}\n{}", kernel.release, judged.outcome.word(), judged.outcome.note(), said.trim());
    }
    Ok(String::from_utf8_lossy(&printed).lines().map(str::to_owned).collect())
}

fn arguments(what: &Selection) -> Vec<OsString> {
    let list = |items: Vec<String>| items.join(",");
    let mut arguments = vec![
        "icount-guest".to_owned(),
        "--connections".to_owned(),
        list(what.connections.iter().map(usize::to_string).collect()),
        "--turn-ms".to_owned(),
        what.turn_ms.to_string(),
        "--turns".to_owned(),
        what.turns.to_string(),
    ];
    if what.rounds > 0 {
        arguments.extend(["--rounds".to_owned(), what.rounds.to_string()]);
    }
    if !what.cases.is_empty() {
        arguments.extend(["--cases".to_owned(), list(what.cases.clone())]);
    }
    for (is_set, option) in [(what.profile, "--profile"), (what.datagrams, "--datagrams")] {
        arguments.extend(is_set.then(|| option.to_owned()));
    }
    arguments.into_iter().map(Into::into).collect()
}

/// The counts of one boot of a kernel's newest build, for the table of another measurement.
pub fn count(series: Series, what: Selection) -> Result<Column> {
    let (tools, cache) = (deps::tools()?, Cache::from_env());
    let kernel = kernel::fetch(&cache, series, Flavour::CloudAmd64, false)?;
    let options = Options { kernels: vec![series], boots: 1, what };
    Ok(Column { series, release: kernel.release.clone(), boots: boots(&tools, series, &kernel, &options)? })
}

/// All measurements of the boots of a kernel: one list per boot.
fn boots(tools: &Tools, series: Series, kernel: &Kernel, options: &Options) -> Result<Vec<Vec<Measured>>> {
    let machine = Machine { tier: Tier::Icount, cpus: 1, memory_mib: 2048, append: vec![] };
    let arguments = arguments(&options.what);
    let modules = vec![format!("{}={}", module::FOLDER, module::folder(series.name())?.display())];
    let one = || -> Result<Vec<Measured>> {
        let lines = in_guest_with(tools, kernel, &machine, &modules, &arguments)?;
        let read = |line: &String| serde_json::from_str(line).with_context(|| format!("the guest says {line:?}"));
        lines.iter().map(read).collect()
    };
    // Two at a time, as many as a small host has CPUs: the counts do not depend on it.
    let mut all = Vec::new();
    for first in (0..options.boots).step_by(2) {
        let pair = thread::scope(|scope| {
            let threads: Vec<_> = (first..options.boots.min(first + 2)).map(|_| scope.spawn(one)).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect::<Result<Vec<_>>>()
        })?;
        all.extend(pair);
    }
    Ok(all)
}

pub fn run(options: &Options) -> Result<()> {
    for id in &options.what.cases {
        let known: Vec<_> = cases::CASES.iter().map(|case| case.id).collect();
        ensure!(cases::find(id).is_some(), "there is no case {id}; there are {}", known.join(", "));
    }
    ensure!(!options.what.connections.is_empty() && options.what.turns > 0, "there is nothing to measure");
    let tools = deps::tools()?;
    let cache = Cache::from_env();
    let mut columns = Vec::new();
    for &series in &options.kernels {
        let kernel = kernel::fetch(&cache, series, Flavour::CloudAmd64, false)?;
        // bcc compiles its programs against the kernel's headers; without them its line says so.
        if let Err(error) = kernel::fetch_headers(&cache, &kernel) {
            eprintln!("no headers of {} for bcc: {error:#}", kernel.release);
        }
        columns.push(Column {
            series,
            release: kernel.release.clone(),
            boots: boots(&tools, series, &kernel, options)?,
        });
    }
    print!("{}", table::render(&columns, &options.what));
    if let Some(table::Apart { percent, what }) = table::apart(&columns, false) {
        ensure!(
            percent <= AGREEMENT_PERCENT,
            "two boots are {percent:.2}% apart, more than {AGREEMENT_PERCENT}%: {what}"
        );
    }
    Ok(())
}
