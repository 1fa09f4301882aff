"""What people do in threads, and what an App hears and reads of it."""

from __future__ import annotations

from tests.localhub.conftest import World, payloads_of, record_deliveries

R = "/repos/acme/widgets"


def topic(world: World, *, draft: bool = False) -> None:
    """A pull request #1 that changes `src/a.py`."""
    world.hub.commit(world.repo, {"src/a.py": "x = 2\n"}, message="Two", author="mona", branch="topic")
    world.hub.open_pull(world.repo, author="mona", head="topic", title="Two", draft=draft)


async def test_what_is_done_to_an_issue_is_told_with_who_did_it(world: World) -> None:
    record_deliveries(world)
    hub, repo = world.hub, world.repo
    hub.add_collaborator(repo, "tria", "triage")
    hub.open_issue(repo, author="eve", title="It breaks", labels=["bug"])
    hub.add_label(repo, 1, "now", by="tria")
    hub.remove_label(repo, 1, "BUG", by="mona")
    hub.assign(repo, 1, "codepilot[bot]", by="tria")
    hub.edit_thread(repo, 1, by="eve", body="Really.")
    hub.close(repo, 1, by="mona")
    hub.reopen(repo, 1, by="mona")
    told = [(each["action"], each["sender"]["login"]) for each in payloads_of(world, "issues")]
    assert told == [
        ("opened", "eve"),
        ("labeled", "eve"),
        ("labeled", "tria"),
        ("unlabeled", "mona"),
        ("assigned", "tria"),
        ("edited", "eve"),
        ("closed", "mona"),
        ("reopened", "mona"),
    ]
    labeled = payloads_of(world, "issues")[2]
    assert (labeled["label"]["name"], [each["name"] for each in labeled["issue"]["labels"]]) == ("now", ["bug", "now"])


async def test_what_is_done_to_a_pull_request_is_told_with_its_head(world: World) -> None:
    record_deliveries(world)
    hub, repo = world.hub, world.repo
    topic(world, draft=True)
    hub.add_label(repo, 1, "codepilot:auto", by="mona")
    newer = hub.commit(repo, {"src/a.py": "x = 3\n"}, message="Three", author="mona", branch="topic")
    hub.set_draft(repo, 1, draft=False, by="mona")
    hub.remove_label(repo, 1, "codepilot:auto", by="mona")
    hub.edit_thread(repo, 1, by="mona", title="Three")
    hub.close(repo, 1, by="mona")
    hub.reopen(repo, 1, by="mona")
    told = payloads_of(world, "pull_request")
    assert [each["action"] for each in told] == [
        "opened",
        "labeled",
        "synchronize",
        "ready_for_review",
        "unlabeled",
        "edited",
        "closed",
        "reopened",
    ]
    assert told[1]["label"]["name"] == "codepilot:auto"
    assert (told[2]["before"], told[2]["after"]) == (told[1]["pull_request"]["head"]["sha"], newer)
    assert (told[1]["pull_request"]["draft"], told[3]["pull_request"]["draft"]) == (True, False)
    assert told[5]["changes"] == {"title": {"from": "Two"}}


async def test_a_commit_through_graphql_moves_the_pull_requests_on_its_branch(world: World) -> None:
    record_deliveries(world)
    topic(world)
    head = world.hub.branches(world.repo)["topic"]
    commit = {
        "branch": {"repositoryNameWithOwner": "acme/widgets", "branchName": "topic"},
        "message": {"headline": "Three"},
        "expectedHeadOid": head,
        "fileChanges": {"deletions": [{"path": "README.md"}]},
    }
    query = "mutation($input: CreateCommitOnBranchInput!) { createCommitOnBranch(input: $input) { commit { oid } } }"
    reply = await world.bot.ask("POST", world.hub.graphql_url, {"query": query, "variables": {"input": commit}})
    sha = reply.body["data"]["createCommitOnBranch"]["commit"]["oid"]
    moved = payloads_of(world, "pull_request")[-1]
    assert (moved["action"], moved["after"], moved["sender"]["login"]) == ("synchronize", sha, "codepilot[bot]")


async def test_the_merge_state_is_known_after_the_first_question(world: World) -> None:
    topic(world)
    fields = "mergeable mergeStateStatus"
    query = f'{{ repository(owner: "acme", name: "widgets") {{ pullRequest(number: 1) {{ {fields} }} }} }}'

    async def states() -> tuple[object, ...]:
        body = (await world.owner.ask("GET", f"{R}/pulls/1")).body
        assert body["rebaseable"] == (body["mergeable"] if body["commits"] == 1 or not body["mergeable"] else None)
        answer = (await world.owner.ask("POST", world.hub.graphql_url, {"query": query})).body
        pull = answer["data"]["repository"]["pullRequest"]
        return body["mergeable"], body["mergeable_state"], pull["mergeable"], pull["mergeStateStatus"]

    assert await states() == (None, "unknown", "MERGEABLE", "CLEAN")
    assert await states() == (True, "clean", "MERGEABLE", "CLEAN")
    files = dict.fromkeys(("n.txt", "README.md", "src/a.py"), "of both\n")
    world.hub.commit(world.repo, {path: f"main {text}" for path, text in files.items()}, message="A", author="mona")
    world.hub.commit(world.repo, files, message="B", author="mona", branch="topic")
    assert await states() == (None, "unknown", "CONFLICTING", "DIRTY")
    assert await states() == (False, "dirty", "CONFLICTING", "DIRTY")


async def test_rules_checks_and_a_draft_decide_the_merge_state(world: World) -> None:
    hub, repo = world.hub, world.repo
    topic(world)
    contexts = "contexts(first: 9) { nodes { ... on StatusContext { isRequired(pullRequestNumber: 1) } } }"
    commits = f"commits(last: 1) {{ nodes {{ commit {{ statusCheckRollup {{ {contexts} }} }} }} }}"
    fields = f"mergeable mergeStateStatus {commits}"
    query = f'{{ repository(owner: "acme", name: "widgets") {{ pullRequest(number: 1) {{ {fields} }} }} }}'
    required: list[bool] = []

    async def state() -> str:
        await world.owner.ask("GET", f"{R}/pulls/1")
        body = (await world.owner.ask("GET", f"{R}/pulls/1")).body
        answer = (await world.owner.ask("POST", hub.graphql_url, {"query": query})).body
        pull = answer["data"]["repository"]["pullRequest"]
        assert (pull["mergeable"], pull["mergeStateStatus"]) == ("MERGEABLE", body["mergeable_state"].upper())
        assert (body["mergeable"], body["rebaseable"]) == (True, True)
        rollup = pull["commits"]["nodes"][0]["commit"]["statusCheckRollup"]
        required[:] = [node["isRequired"] for node in rollup["contexts"]["nodes"]] if rollup else []
        return str(body["mergeable_state"])

    async def report(status: str) -> None:
        sha = hub.branches(repo)["topic"]
        await world.owner.ask("POST", f"{R}/statuses/{sha}", {"state": status, "context": "build"})

    assert await state() == "clean"
    await report("failure")
    assert (await state(), required) == ("unstable", [False])
    parameters = {"required_status_checks": [{"context": "build"}], "strict_required_status_checks_policy": True}
    hub.add_rules(repo, {"type": "required_status_checks", "parameters": parameters}, branches="main")
    assert (await state(), required) == ("blocked", [True])
    await report("success")
    assert await state() == "clean"
    hub.commit(repo, {"n.txt": "n\n"}, message="N", author="mona")
    assert await state() == "behind"
    approval = {"type": "pull_request", "parameters": {"required_approving_review_count": 1}}
    hub.add_rules(repo, approval, branches="ma*")
    assert await state() == "blocked"
    hub.review(repo, 1, author="eve", state="APPROVED")
    assert await state() == "behind"
    hub.add_rules(repo, "update")
    assert await state() == "blocked"
    hub.set_draft(repo, 1, draft=True, by="mona")
    assert await state() == "draft"


async def test_a_pull_request_can_change_its_base(world: World) -> None:
    record_deliveries(world)
    topic(world)
    world.hub.commit(world.repo, {"n.txt": "n\n"}, message="N", author="mona", branch="next")
    reply = await world.owner.ask("PATCH", f"{R}/pulls/1", {"base": "next"})
    assert (reply.status, reply.body["base"]["ref"]) == (200, "next")
    edited = payloads_of(world, "pull_request")[-1]
    assert (edited["action"], edited["changes"]["base"]["ref"]["from"]) == ("edited", "main")
    assert (await world.owner.ask("PATCH", f"{R}/pulls/1", {"base": "gone"})).status == 422


async def test_the_history_says_who_labelled_and_when(world: World) -> None:
    hub, repo = world.hub, world.repo
    hub.open_issue(repo, author="eve", title="It breaks")
    hub.label(repo, 1, "codepilot:auto", by="mona")
    await world.bot.ask("POST", f"{R}/issues/1/labels", {"labels": ["seen"]})
    hub.comment(repo, 1, author="eve", body="Hello?")
    hub.assign(repo, 1, "eve", by="mona")
    hub.edit_thread(repo, 1, by="mona", title="It broke")
    hub.lock(repo, 1, by="mona")
    events = (await world.bot.ask("GET", f"{R}/issues/1/events")).body
    assert [(each["event"], each["actor"]["login"]) for each in events] == [
        ("labeled", "mona"),
        ("labeled", "codepilot[bot]"),
        ("assigned", "mona"),
        ("renamed", "mona"),
        ("locked", "mona"),
    ]
    assert (events[0]["label"]["name"], events[0]["performed_via_github_app"]) == ("codepilot:auto", None)
    assert events[1]["performed_via_github_app"]["slug"] == "codepilot"
    timeline = (await world.bot.ask("GET", f"{R}/issues/1/timeline?per_page=3")).body
    assert [each["event"] for each in timeline] == ["labeled", "labeled", "commented"]


async def test_a_locked_thread_hears_only_its_writers(world: World) -> None:
    world.hub.open_issue(world.repo, author="eve", title="It breaks")
    world.hub.lock(world.repo, 1, by="mona")
    path = f"{R}/issues/1/comments"
    for who in (world.bot, world.stranger):
        refused = await who.ask("POST", path, {"body": "x"})
        assert (refused.status, refused.body["message"]) == (
            403,
            "Unable to create comment because issue is locked.",
        )
    assert (await world.owner.ask("POST", path, {"body": "x"})).status == 201
    world.hub.unlock(world.repo, 1, by="mona")
    assert (await world.bot.ask("POST", path, {"body": "x"})).status == 201


async def test_an_edited_comment_tells_when_and_a_deleted_one_is_gone(world: World) -> None:
    world.hub.open_issue(world.repo, author="eve", title="It breaks")
    made = (await world.bot.ask("POST", f"{R}/issues/1/comments", {"body": "On it"})).body
    assert made["created_at"] == made["updated_at"]
    one = f"{R}/issues/comments/{made['id']}"
    comment = world.hub.comments(world.repo, 1)[0]
    edited = world.hub.edit_comment(comment, by="codepilot[bot]", body="Done")
    assert edited.updated_at > edited.created_at == comment.created_at
    world.hub.delete_comment(edited, by="mona")
    assert (await world.bot.ask("PATCH", one, {"body": "Late"})).status == 404
    assert (await world.bot.ask("GET", one)).status == 404


async def test_an_account_keeps_its_number(world: World) -> None:
    reply = await world.bot.ask("GET", f"/user/{world.eve.id}")
    assert (reply.status, reply.body["login"]) == (200, "eve")
    assert (await world.bot.ask("GET", "/user/1")).status == 404


async def test_an_installation_is_suspended_narrowed_and_removed(world: World) -> None:
    record_deliveries(world)
    hub, at = world.hub, world.installation
    hub.install(world.app, world.secret)
    hub.suspend(at, by="mona")
    refused = await world.bot.ask("GET", R)
    assert (refused.status, refused.body["message"]) == (403, "This installation has been suspended")
    hub.open_issue(world.repo, author="mona", title="Unheard")
    hub.unsuspend(at, by="mona")
    assert (await world.bot.ask("GET", R)).status == 200
    hub.take_out(at, world.repo, by="mona")
    assert (await world.bot.ask("POST", f"{R}/issues", {"title": "x"})).status == 403
    hub.uninstall(at, by="mona")
    assert (await world.bot.ask("GET", R)).status == 401
    assert [each["action"] for each in payloads_of(world, "installation")] == ["suspend", "unsuspend", "deleted"]
    added, removed = payloads_of(world, "installation_repositories")
    assert (added["repositories_added"][0]["full_name"], removed["repositories_removed"][0]["full_name"]) == (
        "acme/secret",
        "acme/widgets",
    )
    assert not payloads_of(world, "issues")


async def test_a_search_takes_apostrophes_and_quotes(world: World) -> None:
    world.hub.open_issue(world.repo, author="mona", title="It's the cat's hat", labels=["good first issue"])
    for query, count in (
        ("cat's", 1),
        ("cat%27s+label:%22good+first+issue%22", 1),
        ("%22the+cat%22", 1),
        ("it's+dog", 0),
    ):
        found = await world.owner.ask("GET", f"/search/issues?q=repo:acme/widgets+{query}")
        assert (found.status, found.body["total_count"]) == (200, count), query


async def test_what_blocks_a_merge_refuses_it(world: World) -> None:
    hub, repo = world.hub, world.repo
    topic(world)
    other = hub.add_app("other-ci")
    checks = {"required_status_checks": [{"context": "build", "integration_id": other.id}]}
    review = {"dismiss_stale_reviews_on_push": True, "required_review_thread_resolution": True}
    hub.add_rules(repo, {"type": "required_status_checks", "parameters": checks}, branches="main", bypass=["boss"])
    approval = {"type": "pull_request", "parameters": review | {"required_approving_review_count": 1}}
    hub.add_rules(repo, approval, branches="main", bypass=["boss"])
    hub.review(repo, 1, author="eve", state="APPROVED")
    hub.commit(repo, {"n.txt": "n\n"}, message="N", author="mona", branch="topic")
    sha = hub.branches(repo)["topic"]
    await world.owner.ask("POST", f"{R}/statuses/{sha}", {"state": "success", "context": "build"})
    line = {"body": "Why?", "path": "n.txt", "line": 1, "commit_id": sha}
    asked = (await world.owner.ask("POST", f"{R}/pulls/1/comments", line)).body

    async def demands() -> list[str]:
        reply = await world.owner.ask("PUT", f"{R}/pulls/1/merge")
        assert reply.status == 405
        first, *rest = reply.body["message"].split("\n\n")
        assert first == "Repository rule violations found"
        return [words.partition(" ")[0] for words in rest]

    assert await demands() == ["At", "Required", "A"]  # the approval is of another commit, the status of nobody's App
    hub.review(repo, 1, author="eve", state="APPROVED")
    hub.check(repo, other, head_sha=sha, name="build", conclusion="success")
    assert await demands() == ["A"]
    hub._site.store.resolved[asked["id"]] = world.mona.id
    assert (await world.owner.ask("PUT", f"{R}/pulls/1/merge")).status == 200


async def test_who_may_bypass_rules_merges(world: World) -> None:
    topic(world)
    checks = {"type": "required_status_checks", "parameters": {"required_status_checks": [{"context": "build"}]}}
    world.hub.add_rules(world.repo, checks, branches="main", bypass=["mona"])
    assert (await world.bot.ask("PUT", f"{R}/pulls/1/merge")).status == 405
    assert (await world.owner.ask("PUT", f"{R}/pulls/1/merge")).status == 200
