// The page of one record: the player beside its transcript, and a page that follows the record while it is worked on.
"use strict";
{
  const page = document.querySelector(".record-page");
  const head = () => page?.querySelector("[data-head]");

  // ---- the player ----------------------------------------------------------------------------------------------------------------

  const SKIP_S = 5;
  const BREATH_S = 1;
  let audio = null;
  let list = null; // the transcript
  let rows = []; // its utterances in the order of time: {row, start, end} in seconds
  let lit = [];
  let follows = true; // the transcript scrolls along, until the person scrolls

  const setUpPlayer = () => {
    audio = page.querySelector("#player");
    list = page.querySelector(".transcript");
    lit = [];
    follows = true;
    collect();
    if (!audio) return;
    for (const moment of ["timeupdate", "seeking", "play"]) audio.addEventListener(moment, light);
    audio.addEventListener("error", () => tellPlayable(false));
    audio.addEventListener("loadedmetadata", () => tellPlayable(true));
    if (audio.error) tellPlayable(false);
    for (const sign of ["wheel", "touchmove", "pointerdown"]) list?.addEventListener(sign, letGo, { passive: true });
    goTo(new URLSearchParams(location.search).get("t"));
  };

  const collect = () => {
    rows = [...(list?.querySelectorAll(".utterance") ?? [])].map((row) => ({
      row,
      start: row.dataset.start / 1000,
      end: row.dataset.end / 1000,
    }));
  };

  const tellPlayable = (is) => {
    page.querySelector("[data-unplayable]").hidden = is;
  };

  // `?t=` of a link: seconds, or a moment such as 1:02:03.
  const goTo = (moment) => {
    if (!moment || !/^\d+(:\d{1,2}){0,2}(\.\d+)?$/.test(moment)) return;
    audio.currentTime = moment.split(":").reduce((total, part) => total * 60 + Number(part), 0);
    light();
  };

  // What is heard at the player's moment: what began and still goes on, of several voices more than one. A breath between two is no gap.
  const heard = () => {
    const now = audio.currentTime + 0.05; // a seek may land a little early
    let low = 0;
    let high = rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rows[middle].start <= now) low = middle + 1;
      else high = middle;
    }
    const going = rows.slice(Math.max(0, low - 8), low).filter(({ end }) => end > now);
    const last = rows[low - 1];
    return going.length || !last || last.end + BREATH_S < now ? going : [last];
  };

  const light = () => {
    if (!audio || !list) return;
    const fresh = audio.played.length || audio.currentTime ? heard().map(({ row }) => row) : [];
    if (fresh.length === lit.length && fresh.every((row, number) => row === lit[number])) return;
    for (const row of lit) row.removeAttribute("aria-current");
    for (const row of fresh) row.setAttribute("aria-current", "true");
    lit = fresh;
    if (lit.length) {
      if (follows) bringIntoView(lit.at(-1));
      else offerToFollow();
    }
  };

  const bringIntoView = (row) => {
    const top = row.offsetTop - (list.clientHeight - row.offsetHeight) / 2;
    const behavior = matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth";
    list.scrollTo({ top, behavior });
  };

  const letGo = () => {
    follows = false;
    offerToFollow();
  };

  const offerToFollow = () => {
    const button = page.querySelector("[data-follow]");
    if (button) button.hidden = follows || !lit.length;
  };

  const follow = () => {
    follows = true;
    offerToFollow();
    if (lit.length) bringIntoView(lit.at(-1));
  };

  const playFrom = (row) => {
    if (!audio) return;
    follows = true;
    offerToFollow();
    audio.currentTime = row.dataset.start / 1000;
    play();
    light();
  };

  // Refused where the browser can't play it, which the player's own event tells.
  const play = () => audio.play().catch(() => {});

  const skip = (seconds) => {
    audio.currentTime = Math.max(0, Math.min(audio.duration || Infinity, audio.currentTime + seconds));
  };

  // One of the transcript's buttons at a time can be reached by Tab; the arrows go from one to the next.
  const focusRow = (row) => {
    const button = row?.querySelector(".at");
    if (!button) return;
    for (const other of list.querySelectorAll('.at[tabindex="0"]')) other.tabIndex = -1;
    button.tabIndex = 0;
    button.focus();
  };

  // ---- what is pressed -----------------------------------------------------------------------------------------------------------

  const copy = async (button, text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      prompt("", text); // no clipboard without a safe connection
      return;
    }
    button.dataset.label ??= button.textContent;
    button.textContent = button.dataset.copied;
    setTimeout(() => (button.textContent = button.dataset.label), 2000);
  };

  const momentOf = (seconds) => {
    const link = new URL(location.href);
    link.searchParams.set("t", String(Math.floor(seconds)));
    link.hash = "";
    return link.href;
  };

  const onClick = (event) => {
    const target = event.target.closest("button, .utterance");
    if (!target || !page.contains(target)) return;
    if (target.matches(".at")) focusRow(target.closest(".utterance"));
    if (target.matches(".at, .utterance")) {
      if (target.matches(".at") || !String(getSelection())) playFrom(target.closest(".utterance"));
    } else if (target.matches("[data-skip]")) skip(Number(target.dataset.skip));
    else if (target.matches("[data-follow]")) follow();
    else if (target.matches("[data-copy]")) copy(target, target.dataset.copy);
    else if (target.matches("[data-copy-moment]")) copy(target, momentOf(audio.currentTime));
  };

  const onChange = (event) => {
    if (event.target.matches("[data-speed]")) audio.playbackRate = audio.defaultPlaybackRate = Number(event.target.value);
    if (!event.target.matches("[data-sound]")) return;
    const [at, plays] = [audio.currentTime, !audio.paused];
    audio.src = event.target.value;
    audio.currentTime = at;
    if (plays) play();
  };

  const onKey = (event) => {
    if (!audio || event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    const at = event.target;
    const inTranscript = at.closest?.(".transcript");
    if (inTranscript && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      const row = at.closest(".utterance");
      focusRow(event.key === "ArrowDown" ? row?.nextElementSibling : row?.previousElementSibling);
    } else if (at.closest?.("input, textarea, select, audio, [contenteditable]")) return;
    else if (event.key === "ArrowLeft") skip(-SKIP_S);
    else if (event.key === "ArrowRight") skip(SKIP_S);
    else if (event.key === " " && !at.closest?.("button, a, summary")) {
      if (audio.paused) play();
      else audio.pause();
    } else return;
    event.preventDefault();
  };

  // ---- a page that follows its record --------------------------------------------------------------------------------------------

  const parsed = (text) => new DOMParser().parseFromString(text, "text/html");

  const AWAY_PAUSE_MS = 5000;
  const AWAY = Symbol("away"); // the service, for a moment: it is restarted, or the network is gone

  // A page of a record, or AWAY; null once the page leads to the sign-in, or the record is gone: there is nothing to follow any more.
  const fetched = async (url) => {
    try {
      const answer = await fetch(url, { redirect: "manual", cache: "no-store" });
      if (answer.type === "opaqueredirect" || answer.status === 403 || answer.status === 404) return null;
      const fresh = answer.ok ? parsed(await answer.text()) : null;
      return fresh?.querySelector("[data-head]") ? fresh : AWAY;
    } catch (error) {
      if (error instanceof TypeError) return AWAY;
      throw error;
    }
  };

  // Only what has changed is replaced, so that nothing flickers; and the focus stays where it was.
  const takeOver = (old, fresh) => {
    if (old.isEqualNode(fresh)) return;
    const focused = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    old.replaceWith(fresh);
    if (focused) [...fresh.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
  };

  const refreshHead = (fresh) => {
    const now = head();
    for (const name of ["class", "data-marker", "data-refresh", "data-said"]) now.setAttribute(name, fresh.getAttribute(name));
    for (const part of now.querySelectorAll("[data-part]")) {
      const other = fresh.querySelector(`[data-part="${part.dataset.part}"]`);
      if (other) takeOver(part, other);
    }
  };

  const isInUse = (section) =>
    section.contains(document.activeElement) ||
    (section.dataset.section === "recording" && audio && (!audio.paused || audio.currentTime > 0));

  const refreshRest = (fresh) => {
    for (const section of page.querySelectorAll("[data-section]")) {
      const other = fresh.querySelector(`[data-section="${section.dataset.section}"]`);
      if (!other || isInUse(section)) continue;
      if (section.dataset.version !== undefined && section.dataset.version === other.dataset.version) continue;
      const taken = document.importNode(other, true); // made for this document: a player from another loads nothing
      section.replaceWith(taken);
      window.htmx?.process(taken);
      if (section.dataset.section === "recording") setUpPlayer();
    }
  };

  // The form goes on to say where the record stands, or choosing what it stood at would be no change; a choice that was made stays.
  const refreshState = (fresh) => {
    const [select, initial] = ["state", "initial-state"].map((name) => page.querySelector(`[name="${name}"]`));
    const reached = fresh.querySelector('[name="initial-state"]');
    if (!select || !initial || !reached || select.value !== initial.value) return;
    initial.value = reached.value;
    select.value = reached.value;
  };

  const hasMoved = (fresh) => fresh.querySelector("[data-head]").dataset.marker !== head().dataset.marker;

  // The head is looked at often, and the whole page fetched where it has moved. The page shows the marker of what it has taken over as a whole:
  // until then it goes on to be another one, and is fetched again.
  const look = async () => {
    if (!document.hidden) {
      let fresh = await fetched(head().dataset.url);
      const moved = fresh && fresh !== AWAY && hasMoved(fresh);
      if (moved) fresh = await fetched(location.pathname);
      if (!fresh) return;
      if (fresh === AWAY) {
        setTimeout(look, AWAY_PAUSE_MS);
        return;
      }
      if (moved) {
        refreshRest(fresh);
        refreshState(fresh);
      }
      refreshHead(fresh.querySelector("[data-head]"));
      if (moved) page.querySelector("[data-announce]").textContent = head().dataset.said;
    }
    lookLater();
  };

  const lookLater = () => {
    const pause = Number(head().dataset.refresh);
    if (pause) setTimeout(look, pause);
  };

  if (head()) {
    setUpPlayer();
    document.addEventListener("click", onClick);
    document.addEventListener("change", onChange);
    document.addEventListener("keydown", onKey);
    let isStale = false; // told once for each utterance that came
    document.addEventListener("htmx:afterSettle", () => {
      if (isStale) return;
      isStale = true;
      setTimeout(() => {
        isStale = false;
        collect();
        light();
      });
    });
    document.addEventListener("visibilitychange", light);
    lookLater();
  }
}
