"use strict";
// Theme, tooltips, sortable tables, tabs. The page reads without any of it.
(function () {
  const root = document.documentElement;
  const themes = ["automatic", "light", "dark"];
  const button = document.getElementById("theme");
  function setTheme(name) {
    if (name === "automatic") delete root.dataset.theme;
    else root.dataset.theme = name;
    button.textContent = "Theme: " + name;
    button.value = name;
    // A file opened from disk may have no storage.
    try { localStorage.setItem("gpujit-theme", name); } catch (e) { /* the choice lasts as long as the page */ }
  }
  let kept = "automatic";
  try { kept = localStorage.getItem("gpujit-theme") || kept; } catch (e) { /* as above */ }
  setTheme(themes.includes(kept) ? kept : "automatic");
  button.hidden = false;
  button.addEventListener("click", () => setTheme(themes[(themes.indexOf(button.value) + 1) % themes.length]));

  // Tooltips of marks, by pointer and by focus.
  const tip = document.getElementById("tip");
  function showTip(mark, x, y) {
    tip.textContent = mark.getAttribute("aria-label");
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(x + 12, innerWidth - box.width - 4)) + "px";
    tip.style.top = (y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 12) : y + 18) + "px";
  }
  const markOf = (event) => event.target.closest ? event.target.closest(".mark") : null;
  document.addEventListener("pointermove", (event) => {
    const mark = markOf(event);
    if (mark) showTip(mark, event.clientX, event.clientY);
    else if (!document.activeElement || !document.activeElement.matches(".mark")) tip.hidden = true;
  });
  document.addEventListener("focusin", (event) => {
    const mark = markOf(event);
    if (!mark) { tip.hidden = true; return; }
    const box = mark.getBoundingClientRect();
    showTip(mark, box.left + box.width / 2, box.top + box.height / 2);
  });
  document.addEventListener("focusout", () => { tip.hidden = true; });
  document.addEventListener("scroll", () => { tip.hidden = true; }, true);

  // Pictures say what their parts are in titles, which a keyboard does not reach: they become marks.
  for (const picture of document.querySelectorAll("svg.memory")) {
    picture.setAttribute("role", "group");
    picture.classList.add("marks");
    for (const title of picture.querySelectorAll("g > title")) {
      const mark = title.parentElement;
      mark.classList.add("mark");
      mark.setAttribute("role", "img");
      mark.setAttribute("aria-label", title.textContent);
      title.remove();
    }
  }

  // Each chart is one stop of the tab key; arrows go from mark to mark.
  for (const chart of document.querySelectorAll(".marks")) {
    const marks = Array.from(chart.querySelectorAll(".mark"));
    marks.forEach((mark, i) => mark.setAttribute("tabindex", i ? "-1" : "0"));
    chart.addEventListener("keydown", (event) => {
      const at = marks.indexOf(document.activeElement);
      const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: marks.length - 1 }[event.key];
      if (event.key === "Escape") tip.hidden = true;
      if (at < 0 || to === undefined) return;
      event.preventDefault();
      const next = marks[Math.max(0, Math.min(to, marks.length - 1))];
      marks[at].setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    });
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach((head, column) => {
      const name = head.textContent;
      const sort = document.createElement("button");
      sort.type = "button";
      sort.textContent = name;
      head.replaceChildren(sort);
      sort.addEventListener("click", () => {
        const first = head.classList.contains("number") ? "descending" : "ascending";
        const now = head.getAttribute("aria-sort");
        const order = now === null ? first : now === "ascending" ? "descending" : "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", order);
        const key = (row) => {
          const cell = row.cells[column];
          return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
        };
        const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
        const rows = Array.from(table.tBodies[0].rows).map((row) => [key(row), row]);
        rows.sort((a, b) => compare(a[0], b[0]) * (order === "ascending" ? 1 : -1));
        table.tBodies[0].append(...rows.map((pair) => pair[1]));
      });
    });
  }

  for (const list of document.querySelectorAll("[role=tablist]")) {
    const tabs = Array.from(list.querySelectorAll("[role=tab]"));
    const choose = (tab, withFocus) => {
      for (const other of tabs) {
        const chosen = other === tab;
        other.setAttribute("aria-selected", String(chosen));
        other.tabIndex = chosen ? 0 : -1;
        document.getElementById(other.getAttribute("aria-controls")).hidden = !chosen;
      }
      if (withFocus) tab.focus();
      document.getElementById(tab.getAttribute("aria-controls")).dispatchEvent(new Event("shown"));
    };
    tabs.forEach((tab, i) => {
      tab.addEventListener("click", () => choose(tab, false));
      tab.addEventListener("keydown", (event) => {
        const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1 }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        choose(tabs[(to + tabs.length) % tabs.length], true);
      });
    });
  }

  // A link to a folded part unfolds it; paper shows everything.
  function unfold() {
    let target = null;
    try { target = location.hash ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null; } catch (e) { /* no such place */ }
    for (let part = target; part; part = part.parentElement) if (part.matches("details")) part.open = true;
    if (target) target.scrollIntoView();
  }
  addEventListener("hashchange", unfold);
  unfold();
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = Array.from(document.querySelectorAll("details:not([open])"));
    opened.forEach((part) => { part.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((part) => { part.open = false; }));
})();
