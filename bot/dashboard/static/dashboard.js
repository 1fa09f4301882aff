// Keeps #live up to date, and lets "/" focus the search. Without it, a page is what it was when it was loaded.
"use strict";

(() => {
  const QUIET_MS = 1000;
  const RETRY_MS = 5000;
  const status = document.getElementById("live-state");

  document.addEventListener("keydown", (event) => {
    const search = document.getElementById("search");
    const typing = event.target.closest("input, select, textarea");
    if (event.key === "/" && search && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      search.focus();
    }
  });

  if (!status) return;

  const say = (text, on) => {
    if (status.textContent !== text) status.textContent = text;
    status.classList.toggle("on", on);
  };

  const path = (node, root) => {
    const steps = [];
    for (let at = node; at !== root; at = at.parentElement) steps.unshift([...at.parentElement.children].indexOf(at));
    return steps;
  };

  const replace = (fresh, old) => {
    const changed = [...old.querySelectorAll("details[id]")].map((each) => [each.id, each.open]);
    const focused = old.contains(document.activeElement) ? path(document.activeElement, old) : null;
    old.replaceWith(document.adoptNode(fresh));
    for (const [id, open] of changed) {
      const same = document.getElementById(id);
      if (same) same.open = open;
    }
    if (focused) {
      const same = focused.reduce((node, place) => node && node.children[place], fresh);
      if (same) same.focus({ preventScroll: true });
    }
  };

  let busy = false;
  let again = false;

  const refresh = async () => {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    again = false;
    const begun = performance.now();
    let fresh = null;
    try {
      const answer = await fetch(location.href, { redirect: "error", credentials: "same-origin" });
      const text = await answer.text();
      if (answer.ok) fresh = new DOMParser().parseFromString(text, "text/html").getElementById("live");
    } catch {
      // No answer, or the sign-in is over: told below.
    }
    if (fresh) {
      replace(fresh, document.getElementById("live"));
      if (events.readyState === EventSource.OPEN) say("Live", true);
    } else if (events.readyState !== EventSource.CLOSED) {
      say("Not live: the page cannot be loaded. Trying again.", false);
      again = true;
    }
    setTimeout(() => {
      busy = false;
      if (again) refresh();
    }, fresh ? Math.max(QUIET_MS, 4 * (performance.now() - begun)) : RETRY_MS);
  };

  const events = new EventSource(status.dataset.events);
  events.addEventListener("open", () => say("Live", true));
  events.addEventListener("changed", refresh);
  events.addEventListener("error", () => {
    const closed = events.readyState === EventSource.CLOSED;
    say(closed ? "Not live: reload the page." : "Not live: trying again.", false);
  });
})();
