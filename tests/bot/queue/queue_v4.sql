-- What version 4 itself wrote, dumped.
PRAGMA user_version = 4;
BEGIN TRANSACTION;
CREATE TABLE jobs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    delivery_id TEXT NOT NULL UNIQUE,
    repo_id INTEGER NOT NULL,
    thread INTEGER NOT NULL,
    installation INTEGER,
    actor_id INTEGER NOT NULL,
    lane TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    attempts INTEGER NOT NULL DEFAULT 0,
    worker TEXT,
    lease_until REAL,
    held_until REAL NOT NULL DEFAULT 0,
    waits_until REAL,
    enqueued_at REAL NOT NULL,
    begun_at REAL,
    finished_at REAL,
    body TEXT
) STRICT;
INSERT INTO "jobs" VALUES(1,'forgotten','delivery-of-forgotten',10,90,30,20,'work','done','',1,NULL,NULL,1791944000.0,NULL,1791944000.0,1791944000.0,1791944000.0,NULL);
INSERT INTO "jobs" VALUES(2,'done','delivery-of-done',10,1,30,20,'work','done','told',1,NULL,NULL,1795395000.0,NULL,1795395000.0,1795395000.0,1795395005.0,'{"id":"done","delivery_id":"delivery-of-done","repo":{"id":10,"full_name":"octo/calc","private":false},"thread":{"kind":"issue","number":1,"title":"Adding is off by one","body":"`add(1, 1)` gives 3.\n\u0000 ä","author":"mona","branch":""},"actor":{"id":20,"login":"hubot-owner"},"origin":{"kind":"comment","id":900,"at":"2026-01-02T03:04:05Z","root":0,"lines":null,"name":"","url":"","conclusion":"","vouched":false},"command":{"goal":"mend it","options":{"model":null,"budget_usd":null,"max_steps":null,"base":null,"dry_run":false,"new":false},"plan":"","verb":"fix"},"installation":30,"others":[],"trigger":"/codepilot","head_sha":""}');
INSERT INTO "jobs" VALUES(3,'refused','delivery-of-refused',10,2,30,20,'work','refused','may not command',1,NULL,NULL,1795395005.0,NULL,1795395005.0,1795395005.0,1795395005.0,'{"id":"refused","delivery_id":"delivery-of-refused","repo":{"id":10,"full_name":"octo/calc","private":false},"thread":{"kind":"issue","number":2,"title":"Adding is off by one","body":"`add(1, 1)` gives 3.","author":"mona","branch":""},"actor":{"id":20,"login":"hubot-owner"},"origin":{"kind":"comment","id":900,"at":"2026-01-02T03:04:05Z","root":0,"lines":null,"name":"","url":"","conclusion":"","vouched":false},"command":{"goal":"mend it","options":{"model":null,"budget_usd":null,"max_steps":null,"base":null,"dry_run":false,"new":false},"plan":"","verb":"fix"},"installation":30,"others":[],"trigger":"/codepilot","head_sha":""}');
INSERT INTO "jobs" VALUES(4,'untold','delivery-of-untold',10,3,30,20,'work','failed','no',1,NULL,NULL,1795395005.0,NULL,1795395005.0,1795395005.0,1795395005.0,'{"id":"untold","delivery_id":"delivery-of-untold","repo":{"id":10,"full_name":"octo/calc","private":false},"thread":{"kind":"issue","number":3,"title":"Adding is off by one","body":"`add(1, 1)` gives 3.","author":"mona","branch":""},"actor":{"id":20,"login":"hubot-owner"},"origin":{"kind":"comment","id":900,"at":"2026-01-02T03:04:05Z","root":0,"lines":null,"name":"","url":"","conclusion":"","vouched":false},"command":{"goal":"mend it","options":{"model":null,"budget_usd":null,"max_steps":null,"base":null,"dry_run":false,"new":false},"plan":"","verb":"fix"},"installation":30,"others":[],"trigger":"/codepilot","head_sha":""}');
INSERT INTO "jobs" VALUES(5,'stopped','delivery-of-stopped',10,4,30,20,'work','stopped','closed',0,NULL,NULL,1795396405.0,NULL,1795396405.0,NULL,1795396405.0,'{"id":"stopped","delivery_id":"delivery-of-stopped","repo":{"id":10,"full_name":"octo/calc","private":false},"thread":{"kind":"issue","number":4,"title":"Adding is off by one","body":"`add(1, 1)` gives 3.","author":"mona","branch":""},"actor":{"id":20,"login":"hubot-owner"},"origin":{"kind":"comment","id":900,"at":"2026-01-02T03:04:05Z","root":0,"lines":null,"name":"","url":"","conclusion":"","vouched":false},"command":{"goal":"mend it","options":{"model":null,"budget_usd":null,"max_steps":null,"base":null,"dry_run":false,"new":false},"plan":"","verb":"fix"},"installation":30,"others":[],"trigger":"/codepilot","head_sha":""}');
INSERT INTO "jobs" VALUES(6,'answerable','delivery-of-answerable',10,5,30,20,'work','waiting','',0,NULL,NULL,1795396405.0,4000000000.0,1795396405.0,1795396405.0,NULL,'{"id":"answerable","delivery_id":"delivery-of-answerable","repo":{"id":10,"full_name":"octo/calc","private":false},"thread":{"kind":"issue","number":5,"title":"Adding is off by one","body":"`add(1, 1)` gives 3.","author":"mona","branch":""},"actor":{"id":20,"login":"hubot-owner"},"origin":{"kind":"comment","id":900,"at":"2026-01-02T03:04:05Z","root":0,"lines":null,"name":"","url":"","conclusion":"","vouched":false},"command":{"goal":"mend it","options":{"model":null,"budget_usd":null,"max_steps":null,"base":null,"dry_run":false,"new":false},"plan":"","verb":"fix"},"installation":30,"others":[],"trigger":"/codepilot","head_sha":""}');
INSERT INTO "jobs" VALUES(7,'timed','delivery-of-timed',10,6,30,20,'work','waiting','',0,NULL,NULL,1795396405.0,1795400060.0,1795396405.0,1795396405.0,NULL,'{"id":"timed","delivery_id":"delivery-of-timed","repo":{"id":10,"full_name":"octo/calc","private":false},"thread":{"kind":"issue","number":6,"title":"Adding is off by one","body":"`add(1, 1)` gives 3.","author":"mona","branch":""},"actor":{"id":20,"login":"hubot-owner"},"origin":{"kind":"comment","id":900,"at":"2026-01-02T03:04:05Z","root":0,"lines":null,"name":"","url":"","conclusion":"","vouched":false},"command":{"goal":"mend it","options":{"model":null,"budget_usd":null,"max_steps":null,"base":null,"dry_run":false,"new":false},"plan":"","verb":"fix"},"installation":30,"others":[],"trigger":"/codepilot","head_sha":""}');
INSERT INTO "jobs" VALUES(8,'suspect','delivery-of-suspect',10,8,30,20,'work','queued','',2,NULL,NULL,1795396465.0,NULL,1795396405.0,1795396405.0,NULL,'{"id":"suspect","delivery_id":"delivery-of-suspect","repo":{"id":10,"full_name":"octo/calc","private":false},"thread":{"kind":"issue","number":8,"title":"Adding is off by one","body":"`add(1, 1)` gives 3.","author":"mona","branch":""},"actor":{"id":20,"login":"hubot-owner"},"origin":{"kind":"comment","id":900,"at":"2026-01-02T03:04:05Z","root":0,"lines":null,"name":"","url":"","conclusion":"","vouched":false},"command":{"goal":"mend it","options":{"model":null,"budget_usd":null,"max_steps":null,"base":null,"dry_run":false,"new":false},"plan":"","verb":"fix"},"installation":30,"others":[],"trigger":"/codepilot","head_sha":""}');
INSERT INTO "jobs" VALUES(9,'running','delivery-of-running',10,7,30,20,'work','running','',1,'w1',1795397005.0,1795396405.0,NULL,1795396405.0,1795396405.0,NULL,'{"id":"running","delivery_id":"delivery-of-running","repo":{"id":10,"full_name":"octo/calc","private":false},"thread":{"kind":"issue","number":7,"title":"Adding is off by one","body":"`add(1, 1)` gives 3.","author":"mona","branch":""},"actor":{"id":20,"login":"hubot-owner"},"origin":{"kind":"comment","id":900,"at":"2026-01-02T03:04:05Z","root":0,"lines":null,"name":"","url":"","conclusion":"","vouched":false},"command":{"goal":"mend it","options":{"model":null,"budget_usd":null,"max_steps":null,"base":null,"dry_run":false,"new":false},"plan":"","verb":"fix"},"installation":30,"others":[],"trigger":"/codepilot","head_sha":""}');
INSERT INTO "jobs" VALUES(10,'behind','delivery-of-behind',10,7,30,20,'work','queued','',0,NULL,NULL,1795396405.0,NULL,1795396405.0,NULL,NULL,'{"id":"behind","delivery_id":"delivery-of-behind","repo":{"id":10,"full_name":"octo/calc","private":false},"thread":{"kind":"issue","number":7,"title":"Adding is off by one","body":"`add(1, 1)` gives 3.","author":"mona","branch":""},"actor":{"id":20,"login":"hubot-owner"},"origin":{"kind":"comment","id":900,"at":"2026-01-02T03:04:05Z","root":0,"lines":null,"name":"","url":"","conclusion":"","vouched":false},"command":{"goal":"mend it","options":{"model":null,"budget_usd":null,"max_steps":null,"base":null,"dry_run":false,"new":false},"plan":"","verb":"fix"},"installation":30,"others":[],"trigger":"/codepilot","head_sha":""}');
INSERT INTO "jobs" VALUES(11,'queued','delivery-of-queued',10,9,30,20,'work','queued','',0,NULL,NULL,1795396405.0,NULL,1795396405.0,NULL,NULL,'{"id":"queued","delivery_id":"delivery-of-queued","repo":{"id":10,"full_name":"octo/calc","private":false},"thread":{"kind":"issue","number":9,"title":"Adding is off by one","body":"`add(1, 1)` gives 3.","author":"mona","branch":""},"actor":{"id":20,"login":"hubot-owner"},"origin":{"kind":"comment","id":900,"at":"2026-01-02T03:04:05Z","root":0,"lines":null,"name":"","url":"","conclusion":"","vouched":false},"command":{"goal":"mend it","options":{"model":null,"budget_usd":null,"max_steps":null,"base":null,"dry_run":false,"new":false},"plan":"","verb":"fix"},"installation":30,"others":[],"trigger":"/codepilot","head_sha":""}');
INSERT INTO "jobs" VALUES(12,'held','delivery-of-held',10,10,30,20,'work','queued','',0,NULL,NULL,4000000000.0,NULL,1795396405.0,NULL,NULL,'{"id":"held","delivery_id":"delivery-of-held","repo":{"id":10,"full_name":"octo/calc","private":false},"thread":{"kind":"issue","number":10,"title":"Adding is off by one","body":"`add(1, 1)` gives 3.","author":"mona","branch":""},"actor":{"id":20,"login":"hubot-owner"},"origin":{"kind":"comment","id":900,"at":"2026-01-02T03:04:05Z","root":0,"lines":null,"name":"","url":"","conclusion":"","vouched":false},"command":{"goal":"mend it","options":{"model":null,"budget_usd":null,"max_steps":null,"base":null,"dry_run":false,"new":false},"plan":"","verb":"fix"},"installation":30,"others":[],"trigger":"/codepilot","head_sha":""}');
INSERT INTO "jobs" VALUES(13,'stop','delivery-of-stop',10,7,30,20,'steer','queued','',0,NULL,NULL,1795396405.0,NULL,1795396405.0,NULL,NULL,'{"id":"stop","delivery_id":"delivery-of-stop","repo":{"id":10,"full_name":"octo/calc","private":false},"thread":{"kind":"issue","number":7,"title":"Adding is off by one","body":"`add(1, 1)` gives 3.","author":"mona","branch":""},"actor":{"id":20,"login":"hubot-owner"},"origin":{"kind":"comment","id":900,"at":"2026-01-02T03:04:05Z","root":0,"lines":null,"name":"","url":"","conclusion":"","vouched":false},"command":{"verb":"stop"},"installation":30,"others":[],"trigger":"/codepilot","head_sha":""}');
INSERT INTO "jobs" VALUES(14,'closed','delivery-of-closed',10,11,30,20,'event','queued','',0,NULL,NULL,1795396405.0,NULL,1795396405.0,NULL,NULL,'{"id":"closed","delivery_id":"delivery-of-closed","repo":{"id":10,"full_name":"octo/calc","private":false},"thread":{"kind":"issue","number":11,"title":"Adding is off by one","body":"`add(1, 1)` gives 3.","author":"mona","branch":""},"actor":{"id":20,"login":"hubot-owner"},"origin":{"kind":"comment","id":900,"at":"2026-01-02T03:04:05Z","root":0,"lines":null,"name":"","url":"","conclusion":"","vouched":false},"command":{"how":"closed","verb":"closed"},"installation":30,"others":[],"trigger":"/codepilot","head_sha":""}');
CREATE TABLE labels (
    repo_id INTEGER NOT NULL,
    thread INTEGER NOT NULL,
    name TEXT NOT NULL COLLATE NOCASE,
    labeller_id INTEGER NOT NULL,
    labeller_login TEXT NOT NULL,
    bound_to TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (repo_id, thread, name)
) STRICT, WITHOUT ROWID;
INSERT INTO "labels" VALUES(10,7,'Codepilot:Auto',20,'octo','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',1795400000.0);
INSERT INTO "labels" VALUES(10,7,'ÄRGER',20,'octo','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',1795400000.0);
INSERT INTO "labels" VALUES(10,7,'ärger',20,'octo','bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb',1795400001.0);
CREATE TABLE owed (
    job_id TEXT PRIMARY KEY REFERENCES jobs (id),
    since REAL NOT NULL,
    next_at REAL NOT NULL,
    tries INTEGER NOT NULL,
    worker TEXT
) STRICT, WITHOUT ROWID;
INSERT INTO "owed" VALUES('stopped',1795396405.0,1795396405.0,0,NULL);
INSERT INTO "owed" VALUES('untold',1795395005.0,1795396435.0,2,NULL);
CREATE TABLE records (
    job_id TEXT PRIMARY KEY REFERENCES jobs (id),
    body TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "records" VALUES('answerable','{"version": 1, "seen": true, "greeted_at": null, "comment": {"requests": 0, "posted": null, "below": false}, "parts": {}, "check": {"head_sha": null, "requests": 0, "posted": null}, "base_sha": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "generation": null, "bound": false, "continues": null, "branch_number": null, "steps": 2, "progress": null, "denied": null, "approvals": {"waiting": {"kind": "permission", "request_id": "1df8dc30", "reason": "The command is protected.", "preview": "git push", "bound_to": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "until": 4000000000.0, "tree_sha": "", "like": []}, "shown": {"1df8dc30": {"request_id": "1df8dc30", "kind": "permission", "at": "2026-11-22T22:24:53Z", "since": 1795400000.0}}, "answers": {}, "alike_void": false}, "outage": null, "github_outage": null, "result": null, "verdict": null, "published": {"commit": null, "pull": null, "onto": null, "review_requested": false, "review_url": null}, "answering": null, "undoing": null, "leads_to": null, "ending": null}');
INSERT INTO "records" VALUES('done','{"version": 1, "seen": false, "greeted_at": null, "comment": {"requests": 1, "posted": {"id": 7, "url": "https://x/7"}, "below": false}, "parts": {}, "check": {"head_sha": null, "requests": 0, "posted": null}, "base_sha": null, "generation": null, "bound": false, "continues": null, "branch_number": null, "steps": 0, "progress": null, "denied": null, "approvals": {"waiting": null, "shown": {}, "answers": {}, "alike_void": false}, "outage": null, "github_outage": null, "result": null, "verdict": null, "published": {"commit": null, "pull": null, "onto": null, "review_requested": false, "review_url": null}, "answering": null, "undoing": null, "leads_to": null, "ending": {"state": "done", "body": "All is well; '' and \"", "check": null, "proven": true}}');
INSERT INTO "records" VALUES('running','{"version": 1, "seen": true, "greeted_at": null, "comment": {"requests": 0, "posted": null, "below": false}, "parts": {}, "check": {"head_sha": null, "requests": 0, "posted": null}, "base_sha": null, "generation": null, "bound": false, "continues": null, "branch_number": null, "steps": 0, "progress": null, "denied": null, "approvals": {"waiting": null, "shown": {}, "answers": {}, "alike_void": false}, "outage": null, "github_outage": null, "result": null, "verdict": null, "published": {"commit": {"sha": "cccccccccccccccccccccccccccccccccccccccc", "branch": "codepilot/issue-7-running"}, "pull": null, "onto": null, "review_requested": false, "review_url": null}, "answering": null, "undoing": null, "leads_to": null, "ending": null}');
INSERT INTO "records" VALUES('stopped','{"version": 1, "seen": false, "greeted_at": null, "comment": {"requests": 0, "posted": null, "below": false}, "parts": {}, "check": {"head_sha": null, "requests": 0, "posted": null}, "base_sha": null, "generation": null, "bound": false, "continues": null, "branch_number": null, "steps": 0, "progress": null, "denied": null, "approvals": {"waiting": null, "shown": {}, "answers": {}, "alike_void": false}, "outage": null, "github_outage": null, "result": null, "verdict": null, "published": {"commit": null, "pull": null, "onto": null, "review_requested": false, "review_url": null}, "answering": null, "undoing": null, "leads_to": null, "ending": {"state": "stopped", "body": "Closed.", "check": null, "proven": true}}');
INSERT INTO "records" VALUES('untold','{"version": 1, "seen": false, "greeted_at": null, "comment": {"requests": 0, "posted": null, "below": false}, "parts": {}, "check": {"head_sha": null, "requests": 0, "posted": null}, "base_sha": null, "generation": null, "bound": false, "continues": null, "branch_number": null, "steps": 0, "progress": null, "denied": null, "approvals": {"waiting": null, "shown": {}, "answers": {}, "alike_void": false}, "outage": null, "github_outage": null, "result": null, "verdict": null, "published": {"commit": null, "pull": null, "onto": null, "review_requested": false, "review_url": null}, "answering": null, "undoing": null, "leads_to": null, "ending": {"state": "failed", "body": "It failed.", "check": null, "proven": true}}');
CREATE TABLE signals (
    job_id TEXT NOT NULL REFERENCES jobs (id),
    number INTEGER NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    sender TEXT NOT NULL,
    PRIMARY KEY (job_id, number),
    UNIQUE (job_id, id)
) STRICT, WITHOUT ROWID;
INSERT INTO "signals" VALUES('running',1,'m1','message','look at b.py ä','mona');
INSERT INTO "signals" VALUES('running',2,'s1','stop','','mona');
CREATE TABLE suspects (
    job_id TEXT PRIMARY KEY REFERENCES jobs (id),
    deaths INTEGER NOT NULL,
    claimed_at REAL
) STRICT, WITHOUT ROWID;
INSERT INTO "suspects" VALUES('suspect',1,NULL);
CREATE TABLE told (
    repo_id INTEGER NOT NULL,
    thread INTEGER NOT NULL,
    cause TEXT NOT NULL,
    until REAL NOT NULL,
    PRIMARY KEY (repo_id, thread, cause)
) STRICT, WITHOUT ROWID;
INSERT INTO "told" VALUES(10,7,'locked',4000000000.0);
CREATE INDEX states ON jobs (state);
CREATE INDEX queued ON jobs (lane, seq) WHERE state = 'queued';
CREATE INDEX leases ON jobs (lease_until) WHERE state = 'running';
CREATE INDEX waits ON jobs (waits_until) WHERE state = 'waiting';
CREATE INDEX kept ON jobs (finished_at) WHERE body IS NOT NULL;
CREATE UNIQUE INDEX one_running_job_a_thread ON jobs (repo_id, thread) WHERE state = 'running' AND lane = 'work';
CREATE INDEX threads ON jobs (repo_id, thread, seq) WHERE lane = 'work';
CREATE INDEX begun_in_thread ON jobs (lane, repo_id, thread, begun_at, state) WHERE begun_at IS NOT NULL;
CREATE INDEX begun_in_repository ON jobs (lane, repo_id, begun_at, state) WHERE begun_at IS NOT NULL;
CREATE INDEX begun_by_user ON jobs (lane, actor_id, begun_at, state) WHERE begun_at IS NOT NULL;
CREATE INDEX begun_in_installation ON jobs (lane, installation, begun_at, state) WHERE begun_at IS NOT NULL;
CREATE INDEX told_until ON told (until);
CREATE INDEX owed_next ON owed (next_at);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('jobs',14);
COMMIT;
