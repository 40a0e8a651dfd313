// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the programs of a family keep its tables.

use topstat_engine::abi::TS_BANK_TABLES;

/// The number of a bank among the banks of a CPU. The banks of a sample follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BankId(pub u32);

/// Where the programs keep a table, on each CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TablePlace {
    /// Its bank.
    pub bank: BankId,
    /// Its number in the bank, below `TS_BANK_TABLES`.
    pub table: u32,
}

impl TablePlace {
    /// The place of the table with this [`index`](Self::index).
    pub fn at(index: u32) -> Self {
        Self { bank: BankId(index / TS_BANK_TABLES), table: index % TS_BANK_TABLES }
    }

    /// The number of the table among the tables of all banks.
    pub fn index(self) -> u32 {
        self.bank.0 * TS_BANK_TABLES + self.table
    }
}
