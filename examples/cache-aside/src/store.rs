//! The persistent store: a SQLite database, in place of a server with tables that are joined at length.

use std::ops::Range;
use std::path::Path;

use rusqlite::{Connection, OpenFlags, Result, Transaction, TransactionBehavior, params};
use serde::{Deserialize, Serialize};

/// How many products there are. An order has each of them many times.
const PRODUCTS: u32 = 100;

/// After every 50th result, a tenth of the products gets other prices: the trigger plays the programs that change
/// rows, and does it at the same results in each run, so that runs can be compared. A result that was written twice
/// would show in the versions.
const SCHEMA: &str = "
    CREATE TABLE shop (id TEXT NOT NULL);
    INSERT INTO shop VALUES (hex(randomblob(16)));
    CREATE TABLE products (id INTEGER PRIMARY KEY, version INTEGER NOT NULL, price INTEGER NOT NULL);
    CREATE TABLE results (
        job TEXT NOT NULL, item INTEGER NOT NULL, version INTEGER NOT NULL, price INTEGER NOT NULL,
        PRIMARY KEY (job, item)
    ) WITHOUT ROWID;
    CREATE TRIGGER changes AFTER INSERT ON results WHEN new.item % 50 = 49 BEGIN
        UPDATE products SET version = version + 1, price = (id * 7919 + (version + 1) * 104729) % 1000
        WHERE id % 10 = new.item / 50 % 10;
    END;";

/// A row, and what the cache has of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Product {
    pub(crate) id: u32,
    /// Changes with the row.
    pub(crate) version: i64,
    pub(crate) price: i64,
}

/// The sum of an order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Total {
    pub(crate) items: u32,
    pub(crate) sum: i64,
}

/// A connection to the store.
pub(crate) struct Store(Connection);

impl Store {
    /// Makes a database with all products.
    pub(crate) fn prepare(path: &Path) -> Result<()> {
        let mut connection = Connection::open(path)?;
        let write = connection.transaction()?;
        write.execute_batch(SCHEMA)?;
        for id in 0..PRODUCTS {
            write.execute("INSERT INTO products VALUES (?1, 0, ?1 * 7919 % 1000)", [id])?;
        }
        write.commit()
    }

    pub(crate) fn open(path: &Path) -> Result<Self> {
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map(Self)
    }

    /// Writes the results of these items, once each, and returns the products that it had to read. What the cache has
    /// of a product is used only if its version is that of the row, in the transaction that writes the result: so
    /// no result depends on a row that has changed meanwhile.
    pub(crate) fn record(
        &mut self,
        job: &str,
        items: Range<u32>,
        cached: &[Option<Product>],
    ) -> Result<Vec<Product>> {
        let write = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut read = Vec::new();
        for (item, cached) in items.zip(cached) {
            let id = product_of(item);
            let version = version(&write, id)?;
            let product = match cached {
                Some(cached) if (cached.id, cached.version) == (id, version) => *cached,
                _ => {
                    let product = product(&write, id)?;
                    read.push(product);
                    product
                }
            };
            let values = params![job, item, product.version, product.price];
            write.prepare_cached("INSERT OR IGNORE INTO results VALUES (?, ?, ?, ?)")?.execute(values)?;
        }
        write.commit()?;
        Ok(read)
    }

    /// Returns the shop's id, which no other database has. Versions mean something in their own one only.
    pub(crate) fn shop(&self) -> Result<String> {
        self.0.query_row("SELECT id FROM shop", [], |row| row.get(0))
    }

    /// Adds up the results.
    pub(crate) fn total(&self, job: &str) -> Result<Total> {
        let query = "SELECT COUNT(*), SUM(price) FROM results WHERE job = ?";
        self.0.query_row(query, [job], |row| Ok(Total { items: row.get(0)?, sum: row.get(1)? }))
    }
}

/// The product of an item.
pub(crate) const fn product_of(item: u32) -> u32 {
    item % PRODUCTS
}

/// The cheap query.
fn version(write: &Transaction<'_>, id: u32) -> Result<i64> {
    write.prepare_cached("SELECT version FROM products WHERE id = ?")?.query_row([id], |row| row.get(0))
}

/// The one that the cache saves.
fn product(write: &Transaction<'_>, id: u32) -> Result<Product> {
    write
        .prepare_cached("SELECT version, price FROM products WHERE id = ?")?
        .query_row([id], |row| Ok(Product { id, version: row.get(0)?, price: row.get(1)? }))
}

#[cfg(test)]
impl Store {
    /// Returns the item, the version and the price of all results.
    pub(crate) fn results(&self) -> Result<Vec<(u32, i64, i64)>> {
        let mut results = self.0.prepare("SELECT item, version, price FROM results ORDER BY job, item")?;
        results.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect()
    }

    /// Returns the versions of all products.
    pub(crate) fn versions(&self) -> Result<Vec<i64>> {
        let mut versions = self.0.prepare("SELECT version FROM products ORDER BY id")?;
        versions.query_map([], |row| row.get(0))?.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_result_depends_on_a_copy_that_is_old() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("shop.db");
        Store::prepare(&path).expect("a database");
        let mut store = Store::open(&path).expect("a database");
        let copies = [0, 1, 2].map(|id| Product { id, version: 0, price: 5 });
        store.0.execute("UPDATE products SET version = 1, price = 77 WHERE id = 1", []).expect("a change");

        let cached = [Some(copies[0]), Some(copies[1]), None];
        let read = store.record("job", 0..3, &cached).expect("results");
        let of_row = |id: u32, version, price| Product { id, version, price };
        assert_eq!(read, [of_row(1, 1, 77), of_row(2, 0, 2 * 7919 % 1000)]);
        let results = store.results().expect("results");
        assert_eq!(results, [(0, 0, 5), (1, 1, 77), (2, 0, 838)]);

        // What another product has under this one's key is no copy of it, and no other shop has this one's copies.
        let strange = [Some(Product { id: 7, version: 0, price: 5 })];
        store.record("other", 0..1, &strange).expect("a result");
        assert_eq!(store.results().expect("results")[3], (0, 0, 0));
        let beside = directory.path().join("other.db");
        Store::prepare(&beside).expect("a database");
        assert_ne!(Store::open(&beside).and_then(|other| other.shop()), store.shop());
        store.0.execute("DELETE FROM results WHERE job = 'other'", []).expect("removed");

        // A step that is repeated later, when a row has changed once more, changes no result.
        store.0.execute("UPDATE products SET version = 2, price = 78 WHERE id = 1", []).expect("a change");
        store.record("job", 0..3, &cached).expect("results");
        assert_eq!(store.results().expect("results"), results);
    }
}
