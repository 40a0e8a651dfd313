// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads of the source, shared by all clients: a table is read at most once in 100 ms, by one reader at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use serde_json::Value;
use tokio::sync::{Mutex as Turn, Semaphore};
use topstat_model::{Snapshot, document};

use crate::source::{Fault, Source, Table};

/// How long a document is shared.
pub const SHARED: Duration = Duration::from_millis(100);
/// How long the list of tables is used before it is read again.
const LIST: Duration = Duration::from_secs(60);
/// The same, where a table is asked for that is not in it.
const LIST_AGAIN: Duration = Duration::from_secs(2);
/// How long a request waits for the source.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a request for history waits.
const PATIENCE_PAST: Duration = Duration::from_secs(30);

/// A document of a table, with what is known of it.
pub struct Shot {
    /// The document: one line.
    pub document: Bytes,
    /// The time in the document.
    pub time: String,
    /// The table.
    pub table: Arc<Table>,
    parsed: OnceLock<Arc<Snapshot>>,
}

impl Shot {
    fn new(table: &Arc<Table>, document: &[u8]) -> Result<Self, Fault> {
        let wrong = || Fault::Unavailable(format!("{}: the daemon gave no document of this version", table.path()));
        let time = time_of(document).ok_or_else(wrong)?.to_owned();
        let document = Bytes::copy_from_slice(document);
        Ok(Self { document, time, table: Arc::clone(table), parsed: OnceLock::new() })
    }

    /// The document as a snapshot, parsed once.
    ///
    /// # Errors
    ///
    /// The document is not of this version.
    pub fn snapshot(&self) -> Result<Arc<Snapshot>, Fault> {
        if let Some(parsed) = self.parsed.get() {
            return Ok(Arc::clone(parsed));
        }
        let read = document::read(&self.document, |_, _| Some(self.table.shape()));
        let read = read.map_err(|error| Fault::Unavailable(format!("{}: {error}", self.table.path())))?;
        Ok(Arc::clone(self.parsed.get_or_init(|| Arc::new(read))))
    }
}

/// The time of a document, without parsing all of it: the first key.
fn time_of(document: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(document).ok()?.strip_prefix("{\"time\":\"")?;
    text.split_once('"').map(|(time, _)| time)
}

/// A value that was read at a time.
type Read<T> = Turn<Option<(Instant, T)>>;

/// The tables, by their paths.
pub type Tables = Arc<Vec<Arc<Table>>>;

/// The source, with the documents that clients share.
pub struct Live {
    source: Arc<dyn Source>,
    tables: Read<Tables>,
    shots: Mutex<HashMap<String, Arc<Read<Arc<Shot>>>>>,
    host: Read<Value>,
    /// One reads the present, and one the past; others wait.
    present: Arc<Semaphore>,
    past: Arc<Semaphore>,
}

impl Live {
    /// Shares the reads of a source.
    pub fn new(source: Arc<dyn Source>) -> Self {
        let (present, past) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(1)));
        let (tables, host, shots) = (Turn::default(), Turn::default(), Mutex::default());
        Self { source, tables, shots, host, present, past }
    }

    /// Runs a read of the present.
    ///
    /// # Errors
    ///
    /// Errors of the read; [`Fault::Unavailable`] after 5 s without an answer.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Source) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        self.run(&self.present, PATIENCE, read).await
    }

    /// Runs a read of the past.
    ///
    /// # Errors
    ///
    /// As [`Live::read`], after 30 s.
    pub async fn read_past<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Source) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        self.run(&self.past, PATIENCE_PAST, read).await
    }

    /// A read that does not end keeps its permit, so that the number of threads is bounded; its client gets an error in time.
    async fn run<T: Send + 'static>(
        &self,
        turn: &Arc<Semaphore>,
        patience: Duration,
        read: impl FnOnce(&dyn Source) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let source = Arc::clone(&self.source);
        let late = || Fault::Unavailable(format!("no answer within {} s; is the daemon stuck?", patience.as_secs()));
        let work = async {
            let permit = Arc::clone(turn).acquire_owned().await.map_err(|_| late())?;
            let done = tokio::task::spawn_blocking(move || {
                let result = read(&*source);
                drop(permit);
                result
            });
            done.await.unwrap_or_else(|_| Err(Fault::Unavailable("a read failed unexpectedly; see the log".to_owned())))
        };
        tokio::time::timeout(patience, work).await.unwrap_or_else(|_| Err(late()))
    }

    /// The tables, as of the last minute.
    ///
    /// # Errors
    ///
    /// See [`Source::tables`].
    pub async fn tables(&self) -> Result<Tables, Fault> {
        self.tables_of(LIST).await
    }

    /// The tables, in a list of at most this age.
    async fn tables_of(&self, age: Duration) -> Result<Tables, Fault> {
        let mut kept = self.tables.lock().await;
        if let Some((at, tables)) = &*kept
            && at.elapsed() < age
        {
            return Ok(Arc::clone(tables));
        }
        let tables = self.read(|source| source.tables()).await?;
        let tables: Tables = Arc::new(tables.into_iter().map(Arc::new).collect());
        let mut shots = self.shots.lock().unwrap_or_else(PoisonError::into_inner);
        shots.retain(|path, _| tables.iter().any(|table| table.path() == *path));
        drop(shots);
        *kept = Some((Instant::now(), Arc::clone(&tables)));
        Ok(tables)
    }

    /// A table by its path.
    ///
    /// # Errors
    ///
    /// [`Fault::Missing`], and errors of [`Live::tables`].
    pub async fn table(&self, path: &str) -> Result<Arc<Table>, Fault> {
        let find = |tables: &Tables| tables.iter().find(|table| table.path() == path).cloned();
        let mut found = find(&self.tables().await?);
        if found.is_none() {
            found = find(&self.tables_of(LIST_AGAIN).await?);
        }
        found.ok_or_else(|| Fault::Missing(format!("there is no table {path}, or it is off; see /api/v1/tables")))
    }

    /// The present document of a table, at most 100 ms old.
    ///
    /// # Errors
    ///
    /// See [`Live::table`], [`Live::read`].
    pub async fn shot(&self, path: &str) -> Result<Arc<Shot>, Fault> {
        let table = self.table(path).await?;
        let slot = {
            let mut shots = self.shots.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(shots.entry(path.to_owned()).or_default())
        };
        let mut kept = slot.lock().await;
        if let Some((at, shot)) = &*kept
            && at.elapsed() < SHARED
        {
            return Ok(Arc::clone(shot));
        }
        let shots = self.shots_of(vec![table]).await?;
        let shot = shots.into_iter().next().unwrap_or_else(|| Err(Fault::Missing(format!("no document of {path}"))))?;
        *kept = Some((Instant::now(), Arc::clone(&shot)));
        Ok(shot)
    }

    /// Documents of these tables, read now, in one go.
    ///
    /// # Errors
    ///
    /// See [`Source::documents`].
    pub async fn shots_of(&self, tables: Vec<Arc<Table>>) -> Result<Vec<Result<Arc<Shot>, Fault>>, Fault> {
        self.read(move |source| {
            let paths: Vec<_> = tables.iter().map(|table| table.path()).collect();
            let mut shots: Vec<_> = paths.iter().map(|_| None).collect();
            source.documents(&paths, &mut |number, document| {
                let shot = document.and_then(|document| Shot::new(&tables[number], document));
                shots[number] = Some(shot.map(Arc::new));
            })?;
            let unread = || Err(Fault::Unavailable("the source left the table out".to_owned()));
            Ok(shots.into_iter().map(|shot| shot.unwrap_or_else(unread)).collect())
        })
        .await
    }

    /// The host's document, shared as a table's document is.
    ///
    /// # Errors
    ///
    /// See [`Live::read`].
    pub async fn host(&self) -> Result<Value, Fault> {
        let mut kept = self.host.lock().await;
        if let Some((at, host)) = &*kept
            && at.elapsed() < SHARED
        {
            return Ok(host.clone());
        }
        let host = self.read(|source| Ok(source.host())).await?;
        *kept = Some((Instant::now(), host.clone()));
        Ok(host)
    }
}
