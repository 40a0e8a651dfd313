// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line: see `README.md`.

mod cli;

use std::fs;
use std::io::{self, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use topstat_vm::cache::Cache;
use topstat_vm::guest::{Guest, Job};
use topstat_vm::kbuild::Kbuild;
use topstat_vm::kernel::{self, Kernel, Series};
use topstat_vm::klog::AllowList;
use topstat_vm::matrix::{self, Matrix, cell};
use topstat_vm::qemu::{Flavour, Machine, Tier};
use topstat_vm::session::{self, Outcome, Plan};
use topstat_vm::watch::Stream;
use topstat_vm::{EXIT_GUEST, EXIT_SKIPPED, Unavailable, debug, deps, source, summary};

use crate::cli::{Cli, MachineArgs, MatrixArgs, RunArgs, ShellArgs, Verb};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let code = match dispatch(&cli) {
        Ok(code) => code,
        Err(error) => match error.downcast_ref::<Unavailable>() {
            Some(_) if !cli.require => {
                eprintln!(
                    "topstat-vm: SKIPPED, no guest was run: {error:#}\ntopstat-vm: --require makes this a failure"
                );
                EXIT_SKIPPED
            }
            _ => {
                eprintln!("topstat-vm: {error:#}");
                // A command's own exit code may be 1, so a separate code says that no command was run.
                if matches!(cli.verb, Verb::Run(_)) { EXIT_GUEST } else { 1 }
            }
        },
    };
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

fn dispatch(cli: &Cli) -> Result<i32> {
    let cache = Cache::from_env();
    match &cli.verb {
        Verb::Run(args) => run(&cache, args),
        Verb::Shell(args) => shell(&cache, args),
        Verb::Matrix(args) => run_matrix(&cache, args, cli.require),
        Verb::Fetch { kernels, debug, update } => {
            let all = if kernels.is_empty() && !debug { &Series::ALL[..] } else { kernels };
            fetch(&cache, all, *debug, *update)
        }
        Verb::Kbuild { kernel, tier } => {
            let kbuild = Kbuild::fetch(&cache, *kernel, *tier)?;
            println!("{}\n{}", kbuild.dir.display(), kbuild.make.join("\n"));
            Ok(0)
        }
        Verb::Source { kernel, folder } => {
            println!("{}", source::unpack(&cache, *kernel, folder)?);
            Ok(0)
        }
        Verb::List => list(&cache),
        Verb::Clean { all } => {
            for path in kernel::clean(&cache, *all)? {
                println!("removed {}", path.display());
            }
            Ok(0)
        }
        Verb::Deps { debug } => {
            println!("{}", deps::packages(*debug).join(" "));
            Ok(0)
        }
    }
}

fn machine(args: &MachineArgs, tier: Tier) -> Machine {
    Machine { tier, cpus: args.cpus, memory_mib: args.memory, append: args.append.clone() }
}

fn allow_list(file: Option<&std::path::Path>) -> Result<AllowList> {
    let mut list = AllowList::built_in()?;
    if let Some(file) = file {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        list.extend(AllowList::parse(&text).with_context(|| file.display().to_string())?);
    }
    Ok(list)
}

fn run(cache: &Cache, args: &RunArgs) -> Result<i32> {
    let cell = cell(args.kernel, args.tier)?;
    let tools = deps::tools()?;
    let kernel = matrix::kernel_of(cache, cell)?;
    let machine = machine(&args.machine, args.tier);
    let plan = Plan {
        tools: &tools,
        kernel: &kernel,
        machine: &machine,
        cgroup: args.machine.cgroup,
        jobs: &[Job::new(args.command.clone(), &args.machine.env)?.on(cell.series, cell.tier)],
        limit: Duration::from_secs(args.timeout),
        allow: &allow_list(args.allow.as_deref())?,
        out: args.out.clone(),
    };
    let session = session::run(&plan, &mut |_, stream, bytes| {
        // A reader that is gone (a closed pipe) must not change the exit code.
        let _ = match stream {
            Stream::Out => io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()),
            Stream::Err => io::stderr().write_all(bytes),
        };
    })?;
    let judged = session.judged.first().context("the guest ran no command")?;
    for report in &judged.reports {
        match &report.allowed {
            Some(reason) => eprintln!("topstat-vm: allowed in the kernel log ({reason}): {}", report.headline),
            None => eprintln!("topstat-vm: the kernel log of {} has:\n{}", kernel.release, report.text),
        }
    }
    if args.log {
        eprint!("{}", session.log);
    }
    match &judged.outcome {
        Outcome::Passed | Outcome::Failed(_) => {}
        outcome => {
            eprintln!("topstat-vm: {} {} on {}: {}", cell.tier, outcome.word(), kernel.release, outcome.note());
        }
    }
    if args.time {
        let boot = session.boot.unwrap_or_default().as_secs_f64();
        let (took, total) = (judged.took.as_secs_f64(), session.total.as_secs_f64());
        eprintln!("topstat-vm: {} booted in {boot:.2} s, command {took:.2} s, all {total:.2} s", kernel.release);
    }
    Ok(judged.outcome.exit_code())
}

fn shell(cache: &Cache, args: &ShellArgs) -> Result<i32> {
    let tools = deps::tools()?;
    let kernel = matrix::kernel_of(cache, cell(args.kernel, args.tier)?)?;
    let machine = machine(&args.machine, args.tier);
    eprintln!("topstat-vm: booting {}; `exit` or Ctrl-A X ends it", kernel.release);
    let job = Job::new(Vec::new(), &args.machine.env)?;
    let stty = Command::new("stty").arg("size").stdin(Stdio::inherit()).stderr(Stdio::null()).output();
    let size = stty.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let size = match size.split_once(' ') {
        Some((rows, columns)) => format!("rows {rows} cols {}", columns.trim()),
        None => String::new(),
    };
    Guest::new(&tools, &kernel, &machine, args.machine.cgroup)?.shell(&job, &size)?;
    Ok(0)
}

fn run_matrix(cache: &Cache, args: &MatrixArgs, require: bool) -> Result<i32> {
    let tools = deps::tools()?;
    let series = if args.kernels.is_empty() { Series::ALL.to_vec() } else { args.kernels.clone() };
    let mut cells = matrix::cells(&series, &args.tiers);
    matrix::add(&mut cells, &args.also);
    let shell = |line: &String| (line.clone(), vec!["/bin/sh".to_owned(), "-c".to_owned(), line.clone()]);
    let mut commands: Vec<_> = args.shell_commands.iter().map(shell).collect();
    if !args.command.is_empty() {
        commands.push((args.command.join(" "), args.command.clone()));
    }
    // The commands that share a guest, then each that has one for itself.
    let mut groups = vec![(0..commands.len()).collect::<Vec<_>>()];
    groups.extend((0..args.apart.len()).map(|index| vec![commands.len() + index]));
    groups.retain(|group| !group.is_empty());
    commands.extend(args.apart.iter().map(shell));
    if commands.is_empty() {
        bail!("a matrix needs a command: --cmd LINE, --apart LINE, or -- CMD");
    }
    let (mut jobs, mut labels) = (Vec::new(), Vec::new());
    for (label, argv) in commands {
        jobs.push(Job::new(argv, &args.machine.env)?);
        labels.push(label);
    }
    let allow = allow_list(args.allow.as_deref())?;
    let matrix = Matrix {
        cache,
        tools: &tools,
        cpus: args.machine.cpus,
        memory_mib: args.machine.memory,
        append: &args.machine.append,
        cgroup: args.machine.cgroup,
        jobs: &jobs,
        labels: &labels,
        groups: &groups,
        limit: Duration::from_secs(args.timeout),
        allow: &allow,
        out: args.out.clone(),
        verbose: args.verbose,
    };
    let start = Instant::now();
    let rows = matrix::run(&matrix, &cells, args.guests);
    print!("{}", summary::table(&rows, &labels, start.elapsed()));
    let missing = rows.iter().filter(|row| row.session.is_err()).count();
    let counts = summary::count(&rows);
    Ok(match () {
        () if counts.failed > 0 || (require && missing > 0) => 1,
        // Not one guest ran, so nothing was tested.
        () if missing == rows.len() => EXIT_SKIPPED,
        () => 0,
    })
}

fn fetch(cache: &Cache, all: &[Series], debug: bool, update: bool) -> Result<i32> {
    // Checks that need no download come first.
    deps::tools()?;
    for &series in all {
        describe(series.name(), &kernel::fetch(cache, series, Flavour::CloudAmd64, update)?);
    }
    if debug {
        describe("debug", &debug::build(cache)?);
    }
    Ok(0)
}

fn list(cache: &Cache) -> Result<i32> {
    for series in Series::ALL {
        match kernel::cached(cache, series, Flavour::CloudAmd64) {
            Some(kernel) => describe(series.name(), &kernel),
            None => println!("{:8}not fetched", series.name()),
        }
        let others = Flavour::ALL.into_iter().filter(|flavour| *flavour != Flavour::CloudAmd64);
        for kernel in others.filter_map(|flavour| kernel::cached(cache, series, flavour)) {
            describe(series.name(), &kernel);
        }
    }
    match debug::cached(cache) {
        Some(kernel) => describe("debug", &kernel),
        None => println!("{:8}not built", "debug"),
    }
    Ok(0)
}

fn describe(name: &str, kernel: &Kernel) {
    println!("{name:8}{:30}{:24}{}", kernel.release, kernel.version, kernel.dir.display());
}
