PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE facts (
    job_id TEXT NOT NULL REFERENCES jobs (id),
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (job_id, key)
) STRICT, WITHOUT ROWID;
INSERT INTO "facts" VALUES('done','comment','7');
INSERT INTO "facts" VALUES('done','ending','done
All is well; '' and "');
INSERT INTO "facts" VALUES('running','comment','8');
CREATE TABLE jobs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    delivery_id TEXT NOT NULL UNIQUE,
    repo_id INTEGER NOT NULL,
    thread INTEGER NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    attempts INTEGER NOT NULL DEFAULT 0,
    worker TEXT,
    lease_until REAL,
    enqueued_at REAL NOT NULL,
    finished_at REAL,
    body TEXT NOT NULL
) STRICT;
INSERT INTO "jobs" VALUES(1,'done','delivery-of-done',10,1,'done','told',1,NULL,NULL,1000.0,1002.0,'{"id":"done","delivery_id":"delivery-of-done","repo":{"id":10,"full_name":"octo/calc","private":false},"thread":{"kind":"issue","number":1,"title":"Adding is off by one","body":"`add(1, 1)` gives 3.\n\u0000 ä","author":"mona"},"actor":{"id":20,"login":"hubot-owner"},"comment_id":901,"command":{"goal":"mend it","verb":"fix"},"installation":30}');
INSERT INTO "jobs" VALUES(2,'running','delivery-of-running',10,2,'running','',1,'w1',1602.0,1000.0,NULL,'{"id":"running","delivery_id":"delivery-of-running","repo":{"id":10,"full_name":"octo/calc","private":false},"thread":{"kind":"pull","number":2,"title":"Adding is off by one","body":"`add(1, 1)` gives 3.\n\u0000 ä","author":"mona"},"actor":{"id":20,"login":"hubot-owner"},"comment_id":902,"command":{"goal":"","verb":"fix"},"installation":30}');
INSERT INTO "jobs" VALUES(3,'queued','delivery-of-queued',10,2,'queued','',0,NULL,NULL,1000.0,NULL,'{"id":"queued","delivery_id":"delivery-of-queued","repo":{"id":10,"full_name":"octo/calc","private":false},"thread":{"kind":"issue","number":2,"title":"Adding is off by one","body":"`add(1, 1)` gives 3.\n\u0000 ä","author":"mona"},"actor":{"id":20,"login":"hubot-owner"},"comment_id":902,"command":{"goal":"ä","verb":"fix"},"installation":null}');
INSERT INTO "jobs" VALUES(4,'help','delivery-of-help',10,3,'queued','',0,NULL,NULL,1000.0,NULL,'{"id":"help","delivery_id":"delivery-of-help","repo":{"id":10,"full_name":"octo/calc","private":false},"thread":{"kind":"issue","number":3,"title":"Adding is off by one","body":"`add(1, 1)` gives 3.\n\u0000 ä","author":"mona"},"actor":{"id":20,"login":"hubot-owner"},"comment_id":903,"command":{"verb":"help"},"installation":30}');
INSERT INTO "jobs" VALUES(5,'unknown','delivery-of-unknown',10,4,'queued','',0,NULL,NULL,1000.0,NULL,'{"id":"unknown","delivery_id":"delivery-of-unknown","repo":{"id":10,"full_name":"octo/calc","private":false},"thread":{"kind":"issue","number":4,"title":"Adding is off by one","body":"`add(1, 1)` gives 3.\n\u0000 ä","author":"mona"},"actor":{"id":20,"login":"hubot-owner"},"comment_id":904,"command":{"word":"fxi","nearest":"fix","verb":"unknown"},"installation":30}');
CREATE INDEX states ON jobs (state);
CREATE INDEX waiting ON jobs (seq) WHERE state = 'queued';
CREATE UNIQUE INDEX one_running_job_a_thread ON jobs (repo_id, thread) WHERE state = 'running';
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('jobs',5);
COMMIT;
