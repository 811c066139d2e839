// Adds to pages that work without it: rows that follow the store, times that count, keys, dialogs.

const root = new URL("..", import.meta.url);
const body = document.body;
const main = document.querySelector("main");
const live = document.getElementById("live");
const main_link = row => row?.querySelector("[data-open]");

// ------------------------------------------------------------ the zone of this browser, for times on "my" clock

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone && !document.cookie.split("; ").includes(`scheduler_tz=${zone}`)) {
  document.cookie = `scheduler_tz=${zone}; path=${root.pathname}; max-age=31536000; samesite=lax`;
  if (document.querySelector(".zones [aria-current]")?.textContent === "mine" && document.cookie.includes("scheduler_tz=")) location.reload();
}

// ------------------------------------------------------------ times that count, by the clock of the server

let ahead = body.dataset.now ? Date.parse(body.dataset.now) - Date.now() : 0;

function span(seconds) {
  const units = [["y", 31556952], ["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  const first = Math.max(units.findIndex(([, size]) => seconds >= size), 0);
  return units.slice(first, first + 2).map(([name, size], place) => {
    const count = Math.floor(seconds / size);
    seconds -= count * size;
    return count || (!place && seconds < 1) ? `${count}${name}` : "";
  }).filter(Boolean).join(" ") || "0s";
}

function count() {
  const now = Date.now() + ahead;
  for (const time of document.querySelectorAll("time.rel")) {
    const seconds = Math.round((Date.parse(time.dateTime) - now) / 1000);
    const text = !seconds ? "now" : seconds > 0 ? `in ${span(seconds)}` : `${span(-seconds)} ago`;
    if (time.textContent !== text) time.textContent = text;
  }
}

// ------------------------------------------------------------ rows that follow the store

// What the visitor is using must not move or vanish: what is pointed at, and an open dialog.
const is_held = () => document.querySelector("dialog[open]") || document.querySelector("[data-live]:hover");

/** Make *here* like *there*, and keep what has the focus: elements are changed, not replaced. */
function become(here, there) {
  if (here.nodeType !== there.nodeType || here.nodeName !== there.nodeName) return here.replaceWith(there);
  if (here.nodeType !== Node.ELEMENT_NODE) {
    if (here.nodeValue !== there.nodeValue) here.nodeValue = there.nodeValue;
    return;
  }
  for (const { name } of [...here.attributes]) if (!there.hasAttribute(name)) here.removeAttribute(name);
  for (const { name, value } of there.attributes) if (here.getAttribute(name) !== value) here.setAttribute(name, value);
  const known = new Map([...here.children].filter(child => child.id).map(child => [child.id, child]));
  const wanted = new Set([...there.children].map(child => child.id).filter(Boolean));
  let place = here.firstChild;
  for (const child of [...there.childNodes]) {
    const same = child.id ? known.get(child.id) : undefined;
    if (same) {
      if (same !== place) here.insertBefore(same, place); else place = place.nextSibling;
      become(same, child);
    } else if (!child.id && place && !place.id) {
      const next = place.nextSibling;
      become(place, child);
      place = next;
    } else {
      if (child.id && known.size) child.classList?.add("new");
      here.insertBefore(child, place);
    }
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
  for (const [id, child] of known) if (!wanted.has(id)) child.remove();
}

async function refresh() {
  const answer = await fetch(location.href, { headers: { accept: "text/html" } });
  if (answer.redirected || !answer.ok) throw new Error(answer.statusText);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (is_held()) return false;
  ahead = Date.parse(page.body.dataset.now) - Date.now();
  for (const part of document.querySelectorAll("[data-live]")) {
    const fresh = page.getElementById(part.id);
    if (fresh) become(part, fresh);
  }
  body.dataset.mark = page.body.dataset.mark;
  count();
  return true;
}

const pause = seconds => new Promise(done => setTimeout(done, seconds * 1000));
const shown = () => document.hidden ? new Promise(done => document.addEventListener("visibilitychange", done, { once: true })) : null;

function tell(kind, text) {
  live.className = `live ${kind}`;
  if (live.textContent !== text) live.textContent = text;
}

async function follow() {
  for (let failures = 0; ;) {
    await shown();
    try {
      const answer = await fetch(`${body.dataset.feed}?after=${encodeURIComponent(body.dataset.mark)}`);
      if (!answer.ok) throw new Error(answer.statusText);
      failures = 0;
      tell("on", "live");
      if (answer.status === 204) continue;
      while (is_held()) {
        tell("", "changes wait while you point");
        await pause(0.3);
      }
      await refresh();
      tell("on", "live");
      await pause(2); // a store in which something changes all the time is not asked all the time
    } catch {
      failures += 1;
      tell("lost", "no connection, trying again");
      await pause(Math.min(2 ** failures, 30));
    }
  }
}

// ------------------------------------------------------------ dialogs instead of pages

async function ask(link) {
  const answer = await fetch(link.href);
  const sheet = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector(".sheet");
  if (!sheet) return location.assign(link.href);
  const form = sheet.querySelector("form");
  if (form) form.action = new URL(form.getAttribute("action"), link.href).href;
  open_dialog(sheet);
}

function open_dialog(content) {
  const dialog = document.createElement("dialog");
  const heading = content.querySelector("h1");
  heading.id = "dialog-title";
  dialog.setAttribute("aria-labelledby", heading.id);
  dialog.append(content);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", event => {
    if (event.target !== dialog && !event.target.closest("[data-close]")) return;
    event.preventDefault();
    dialog.close();
  });
  body.append(dialog);
  dialog.showModal();
}

document.addEventListener("click", event => {
  const link = event.target.closest("a[data-dialog]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  ask(link).catch(() => location.assign(link.href));
});

// ------------------------------------------------------------ keys

const HELP = [["/", "find a job"], ["j k", "next and previous row"], ["Enter", "open the row"], ["r", "run"], ["p", "pause or resume"], ["w", "why it does not run"], ["t", "timeline"], ["?", "these keys"]];

function help() {
  const sheet = document.createElement("div");
  sheet.className = "sheet";
  const heading = document.createElement("h1");
  heading.textContent = "Keys";
  const list = document.createElement("dl");
  list.className = "keys";
  for (const [keys, told] of HELP) {
    const name = document.createElement("dt");
    for (const key of keys.split(" ")) {
      const cap = document.createElement("kbd");
      cap.textContent = key;
      name.append(cap, " ");
    }
    const words = document.createElement("dd");
    words.textContent = told;
    list.append(name, words);
  }
  const close = document.createElement("button");
  close.dataset.close = "";
  close.textContent = "Close";
  sheet.append(heading, list, close);
  open_dialog(sheet);
}

function rows() {
  return [...main.querySelectorAll("[data-open]")].filter(link => link.getClientRects().length);
}

function step(by) {
  const links = rows();
  const here = links.findIndex(link => link.closest("tr, li")?.contains(document.activeElement));
  const next = links[here < 0 ? (by > 0 ? 0 : links.length - 1) : here + by];
  next?.focus();
}

function act(key) {
  const row = document.activeElement?.closest("tr, li");
  const inside = row && main_link(row) ? row : main;
  const target = inside.querySelector(`[data-key="${key}"]`);
  if (target) target.click();
  else if (key === "w" && main_link(row)) location.assign(`${main_link(row).href}#why`);
}

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.closest("input, textarea, select, [contenteditable]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const actions = {
    "/": () => document.querySelector(".find input")?.focus(),
    j: () => step(1),
    k: () => step(-1),
    r: () => act("r"),
    p: () => act("p"),
    w: () => act("w"),
    t: () => location.assign(new URL("timeline", root)),
    "?": help,
  };
  const action = Object.hasOwn(actions, event.key) && actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});

// ------------------------------------------------------------ the start

if (body.dataset.now) {
  count();
  setInterval(() => document.hidden || count(), 1000);
}
if (body.dataset.mark !== undefined && live) follow();
if (body.dataset.retry) {
  // The page could not be shown: look whether it can be now.
  (async () => {
    for (;;) {
      await pause(Number(body.dataset.retry));
      await shown();
      const answer = await fetch(location.href).catch(() => null);
      if (answer?.ok) return location.reload();
    }
  })();
}
