"use strict";
// Filters the workloads and keeps the filter in the address. Without this script the page shows everything.
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");

  // --- Colours: as the system has them, or one scheme for good where the browser may remember it.
  const schemes = { "": "◐ Auto", light: "○ Light", dark: "● Dark" };
  const remembered = () => { try { return localStorage.getItem("gpugate-theme") || ""; } catch { return ""; } };
  const remember = (scheme) => { try { localStorage.setItem("gpugate-theme", scheme); } catch { /* a private window */ } };
  const setScheme = (scheme, button) => {
    if (scheme) root.dataset.theme = scheme; else delete root.dataset.theme;
    if (!button) return;
    button.textContent = schemes[scheme];
    button.setAttribute("aria-label", `Colours: ${scheme || "as the system has them"}`);
  };
  let scheme = remembered();
  if (!(scheme in schemes)) scheme = "";
  setScheme(scheme);

  // --- The address: `#outcome=refuse&team=research`. A fragment without "=" is a section's name and no filter.
  const KEYS = ["q", "outcome", "rule", "mode", "team", "namespace"];
  const isFilter = (hash) => hash.includes("=");
  const parse = (hash) => {
    const given = new URLSearchParams(hash.replace(/^#/, ""));
    const wanted = {};
    for (const key of KEYS) if (given.has(key)) wanted[key] = given.get(key);
    if (!wanted.q) delete wanted.q;
    return wanted;
  };
  const written = (wanted) => new URLSearchParams(KEYS.filter((key) => key in wanted).map((key) => [key, wanted[key]])).toString();

  const GRAVITY = ["refuse", "change", "warn", "unknown", "exempt", "clean"];
  const LABELS = {
    outcome: { refuse: "refused", change: "changed", warn: "warned about", unknown: "unknown", exempt: "exempt", clean: "no finding" },
    mode: { "in-force": "in force" },
    team: { "": "no team" },
    namespace: { "": "none named" },
  };
  const MODES = ["rehearsed", "in-force", "Enforce", "Mutate", "Warn", "DryRun"];
  const thin = (count) => String(count).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
  const several = (count, one, many) => `${thin(count)} ${count === 1 ? one : many}`;

  const start = () => {
    const button = document.getElementById("theme");
    setScheme(scheme, button);
    button.addEventListener("click", () => {
      const order = Object.keys(schemes);
      scheme = order[(order.indexOf(scheme) + 1) % order.length];
      remember(scheme);
      setScheme(scheme, button);
    });
    for (const link of document.querySelectorAll("a[data-f]")) link.setAttribute("href", `#${link.dataset.f}`);

    const form = document.getElementById("filter");
    if (!form) return;
    const found = document.getElementById("found");
    const nothing = document.getElementById("nothing");
    const unfold = document.getElementById("unfold");

    // --- What the rows say of themselves, read once.
    const rows = [];
    const groups = [...document.querySelectorAll(".outcome")].map((section) => ({
      section, tally: section.querySelector(".tally"), cut: section.querySelector(".cut"), blocks: [],
    }));
    for (const group of groups) {
      for (const element of group.section.querySelectorAll(".block")) {
        const block = { element, shown: element.children.length, group };
        group.blocks.push(block);
        for (const row of element.children) {
          const { t, n, g, i } = row.dataset;
          const items = i ? i.split(";").map((one) => one.split(",")) : [];
          rows.push({ row, block, team: t, namespace: n, devices: Number(g), items, text: null });
        }
      }
    }
    const textOf = (one) => (one.text ??= one.row.textContent.toLowerCase());

    // The modes that a filter's value stands for.
    const isRehearsed = (mode) => mode === "Warn" || mode === "DryRun";
    const inMode = (mode, wanted) =>
      wanted === undefined || mode === wanted || wanted === (isRehearsed(mode) ? "rehearsed" : "in-force");

    // The gravest that the wanted rule in the wanted mode says of a workload; "clean" where nothing is wanted and nothing said.
    const outcomeOf = (one, rule, mode) => {
      let gravest = GRAVITY.length;
      for (const [itsRule, itsMode, effect] of one.items) {
        if ((rule === undefined || itsRule === rule) && inMode(itsMode, mode)) gravest = Math.min(gravest, GRAVITY.indexOf(effect));
      }
      if (gravest < GRAVITY.length) return GRAVITY[gravest];
      return rule === undefined && mode === undefined ? "clean" : undefined;
    };

    // Whether a workload is wanted, but for the condition `but`. Words come last: reading them is dear.
    const matches = (one, wanted, words, but) => {
      if (but !== "team" && wanted.team !== undefined && one.team !== wanted.team) return false;
      if (but !== "namespace" && wanted.namespace !== undefined && one.namespace !== wanted.namespace) return false;
      if (but !== "outcome" && but !== "rule" && but !== "mode" && !isOutcome(one, wanted.rule, wanted.mode, wanted.outcome)) return false;
      return words.every((word) => textOf(one).includes(word));
    };
    const isOutcome = (one, rule, mode, outcome) => {
      const found = outcomeOf(one, rule, mode);
      return found !== undefined && (outcome === undefined || found === outcome);
    };

    // How many workloads each value of a choice would show beside the other conditions.
    const countsOf = (key, wanted, words) => {
      const counts = new Map();
      const add = (value) => counts.set(value, (counts.get(value) || 0) + 1);
      for (const one of rows) {
        if (!matches(one, wanted, words, key)) continue;
        if (key === "team" || key === "namespace") {
          add(one[key]);
        } else if (key === "outcome") {
          const outcome = outcomeOf(one, wanted.rule, wanted.mode);
          if (outcome !== undefined) add(outcome);
        } else if (key === "rule") {
          for (const rule of new Set(one.items.map((item) => item[0]))) if (isOutcome(one, rule, wanted.mode, wanted.outcome)) add(rule);
        } else if (one.items.length) {
          for (const mode of MODES) if (isOutcome(one, wanted.rule, mode, wanted.outcome)) add(mode);
        }
      }
      return counts;
    };

    // --- The choices, from what the rows have; a value is written with "=" before it, since the empty one is a value, too.
    const sorted = (key, values) => {
      const order = key === "outcome" ? GRAVITY : key === "mode" ? MODES : null;
      return order ? order.filter((value) => values.has(value)) : [...values].sort();
    };
    const selects = {};
    for (const key of KEYS.slice(1)) {
      const select = form.elements[key];
      const all = sorted(key, new Set(countsOf(key, {}, []).keys()));
      selects[key] = new Map(all.map((value) => [value, select.appendChild(new Option("", `=${value}`))]));
    }
    // One choice at a time, so that a long list can be scrolled meanwhile; a newer filter calls off what is left.
    let labelling = 0;
    const relabel = (wanted, words, keys = Object.keys(selects)) => {
      const [key, ...rest] = keys;
      const counts = countsOf(key, wanted, words);
      for (const [value, option] of selects[key]) {
        const label = `${LABELS[key]?.[value] ?? value} (${thin(counts.get(value) || 0)})`;
        if (option.textContent !== label) option.textContent = label;
      }
      if (rest.length) labelling = setTimeout(() => relabel(wanted, words, rest), 0);
    };

    const apply = (wanted) => {
      const words = (wanted.q || "").toLowerCase().split(/\s+/).filter(Boolean);
      const active = Object.keys(wanted).length > 0;
      const before = new Map();
      let shown = 0;
      let devices = 0;
      for (const one of rows) {
        const wantedRow = matches(one, wanted, words);
        if (one.row.hidden === wantedRow) one.row.hidden = !wantedRow;
        before.set(one.block, (before.get(one.block) || 0) + (wantedRow ? 1 : 0));
        if (wantedRow) { shown += 1; devices += one.devices; }
      }
      for (const group of groups) {
        let inGroup = 0;
        for (const block of group.blocks) {
          const count = before.get(block) || 0;
          block.element.hidden = count === 0;
          // A browser guesses the height of what is off the screen from this.
          if (count !== block.shown) block.element.style.containIntrinsicSize = `auto ${37 * count}px`;
          block.shown = count;
          inGroup += count;
        }
        group.tally.textContent = active ? `${thin(inGroup)} of ${group.tally.dataset.all}` : group.tally.dataset.all;
        group.section.hidden = inGroup === 0 && (active || !group.cut);
        if (group.cut) group.cut.hidden = active;
      }
      nothing.hidden = shown > 0;
      const total = several(Number(found.dataset.all), "workload", "workloads");
      found.textContent = `${active ? `${thin(shown)} of ${total}` : total}, ${several(devices, "GPU", "GPUs")}`;
      // The numbers beside the choices may come a moment after the list.
      clearTimeout(labelling);
      labelling = setTimeout(() => relabel(wanted, words), 30);
    };

    // --- From the address to the form, and back.
    const fill = (wanted) => {
      form.elements.q.value = wanted.q || "";
      for (const [key, options] of Object.entries(selects)) {
        const value = wanted[key];
        // A shared view may name what is not here (any more): it is shown as a choice that finds nothing.
        if (value !== undefined && !options.has(value)) options.set(value, form.elements[key].appendChild(new Option(value, `=${value}`)));
        form.elements[key].value = value === undefined ? "" : `=${value}`;
      }
    };
    const fromForm = () => {
      const wanted = {};
      if (form.elements.q.value.trim()) wanted.q = form.elements.q.value.trim();
      for (const key of KEYS.slice(1)) if (form.elements[key].value) wanted[key] = form.elements[key].value.slice(1);
      return wanted;
    };
    const fromAddress = () => {
      const wanted = parse(location.hash);
      fill(wanted);
      apply(wanted);
      document.getElementById("workloads").scrollIntoView({ behavior: "instant" });
    };
    const changed = () => {
      const wanted = fromForm();
      const hash = written(wanted);
      history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
      apply(wanted);
    };

    let typing = 0;
    form.addEventListener("input", (event) => {
      clearTimeout(typing);
      typing = setTimeout(changed, event.target.name === "q" ? 120 : 0);
    });
    form.addEventListener("reset", () => setTimeout(changed, 0));
    form.addEventListener("submit", (event) => event.preventDefault());
    addEventListener("hashchange", () => { if (isFilter(location.hash)) fromAddress(); });
    // A link to the view that is shown already changes no address: it leads there all the same.
    document.addEventListener("click", (event) => {
      const link = event.target.closest?.("a[data-f]");
      if (link && link.getAttribute("href") === location.hash) fromAddress();
    });
    unfold.addEventListener("click", () => {
      const open = unfold.getAttribute("aria-pressed") !== "true";
      for (const one of rows) if (!one.row.hidden && one.row.firstElementChild.tagName === "DETAILS") one.row.firstElementChild.open = open;
      unfold.setAttribute("aria-pressed", String(open));
      unfold.textContent = open ? "Close all" : "Open all";
    });

    if (isFilter(location.hash)) fromAddress(); else relabel({}, []);
  };
  document.addEventListener("DOMContentLoaded", start);
})();
