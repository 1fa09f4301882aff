// Keeps what others change on this page up to date, and leaves forms alone in which somebody is writing.
"use strict";
const live = document.getElementById("live");
async function refresh() {
  const writing = [...live.querySelectorAll("textarea")].some((one) => one.value !== one.defaultValue || one === document.activeElement);
  if (document.hidden || writing || String(document.getSelection())) return;
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live");
  if (!fresh || fresh.innerHTML === live.innerHTML) return;
  const opened = [...live.querySelectorAll("details")].map((one) => one.open);
  live.replaceChildren(...fresh.childNodes);
  live.querySelectorAll("details").forEach((one, at) => { if (opened[at] !== undefined) one.open = opened[at]; });
}
async function follow() {
  try { await refresh(); } catch (error) { console.debug("the hub did not answer", error); }
  setTimeout(follow, live.querySelector(".busy") ? 1000 : 2000);
}
if (live) setTimeout(follow, 1000);
