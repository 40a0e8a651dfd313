// SPDX-License-Identifier: Apache-2.0 OR MIT
//! topstat on the running kernel, with real traffic, against a ground truth that topstat did not produce.
//!
//! Traffic stays on loopback, or in network namespaces that the tests make. Other traffic may exist on the host: rows
//! are told by their addresses.

mod additive;
mod cost;
mod crowd;
mod delay_roles;
mod delays;
mod exact;
mod exclusive;
mod generator;
mod groups;
mod networks;
mod offline;
mod owners;
mod pins;
mod pins_faults;
mod pins_owners;
mod protocols;
mod refused;
mod right;
mod roles;
mod rolling;
mod service;
mod soak;
mod storm;
mod syscall_faults;
mod task_roles;
mod task_tables;
mod tasks;
mod tasks_cli;
mod tree;
mod tree_faults;
mod tree_shares;
mod tree_stopped;
mod trouble;
mod tunnels;
mod unit;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some((role, arguments)) = topstat_live::role::own() {
        return roles::play(&role, &arguments);
    }
    let code = topstat_live::harness::run(vec![
        ("right", right::cases()),
        ("networks", networks::cases()),
        ("generator", generator::cases()),
        ("tunnels", tunnels::cases()),
        ("protocols", protocols::cases()),
        ("exclusive", exclusive::cases()),
        ("exact", exact::cases()),
        ("rolling", rolling::cases()),
        ("additive", additive::cases()),
        ("owners", owners::cases()),
        ("trouble", trouble::cases()),
        ("service", service::cases()),
        ("cost", cost::cases()),
        ("soak", soak::cases()),
        ("tree", tree::cases()),
        ("tree_faults", tree_faults::cases()),
        ("tree_shares", tree_shares::cases()),
        ("tree_stopped", tree_stopped::cases()),
        ("pins", pins::cases()),
        ("pins_faults", pins_faults::cases()),
        ("pins_owners", pins_owners::cases()),
        ("syscall_faults", syscall_faults::cases()),
        ("storm", storm::cases()),
        ("refused", refused::cases()),
        ("offline", offline::cases()),
        ("tasks_cli", tasks_cli::cases()),
        ("tasks", tasks::cases()),
        ("crowd", crowd::cases()),
        ("task_tables", task_tables::cases()),
        ("groups", groups::cases()),
        ("delays", delays::cases()),
        ("unit", unit::cases()),
    ]);
    println!(
        "snapshots taken and checked: {}",
        topstat_live::watch::CHECKED.load(std::sync::atomic::Ordering::Relaxed)
    );
    code
}
