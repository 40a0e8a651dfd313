// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows in another order, and connections whose two ends have rows.

use topstat_model::{Field, Snapshot, SortBy};

use crate::fixtures::{connection, with_rows};

/// A connection between two ports of this host, as the end with the port `own` sees it.
fn end(own: u16, peer: u16, comm: &str) -> Vec<Field> {
    let mut object = connection("127.0.0.1", "127.0.0.1", peer, comm, "/");
    object[1] = Field::from(own);
    object
}

fn values(snapshot: &Snapshot) -> Vec<u64> {
    snapshot.rows.iter().map(|row| row.value).collect()
}

#[test]
fn the_smaller_end_of_a_local_connection_goes_to_other() {
    let rows = [(90, end(1000, 80, "a")), (80, end(80, 1000, "b")), (70, end(1001, 80, "c")), (60, end(5, 6, "d"))];
    let mut snapshot = with_rows(rows.to_vec(), 310);
    snapshot.fold();
    assert_eq!((values(&snapshot), snapshot.other, snapshot.proven), (vec![90, 70, 60], 90, 3));
    assert_eq!(snapshot.rows.iter().map(|row| row.rank).collect::<Vec<_>>(), [1, 3, 4], "ranks stay");
    assert_eq!(snapshot.filter.as_ref().map(|filter| (filter.matched, filter.of)), Some((3, 4)));
    snapshot.check().unwrap();
}

#[test]
fn a_table_without_connections_is_not_folded() {
    let mut snapshot = with_rows(vec![(2, end(1, 2, "a")), (1, end(2, 1, "b"))], 3);
    snapshot.columns.truncate(3);
    snapshot.fold();
    assert_eq!((values(&snapshot), snapshot.other, snapshot.filter), (vec![2, 1], 0, None));
}

#[test]
fn rows_are_cut_off_after_they_are_sorted() {
    let rows = vec![(90, end(3, 80, "a")), (80, end(1, 80, "b")), (70, end(2, 80, "c"))];
    let sorted = |by: &str, most| {
        let mut snapshot = with_rows(rows.clone(), 250);
        snapshot.sort(SortBy::named(by, &snapshot).unwrap(), most);
        (values(&snapshot), snapshot.other, snapshot.proven)
    };
    assert_eq!(sorted("sport", Some(2)), (vec![80, 70], 100, 2));
    assert_eq!(sorted("comm", None), (vec![90, 80, 70], 10, 3));
    assert_eq!(sorted("tx", Some(1)), (vec![90], 160, 1));
}

#[test]
fn an_order_has_the_name_of_a_column_or_a_value() {
    let snapshot = with_rows(vec![(1, end(1, 2, "a"))], 1);
    let of = |name: &str| SortBy::named(name, &snapshot);
    assert_eq!(["rank", "value", "pps"].map(of), [Some(SortBy::Rank); 3]);
    assert_eq!((of("tx"), of("dport"), of("nothing")), (Some(SortBy::Part(1)), Some(SortBy::Column(3)), None));
}
