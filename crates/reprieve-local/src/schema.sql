-- Format 3. The tables of a store; schema.rs says when they are made and which versions are read.

CREATE TABLE queue(
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE
) STRICT;

-- One row per message. A message is in line, or it is invisible: leased or delayed. The primary key is the order of
-- receipt and, with `rev`, the receipt itself: to renew or settle is one direct lookup, and to lease is one range read,
-- whatever the number of messages. A receive first gives the messages that are due their place in line.
--   invisible   0: in line. 1: leased or delayed
--   visible_at  in line: body.queued_at. Invisible: when the lease or the delay ends. Milliseconds since the Unix epoch
--   rev         counts the changes of hands, so that no old receipt ever fits again
--   holder      null: held by nobody. 0: held by a process that can't be told dead. Else session.id. It stays when the
--               lease ends, because the holder may still renew.
-- There is no index on holder: it would make every cycle of send, lease, renew and complete a sixth dearer. Without it
-- a process's death costs one pass over the rows that are invisible, 60 ms for a million of them.
CREATE TABLE msg(
  queue INTEGER NOT NULL,
  invisible INTEGER NOT NULL,
  visible_at INTEGER NOT NULL,
  id INTEGER NOT NULL,
  rev INTEGER NOT NULL DEFAULT 0,
  dequeues INTEGER NOT NULL DEFAULT 0,
  holder INTEGER,
  PRIMARY KEY(queue, invisible, visible_at, id)
) STRICT, WITHOUT ROWID;

-- Apart from msg, so that a renewal never rewrites a body. AUTOINCREMENT, so that an id is never used twice.
--   queued_at   when the message first became receivable: its place in line, which it keeps when a lease
--               or a delay ends
--   sent_at     when it was sent, or dead-lettered; a release does not change it
--   reason      why it is in the poison queue
CREATE TABLE body(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  queued_at INTEGER NOT NULL,
  sent_at INTEGER NOT NULL,
  reason TEXT,
  data BLOB NOT NULL
) STRICT;

-- The version is the row id: AUTOINCREMENT never gives one out twice, not even after a removal.
--   at          when it was written
--   note        what lists show of it
CREATE TABLE record(
  version INTEGER PRIMARY KEY AUTOINCREMENT,
  job TEXT NOT NULL UNIQUE,
  at INTEGER NOT NULL,
  note TEXT NOT NULL,
  data BLOB NOT NULL
) STRICT;

-- State that is too large for a record. A large payload is a file of payloads/, and data is null.
--   at          when it was written
CREATE TABLE payload(
  job TEXT NOT NULL,
  name TEXT NOT NULL,
  at INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  data BLOB,
  file TEXT,
  PRIMARY KEY(job, name),
  CHECK((data IS NULL) <> (file IS NULL))
) STRICT;
CREATE UNIQUE INDEX payload_file ON payload(file) WHERE file IS NOT NULL;

-- Inputs and outputs. A large blob is a file of blobs/, and data is null. The bytes come last, so that the columns before
-- them are read without them.
--   at          when it was written
--   version     random, so that no two writes have the same one
--   job, fence  the last owner that wrote the blob; null if only producers have
CREATE TABLE blob(
  name TEXT NOT NULL PRIMARY KEY,
  at INTEGER NOT NULL,
  version INTEGER NOT NULL,
  job TEXT,
  fence INTEGER,
  bytes INTEGER NOT NULL,
  file TEXT,
  data BLOB,
  CHECK((data IS NULL) <> (file IS NULL))
) STRICT;
CREATE INDEX blob_file ON blob(name, file) WHERE file IS NOT NULL;

-- The fences of owners that are no blob's last one: of deleted blobs, and of blobs that another job has written since.
-- A fence outlives its blob, because a superseded owner may still write it. It is swept a day after it came here.
CREATE TABLE fence(
  name TEXT NOT NULL,
  job TEXT NOT NULL,
  fence INTEGER NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY(name, job)
) STRICT, WITHOUT ROWID;

-- Processes, and the file of sessions/ that each keeps locked. AUTOINCREMENT: a holder is never another's.
CREATE TABLE session(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  token TEXT NOT NULL UNIQUE,
  worker TEXT
) STRICT;

CREATE TABLE report(
  worker TEXT PRIMARY KEY,
  at INTEGER NOT NULL,
  json TEXT NOT NULL
) STRICT, WITHOUT ROWID;
