// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A family that is made at run time is listed, loaded, read and pinned like a built-in one. The test uses a separate
//! process, because the other tests use the list of built-in families.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use topstat_kernel::pinned::{self, Adopted};
use topstat_kernel::{Family, Options, SampleInfo, Source, TableInfo};
use topstat_live::nest::Nest;
use topstat_live::role::{Role, say};
use topstat_live::{Case, case};

pub fn cases() -> Vec<Case> {
    vec![case!(a_family_made_at_run_time_is_as_any_other, Root)]
}

fn a_family_made_at_run_time_is_as_any_other() {
    let mut maker = Role::start("maker", &[]);
    maker.expect("read and pinned");
    maker.finish();
}

/// The tables of tasks, under other names.
fn copy_of(family: &Family) -> Family {
    let renamed = |sample: &Arc<SampleInfo>| {
        let name = format!("my_{}", sample.name);
        let table = |table: &Arc<TableInfo>| Arc::new(TableInfo { sample: name.clone(), ..TableInfo::clone(table) });
        let tables = sample.tables.iter().map(table).collect();
        Arc::new(SampleInfo { name: name.clone(), tables, ..SampleInfo::clone(sample) })
    };
    Family { name: "mine".to_owned(), samples: family.samples.iter().map(renamed).collect(), ..family.clone() }
}

/// Plays the role, if it is the role of this file.
pub fn play(role: &str, _: &[String]) -> Option<ExitCode> {
    (role == "maker").then(|| {
        maker();
        ExitCode::SUCCESS
    })
}

fn maker() {
    let built_in = topstat_families::catalogue().family_of("tasks").expect("a sample");
    assert!(topstat_families::catalogue().add(Family::clone(&built_in)).is_err(), "its name is taken");
    let odd = Family { name: "mine/too".to_owned(), ..copy_of(&built_in) };
    assert!(topstat_families::catalogue().add(odd).is_err(), "that is no name");
    let family = topstat_families::catalogue().add(copy_of(&built_in)).unwrap_or_else(|e| panic!("{e}"));
    assert!(topstat_families::catalogue().add(copy_of(&built_in)).is_err(), "there is one now");
    assert!(topstat_families::catalogue().samples().iter().any(|sample| sample.name == "my_cgroups"));
    let table = topstat_families::catalogue().find("my_tasks", "cpu").expect("it is listed");
    let options = Options { period_ms: 200, ..Options::default() };
    let mut source = topstat_kernel::load(&[Arc::clone(&table)], &options).unwrap_or_else(|e| panic!("{e}"));
    let read = |source: &mut dyn Source| {
        // A period, plus the slide in which it may have begun.
        std::thread::sleep(Duration::from_millis(300));
        let snapshot = source.snapshot(&table).unwrap_or_else(|e| panic!("{e}"));
        snapshot.check().unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!((snapshot.sample.as_str(), snapshot.table.as_str()), ("my_tasks", "cpu"));
        assert!(snapshot.total > 0 && !snapshot.rows.is_empty(), "{snapshot:?}");
    };
    read(source.as_mut());
    drop(source);
    let nest = Nest::new("run-time");
    let tables = [Arc::clone(&table)];
    let (state, adopted) = pinned::adopt(&nest.pins, &family, &tables, &options).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(adopted, Adopted::Loaded);
    drop(state);
    let state = pinned::open(&nest.pins, &family).unwrap_or_else(|e| panic!("{e}")).expect("it is pinned");
    read(state.reader().unwrap_or_else(|e| panic!("{e}")).as_mut());
    say("read and pinned");
}
