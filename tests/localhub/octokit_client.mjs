// What an App does in a pull request, by octokit; what it saw goes to standard output as JSON.
import { App, Octokit } from "octokit";

const { baseUrl, appId, privateKey, installation, secret, delivery, token } = JSON.parse(process.argv[2]);
const app = new App({
  appId,
  privateKey,
  webhooks: { secret },
  Octokit: Octokit.defaults({ baseUrl, throttle: { enabled: false }, retry: { enabled: false } }),
});
const octokit = await app.getInstallationOctokit(installation);
const at = { owner: "acme", repo: "widgets" };
const { rest } = octokit;
const seen = {};

seen.signature = await app.webhooks.verify(delivery.body, delivery.signature);
seen.slug = (await app.octokit.rest.apps.getAuthenticated()).data.slug;

const comment = (await rest.issues.createComment({ ...at, issue_number: 1, body: "On it" })).data;
await rest.issues.updateComment({ ...at, comment_id: comment.id, body: "Done" });
await rest.reactions.createForIssueComment({ ...at, comment_id: comment.id, content: "eyes" });
await rest.issues.addLabels({ ...at, issue_number: 1, labels: ["bug", "now"] });
await rest.issues.removeLabel({ ...at, issue_number: 1, name: "now" });
seen.comments = (await octokit.paginate(rest.issues.listComments, { ...at, issue_number: 1, per_page: 1 })).map((c) => c.body);
seen.events = (await octokit.paginate(rest.issues.listEvents, { ...at, issue_number: 1 })).map((e) => `${e.event} ${e.label.name}`);

const pull = (await rest.pulls.get({ ...at, pull_number: 1 })).data;
seen.diff = (await rest.pulls.get({ ...at, pull_number: 1, mediaType: { format: "diff" } })).data;
seen.files = (await rest.pulls.listFiles({ ...at, pull_number: 1 })).data.map((f) => f.filename);
const review = (await rest.pulls.createReview({
  ...at, pull_number: 1, event: "COMMENT", body: "A remark",
  comments: [{ path: "src/a.py", line: 1, side: "RIGHT", body: "Why?" }],
})).data;
const [first] = (await rest.pulls.listCommentsForReview({ ...at, pull_number: 1, review_id: review.id })).data;
await rest.pulls.createReplyForReviewComment({ ...at, pull_number: 1, comment_id: first.id, body: "Because." });
await rest.reactions.createForPullRequestReviewComment({ ...at, comment_id: first.id, content: "+1" });
seen.said = (await octokit.paginate(rest.pulls.listReviewComments, { ...at, pull_number: 1 })).map((c) => `${c.path}:${c.line} ${c.body}`);
seen.reviews = (await rest.pulls.listReviews({ ...at, pull_number: 1 })).data.map((r) => r.state);
try {
  await rest.pulls.createReview({ ...at, pull_number: 1, event: "COMMENT", comments: [{ path: "src/a.py", line: 99, body: "?" }] });
} catch (error) {
  seen.refused = `${error.status} ${error.response.data.errors[0]}`;
}

const check = (await rest.checks.create({ ...at, name: "codepilot", head_sha: pull.head.sha, status: "in_progress" })).data;
await rest.checks.update({
  ...at, check_run_id: check.id, conclusion: "success",
  output: { title: "Done", summary: "Well", annotations: [{ path: "src/a.py", start_line: 1, end_line: 1, annotation_level: "notice", message: "Here" }] },
  actions: [{ label: "Retry", description: "Do it again", identifier: "retry" }],
});
seen.annotations = (await rest.checks.listAnnotations({ ...at, check_run_id: check.id })).data.map((a) => a.message);
seen.checks = (await octokit.paginate(rest.checks.listForRef, { ...at, ref: pull.head.sha })).map((c) => c.conclusion);

const commit = await octokit.graphql(
  "mutation($input: CreateCommitOnBranchInput!) { createCommitOnBranch(input: $input) { commit { oid } } }",
  { input: {
    branch: { repositoryNameWithOwner: "acme/widgets", branchName: "topic" },
    expectedHeadOid: pull.head.sha,
    message: { headline: "Three" },
    fileChanges: { additions: [{ path: "src/a.py", contents: Buffer.from("x = 3\n").toString("base64") }] },
  } },
);
const moved = (await rest.pulls.get({ ...at, pull_number: 1 })).data.head.sha;
seen.moved = moved === commit.createCommitOnBranch.commit.oid;
seen.ahead = (await rest.repos.compareCommitsWithBasehead({ ...at, basehead: "main...topic" })).data.ahead_by;
seen.runs = (await rest.actions.listWorkflowRuns({ ...at, workflow_id: "ci.yml", branch: "topic" })).data.workflow_runs.map((r) => r.conclusion);
const [run] = (await rest.actions.listWorkflowRuns({ ...at, workflow_id: "ci.yml" })).data.workflow_runs;
const [job] = (await octokit.paginate(rest.actions.listJobsForWorkflowRun, { ...at, run_id: run.id }));
seen.steps = job.steps.map((step) => `${step.number} ${step.name} ${step.conclusion}`);
seen.log = (await rest.actions.downloadJobLogsForWorkflowRun({ ...at, job_id: job.id })).data;
seen.zip = Buffer.from((await rest.actions.downloadWorkflowRunLogs({ ...at, run_id: run.id })).data).subarray(0, 2).toString();
const note = { ...at, path: "n.md", branch: "topic", message: "Note" };
const file = (await rest.repos.createOrUpdateFileContents({ ...note, content: Buffer.from("n\n").toString("base64") })).data;
await rest.repos.deleteFile({ ...note, sha: file.content.sha });
await rest.issues.updateLabel({ ...at, name: "bug", new_name: "broken" });
await rest.issues.lock({ ...at, issue_number: 1, lock_reason: "resolved" });
await rest.issues.unlock({ ...at, issue_number: 1 });
await rest.pulls.requestReviewers({ ...at, pull_number: 1, reviewers: ["eve"] });
seen.asked = (await rest.pulls.listRequestedReviewers({ ...at, pull_number: 1 })).data.users.map((u) => u.login);
seen.found = (await octokit.paginate(rest.search.issuesAndPullRequests, { q: "repo:acme/widgets is:pr label:broken" })).map((i) => i.number);
seen.suites = (await octokit.paginate(rest.checks.listSuitesForRef, { ...at, ref: pull.head.sha })).map((s) => s.conclusion);
seen.former = (await rest.repos.get({ owner: "acme", repo: "once" })).data.full_name;
const owned = new Octokit({ baseUrl, auth: token });
const repo = owned.rest.repos;
await repo.update({ ...at, description: "Widgets" });
await repo.replaceAllTopics({ ...at, names: ["tools"] });
seen.topics = (await repo.getAllTopics(at)).data.names;
seen.languages = Object.keys((await repo.listLanguages(at)).data);
seen.fork = (await repo.createFork(at)).data.full_name;
seen.refs = (await owned.paginate(owned.rest.git.listMatchingRefs, { ...at, ref: "" })).length > 1;
const milestone = (await owned.rest.issues.createMilestone({ ...at, title: "First" })).data.number;
seen.milestone = (await owned.rest.issues.update({ ...at, issue_number: 1, milestone, assignee: "mona" })).data.milestone.title;
await repo.createCommitComment({ ...at, commit_sha: moved, body: "Hm" });
seen.remarks = (await repo.listCommentsForCommit({ ...at, commit_sha: moved })).data.map((c) => c.body);
await rest.checks.rerequestRun({ ...at, check_run_id: check.id });
await owned.rest.actions.reRunWorkflow({ ...at, run_id: run.id });
seen.merged = (await repo.merge({ ...at, base: "main", head: "topic" })).status;
console.log(JSON.stringify(seen));
