"""Check runs and their buttons."""

from __future__ import annotations

from localhub.api.errors import not_found
from localhub.operations import check_runs
from localhub.pages.people import actor
from localhub.pages.view import Page, PageVisit, render
from localhub.state.model import CheckRun


def _run_of(visit: PageVisit) -> CheckRun:
    run = visit.site.store.check_runs.get(visit.number)
    if run is None or run.repo_id != visit.repo.id:
        raise not_found()
    return run


def check_run(visit: PageVisit) -> Page:
    """One check run."""
    run, repo = _run_of(visit), visit.repo
    return render(visit, "run.html", {"title": run.name, "repo": repo, "run": run})


def press(visit: PageVisit) -> Page:
    """Take the press of a button: one of the App's own, or the one that runs the check again."""
    run, user = _run_of(visit), actor(visit, "write")
    if "rerun" in visit.form:
        check_runs.rerun(visit.site, run, user)
    else:
        check_runs.press(visit.site, run, user, visit.form.get("identifier", ""))
    return Page(location=visit.path.removesuffix("/actions"))
