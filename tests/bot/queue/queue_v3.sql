PRAGMA user_version = 3;
BEGIN TRANSACTION;
CREATE TABLE facts (
    job_id TEXT NOT NULL REFERENCES jobs (id),
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (job_id, key)
) STRICT, WITHOUT ROWID;
INSERT INTO "facts" VALUES('waits','alike void','yes');
INSERT INTO "facts" VALUES('waits','base','3f9b854b9f0977b50c235feaa9e15844bf5b5dac');
INSERT INTO "facts" VALUES('waits','below','the pull request');
INSERT INTO "facts" VALUES('waits','bound','yes');
INSERT INTO "facts" VALUES('waits','branch-number','2');
INSERT INTO "facts" VALUES('waits','check','1040 https://github.example/mona/calc/runs/1040');
INSERT INTO "facts" VALUES('waits','checked','3f9b854b9f0977b50c235feaa9e15844bf5b5dac');
INSERT INTO "facts" VALUES('waits','checking','begun');
INSERT INTO "facts" VALUES('waits','comment','1038 https://github.example/mona/calc/issues/3#issuecomment-1038');
INSERT INTO "facts" VALUES('waits','commenting','begun');
INSERT INTO "facts" VALUES('waits','continues','0');
INSERT INTO "facts" VALUES('waits','denied','[{"tool": "bash", "asked": "ls", "reason": "r", "setting": "level", "value": "auto"}]');
INSERT INTO "facts" VALUES('waits','draft','yes');
INSERT INTO "facts" VALUES('waits','greeted','1795386291.6672163');
INSERT INTO "facts" VALUES('waits','leads-to','j-next');
INSERT INTO "facts" VALUES('waits','meant','1df8dc30');
INSERT INTO "facts" VALUES('waits','model outage','{"since": 1000.0, "tries": 2, "steps": 3, "until": 1500.0}');
INSERT INTO "facts" VALUES('waits','onto','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa');
INSERT INTO "facts" VALUES('waits','part 7f3a 1 comment','77 https://x/77');
INSERT INTO "facts" VALUES('waits','part 7f3a 1 commenting','again');
INSERT INTO "facts" VALUES('waits','part 7f3a 2 commenting','begun');
INSERT INTO "facts" VALUES('waits','progress','{"activities": [{"label": "Writing calc.py", "state": "done"}], "checks": [], "running": [], "edits": {"first": 1795386293.5247147, "last": 1795386293.5247147}, "places": [], "failing": [], "rerun": null, "denied": [], "steps": 1, "usage": {"requests": 1, "input_tokens": 11, "cached_tokens": 0, "cache_write_tokens": 1402, "output_tokens": 47, "cost_usd": 0.0}, "network_lost": "", "reach": "network: nowhere.example", "warning": "", "awaits": "", "setup_failed": ""}');
INSERT INTO "facts" VALUES('waits','pull','12 https://github.com/o/r/pull/12');
INSERT INTO "facts" VALUES('waits','review','https://github.com/o/r/pull/4#pullrequestreview-9');
INSERT INTO "facts" VALUES('waits','reviewing','begun');
INSERT INTO "facts" VALUES('waits','seen','yes');
INSERT INTO "facts" VALUES('waits','shown 1df8dc30','{"request_id": "1df8dc30", "kind": "permission", "at": "2026-11-22T22:24:53Z", "since": 1795386293.6001189}');
INSERT INTO "facts" VALUES('waits','silent','1000.5 1200.25');
INSERT INTO "facts" VALUES('waits','steps','1');
INSERT INTO "facts" VALUES('waits','undoing','bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb main');
INSERT INTO "facts" VALUES('waits','unproven','yes');
INSERT INTO "facts" VALUES('waits','waiting','{"kind": "permission", "request_id": "1df8dc30", "reason": "This command is not among those that run without approval, and it could reach the network (nowhere.example).", "preview": "In terminal main, /workspace:\n$ echo ran >> ran.txt", "bound_to": "3f9b854b9f0977b50c235feaa9e15844bf5b5dac", "until": 1795645493.5712807, "tree_sha": "", "like": []}');
INSERT INTO "facts" VALUES('approves','meant','6d87d7e9');
INSERT INTO "facts" VALUES('done','answer 6d87d7e9','{"request_id": "6d87d7e9", "approved": true, "note": "", "by": {"id": 1001, "login": "mona"}, "like": []}');
INSERT INTO "facts" VALUES('done','base','3f9b854b9f0977b50c235feaa9e15844bf5b5dac');
INSERT INTO "facts" VALUES('done','bound','yes');
INSERT INTO "facts" VALUES('done','check','1016 https://github.example/mona/calc/runs/1016');
INSERT INTO "facts" VALUES('done','checked','3f9b854b9f0977b50c235feaa9e15844bf5b5dac');
INSERT INTO "facts" VALUES('done','checking','begun');
INSERT INTO "facts" VALUES('done','comment','1014 https://github.example/mona/calc/issues/1#issuecomment-1014');
INSERT INTO "facts" VALUES('done','commenting','begun');
INSERT INTO "facts" VALUES('done','commit','c200941ad85e8446112e963b172951e7916b5b05 codepilot/issue-1-done');
INSERT INTO "facts" VALUES('done','continues','0');
INSERT INTO "facts" VALUES('done','ending','done
### ⚠️ Not verified · `/codepilot fix` for @mona · 6 s · [run](https://github.example/mona/calc/runs/1016)

No known test, build or lint command ran.

**What the agent says**

Fixed `add`: it counted one too many.

**What changed** · [pull request #2](https://github.example/mona/calc/pull/2) · [commit `c200941`](https://github.example/mona/calc/commit/c200941ad85e8446112e963b172951e7916b5b05)

- `calc.py` +1 −1
- `ran.txt` added, +1 −0

<details><summary>What it did (2 actions)</summary>

- [x] `Writing calc.py`
- [x] `` Running `echo ran >> ran.txt` ``

</details>

<sub>1 step · 1,463 tokens · `scripted` · permission: `ask` · sandbox: `bubblewrap, network: nowhere.example` · job `done`</sub>

<!-- codepilot:job=done sig=62fc30b7c495ad79e91005d7edf555e2 -->');
INSERT INTO "facts" VALUES('done','ending-check','{"name": "Codepilot fix #1", "head_sha": "3f9b854b9f0977b50c235feaa9e15844bf5b5dac", "external_id": "done:issue:1:-", "status": "completed", "title": "Not verified: /codepilot fix", "summary": "### \u26a0\ufe0f Not verified \u00b7 `/codepilot fix` for @mona \u00b7 6 s \u00b7 [run](https://github.example/mona/calc/runs/1016)\n\nNo known test, build or lint command ran.\n\n**What the agent says**\n\nFixed `add`: it counted one too many.\n\n**What changed** \u00b7 [pull request #2](https://github.example/mona/calc/pull/2) \u00b7 [commit `c200941`](https://github.example/mona/calc/commit/c200941ad85e8446112e963b172951e7916b5b05)\n\n- `calc.py` +1\u00a0\u22121\n- `ran.txt` added, +1\u00a0\u22120\n\n<details><summary>What it did (2 actions)</summary>\n\n- [x] `Writing calc.py`\n- [x] `` Running `echo ran >> ran.txt` ``\n\n</details>\n\n<sub>1 step \u00b7 1,463 tokens \u00b7 `scripted` \u00b7 permission: `ask` \u00b7 sandbox: `bubblewrap, network: nowhere.example` \u00b7 job `done`</sub>", "conclusion": "neutral", "text": "", "annotations": [], "buttons": []}');
INSERT INTO "facts" VALUES('done','greeted','1795386286.990717');
INSERT INTO "facts" VALUES('done','progress','{"activities": [{"label": "Writing calc.py", "state": "done"}], "checks": [], "running": [], "edits": {"first": 1795386289.2942898, "last": 1795386289.2942898}, "places": [], "failing": [], "rerun": null, "denied": [], "steps": 1, "usage": {"requests": 1, "input_tokens": 11, "cached_tokens": 0, "cache_write_tokens": 1405, "output_tokens": 47, "cost_usd": 0.0}, "network_lost": "", "reach": "network: nowhere.example", "warning": "", "awaits": "", "setup_failed": ""}');
INSERT INTO "facts" VALUES('done','pull','2 https://github.example/mona/calc/pull/2');
INSERT INTO "facts" VALUES('done','seen','yes');
INSERT INTO "facts" VALUES('done','shown 6d87d7e9','{"request_id": "6d87d7e9", "kind": "permission", "at": "2026-11-22T22:24:49Z", "since": 1795386289.7793503}');
INSERT INTO "facts" VALUES('done','steps','1');
INSERT INTO "facts" VALUES('done','verdict','unverified');
INSERT INTO "facts" VALUES('done','waiting','{"kind": "permission", "request_id": "6d87d7e9", "reason": "This command is not among those that run without approval, and it could reach the network (nowhere.example).", "preview": "In terminal main, /workspace:\n$ echo ran >> ran.txt", "bound_to": "3f9b854b9f0977b50c235feaa9e15844bf5b5dac", "until": 1795645489.6347017, "tree_sha": "", "like": []}');
INSERT INTO "facts" VALUES('done','work','{"outcome": {"status": "finished", "summary": "Fixed `add`: it counted one too many.", "reason": null, "pending": null, "steps": 1, "usage": {"requests": 1, "input_tokens": 11, "cached_tokens": 0, "cache_write_tokens": 1405, "output_tokens": 47, "cost_usd": 0.0}, "seconds": 1.9171859199996106, "retry_after": null, "output_json": ""}, "progress": {"activities": [{"label": "Writing calc.py", "state": "done"}, {"label": "Running `echo ran >> ran.txt`", "state": "done"}], "checks": [], "running": [], "edits": {"first": 1795386289.2942898, "last": 1795386290.3010988}, "places": [["main", "/workspace"]], "failing": [], "rerun": null, "denied": [], "steps": 1, "usage": {"requests": 1, "input_tokens": 11, "cached_tokens": 0, "cache_write_tokens": 1405, "output_tokens": 47, "cost_usd": 0.0}, "network_lost": "", "reach": "network: nowhere.example", "warning": "", "awaits": "", "setup_failed": ""}, "base_sha": "3f9b854b9f0977b50c235feaa9e15844bf5b5dac", "tree_sha": "6fe4c3e8b36b9aaa0c355a76c883c52503f642c4"}');
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
INSERT INTO "jobs" VALUES(1,'done','af870038-c6b8-4788-9583-af33e5fc6f43',1002,1,1007,1001,'work','done','',1,NULL,NULL,0.0,NULL,1.79538628489098834985e+09,1.79538628700077843667e+09,1.79538629129230475423e+09,'{"id":"done","delivery_id":"af870038-c6b8-4788-9583-af33e5fc6f43","repo":{"id":1002,"full_name":"mona/calc","private":false},"thread":{"kind":"issue","number":1,"title":"Adding is off by one","body":"`add(1, 1)` gives 3.","author":"mona","branch":""},"actor":{"id":1001,"login":"mona"},"origin":{"kind":"comment","id":1011,"at":"2026-11-22T22:24:44Z","root":0,"lines":null,"name":"","url":"","conclusion":"","vouched":false},"command":{"goal":"","options":{"model":null,"budget_usd":null,"max_steps":null,"base":null,"dry_run":false,"new":false},"plan":"","verb":"fix"},"installation":1007,"others":[],"trigger":"/codepilot","head_sha":""}');
INSERT INTO "jobs" VALUES(2,'approves','6324b11d-8121-42a5-989c-ddd087aff77a',1002,1,1007,1001,'steer','done','',1,NULL,NULL,1.79538628978973054889e+09,NULL,1.79538628978973054889e+09,1.79538628979024863238e+09,1.79538628984289336202e+09,'{"id":"approves","delivery_id":"6324b11d-8121-42a5-989c-ddd087aff77a","repo":{"id":1002,"full_name":"mona/calc","private":false},"thread":{"kind":"issue","number":1,"title":"Adding is off by one","body":"`add(1, 1)` gives 3.","author":"mona","branch":""},"actor":{"id":1001,"login":"mona"},"origin":{"kind":"comment","id":1022,"at":"2026-11-22T22:24:49Z","root":0,"lines":null,"name":"","url":"","conclusion":"","vouched":false},"command":{"request_id":"6d87d7e9","like":false,"verb":"approve"},"installation":1007,"others":[],"trigger":"/codepilot","head_sha":""}');
INSERT INTO "jobs" VALUES(3,'waits','0f24e82c-706f-4a7a-b07a-e708a5b9d7d9',1002,3,1007,1001,'work','waiting','',0,NULL,NULL,0.0,1.79564549357128071778e+09,1.79538629131938481334e+09,1.79538629168730378155e+09,NULL,'{"id":"waits","delivery_id":"0f24e82c-706f-4a7a-b07a-e708a5b9d7d9","repo":{"id":1002,"full_name":"mona/calc","private":false},"thread":{"kind":"issue","number":3,"title":"Another","body":"`add(1, 1)` gives 3.","author":"mona","branch":""},"actor":{"id":1001,"login":"mona"},"origin":{"kind":"comment","id":1035,"at":"2026-11-22T22:24:51Z","root":0,"lines":null,"name":"","url":"","conclusion":"","vouched":false},"command":{"goal":"","options":{"model":null,"budget_usd":null,"max_steps":null,"base":null,"dry_run":false,"new":false},"plan":"","verb":"fix"},"installation":1007,"others":[],"trigger":"/codepilot","head_sha":""}');
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
CREATE TABLE owed (
    job_id TEXT PRIMARY KEY REFERENCES jobs (id),
    since REAL NOT NULL,
    next_at REAL NOT NULL,
    tries INTEGER NOT NULL,
    worker TEXT
) STRICT, WITHOUT ROWID;
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
CREATE TABLE suspects (
    job_id TEXT PRIMARY KEY REFERENCES jobs (id),
    deaths INTEGER NOT NULL,
    claimed_at REAL
) STRICT, WITHOUT ROWID;
CREATE TABLE told (
    repo_id INTEGER NOT NULL,
    thread INTEGER NOT NULL,
    cause TEXT NOT NULL,
    until REAL NOT NULL,
    PRIMARY KEY (repo_id, thread, cause)
) STRICT, WITHOUT ROWID;
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
INSERT INTO "sqlite_sequence" VALUES('jobs',3);
COMMIT;
