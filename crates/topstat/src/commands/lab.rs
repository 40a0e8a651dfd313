// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat lab`: experiments with the network stack.

use std::path::{Path, PathBuf};
use std::time::Instant;

use topstat_kernel::netstack;

use crate::args::lab::{LabArgs, LabCommand, ReportArgs};
use crate::backend::Backend;
use crate::console::{Console, Wake};
use crate::error::{Error, Exit};
use crate::lab::host::{CONFIGURATIONS, Configuration, Trouble};
use crate::lab::measure::Measure;
use crate::lab::plan::{Parameters, Places, Variant, variants};
use crate::lab::results::{Directory, Results, Run, mark};
use crate::lab::{plot, report};
use crate::suggest::did_you_mean;

/// What is said where Ctrl-C ends it.
const STOPPED: &str = "stopped";

pub fn run(args: &LabArgs, backend: &mut dyn Backend, console: &mut dyn Console) -> Result<Exit, Error> {
    if let Some(LabCommand::Report(report)) = &args.command {
        return run_report(report, console);
    }
    let experiment = args.experiment.ok_or_else(|| Error::Usage("which EXPERIMENT?".to_owned()))?;
    let configurations = configurations(&args.config)?;
    let parameters = Parameters {
        flows: args.flows as usize,
        sizes: args.size.iter().map(|bytes| *bytes as usize).collect(),
        losses: args.loss.clone(),
        buffers: args.buffer.iter().map(|kib| *kib as usize * 1024).collect(),
    };
    let variants = variants(experiment, &parameters, &places()?)?;
    console.catch_signals(false).map_err(|source| Error::System { what: "catch signals", source })?;
    let mark = mark(&experiment.name());
    let default = || PathBuf::from(format!("topstat-lab-{}-{}", mark.experiment, mark.time.replace(':', "")));
    let mut directory = Directory::create(&args.out.clone().unwrap_or_else(default), &mark)?;
    let ended = measure(args, &configurations, &variants, backend, console, &mut directory);
    if let Err(Error::Lab(why)) = &ended
        && why == STOPPED
    {
        console.note(&format!("topstat: stopped; what was finished is in {}", directory.path().display()));
        return Ok(Exit::Done);
    }
    ended?;
    show(directory.path(), console)?;
    Ok(Exit::Done)
}

/// Measures everything: all configurations and variants once, then all again, so that what changes meanwhile on the host
/// concerns all of them.
fn measure(
    args: &LabArgs,
    configurations: &[Configuration],
    variants: &[Variant],
    backend: &mut dyn Backend,
    console: &mut dyn Console,
    directory: &mut Directory,
) -> Result<(), Error> {
    let options = netstack::Options { hz: args.hz, ..netstack::Options::default() };
    let all = args.runs as usize * configurations.len() * variants.len();
    let mut done = 0;
    let mut out: Vec<(&str, &str)> = Vec::new();
    for number in 1..=args.runs {
        for (configuration, variant) in configurations.iter().flat_map(|c| variants.iter().map(move |v| (c, v))) {
            done += 1;
            let name = (configuration.name, variant.name.as_str());
            // What can't be had is said once.
            if out.contains(&name) {
                continue;
            }
            console.note(&format!("topstat: {done} of {all}: {}, {}, run {number}", name.0, name.1));
            let mut sampler = || backend.stacks(&options).map_err(|e| e.to_string());
            let mut wait = |until: Instant| wait(until, console);
            let mut measure = Measure {
                time: args.time,
                congestion: args.congestion.clone(),
                histograms: args.histograms,
                sampler: (args.hz > 0).then_some(&mut sampler),
                wait: &mut wait,
            };
            let run = match measure.run(configuration, variant, number) {
                Ok(run) => run,
                Err(Trouble::Failed(why)) => return Err(Error::Lab(why)),
                Err(Trouble::Unavailable(why)) => {
                    out.push(name);
                    let (configuration, variant) = (name.0.to_owned(), name.1.to_owned());
                    Run { configuration, variant, run: number, unavailable: Some(why), ..Run::default() }
                }
            };
            if run.unavailable.is_none() && !run.has_carried() {
                console.note(&format!("topstat: nothing was carried in {:.1} s: no figure is made of it", run.seconds));
            }
            directory.add(&run)?;
        }
    }
    Ok(())
}

fn wait(until: Instant, console: &mut dyn Console) -> Result<(), String> {
    loop {
        match console.wait_until(until) {
            Ok(Wake::Deadline) => return Ok(()),
            Ok(Wake::Stop | Wake::Closed) => return Err(STOPPED.to_owned()),
            Ok(Wake::Ready | Wake::Resized | Wake::Suspend) => {}
            Err(e) => return Err(format!("cannot wait: {e}")),
        }
    }
}

/// The configurations of these names, or all.
fn configurations(names: &[String]) -> Result<Vec<Configuration>, Error> {
    if names.is_empty() {
        return Ok(CONFIGURATIONS.to_vec());
    }
    let known = || CONFIGURATIONS.iter().map(|configuration| configuration.name);
    let of = |name: &String| {
        CONFIGURATIONS.iter().find(|configuration| configuration.name == *name).cloned().ok_or_else(|| {
            let (all, meant) = (known().collect::<Vec<_>>().join(", "), did_you_mean(name, known()));
            Error::Usage(format!("there is no configuration '{name}' but {all}{meant}"))
        })
    };
    names.iter().map(of).collect()
}

/// The CPUs that this process may use, and which are together on a NUMA node.
fn places() -> Result<Places, Error> {
    let allowed = rustix::thread::sched_getaffinity(None)
        .map_err(|e| Error::System { what: "ask which CPUs may be used", source: e.into() })?;
    let cpus: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let entries = std::fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let on = |node: PathBuf| cpus.iter().copied().filter(|cpu| node.join(format!("cpu{cpu}")).exists()).collect();
    let nodes = entries.map(|entry| entry.path()).map(on).filter(|cpus: &Vec<usize>| !cpus.is_empty());
    Ok(Places::of(&cpus, &nodes.collect::<Vec<_>>()))
}

/// Prints the tables of a directory, and draws its pictures.
fn show(directory: &Path, console: &mut dyn Console) -> Result<(), Error> {
    let results = Results::read(directory)?;
    let mut text = report::text(&results);
    for path in plot::draw(&results, directory)? {
        text += &format!("drawn: {}\n", path.display());
    }
    console.write(text.as_bytes()).map_err(Error::Output)
}

fn run_report(args: &ReportArgs, console: &mut dyn Console) -> Result<Exit, Error> {
    let Some(other) = &args.other else {
        show(&args.results, console)?;
        return Ok(Exit::Done);
    };
    let (before, after) = (Results::read(&args.results)?, Results::read(other)?);
    if before.mark.experiment != after.mark.experiment {
        let (one, two) = (&before.mark.experiment, &after.mark.experiment);
        return Err(Error::Lab(format!("cannot compare the results of {one} with those of {two}")));
    }
    console.write(report::compare(&before, &after).as_bytes()).map_err(Error::Output)?;
    Ok(Exit::Done)
}
