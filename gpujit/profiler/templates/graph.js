"use strict";
// Draws graphs from data, the parts that are unfolded and no others. Nodes stand in scopes (modules, groups, blocks,
// stretches of long lists); a scope's children are laid out in layers by the edges between them.
(function () {
  const SVG = "http://www.w3.org/2000/svg";
  const NODE_HEIGHT = 38, TITLE = 28, PAD = 14, GAP_X = 18, GAP_Y = 44, ROW = 1500;
  // Boxes that are drawn at first, and operators of a graph that can be unfolded as a whole.
  const SMALL = 60, WHOLE = 600;
  const stages = JSON.parse(document.getElementById("graph-data").textContent);

  function make(name, attributes, parent) {
    const element = document.createElementNS(SVG, name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (parent) parent.appendChild(element);
    return element;
  }
  const cut = (text, count) => text.length > count ? text.slice(0, count - 1) + "\u2026" : text;

  // Scopes and nodes share one numbering: a scope's id is its index, a node's comes behind all scopes. Scope 0 is all.
  function Tree(stage) {
    const scopes = stage.scopes, nodes = stage.nodes, count = scopes.length;
    const parent = scopes.map((s) => s.p).concat(nodes.map((n) => n.p));
    const children = scopes.map(() => []);
    const size = scopes.map(() => 0), first = scopes.map(() => Infinity);
    nodes.forEach((node, i) => {
      children[node.p].push(count + i);
      for (let s = node.p; s >= 0; s = parent[s]) { size[s] += 1; first[s] = Math.min(first[s], i); }
    });
    for (let s = 1; s < count; s++) children[parent[s]].push(s);
    const order = (id) => id < count ? first[id] - 0.5 : id - count;
    children.forEach((list) => list.sort((a, b) => order(a) - order(b)));
    const depth = parent.map(() => 0);
    for (let id = 1; id < parent.length; id++) {
      let d = 0;
      for (let s = parent[id]; s >= 0; s = parent[s]) d += 1;
      depth[id] = d;
    }
    // Edges between children of a scope, whatever is unfolded.
    const inner = scopes.map(() => new Map());
    for (const [from, to] of stage.edges) {
      let a = count + from, b = count + to;
      while (depth[a] > depth[b]) a = parent[a];
      while (depth[b] > depth[a]) b = parent[b];
      while (parent[a] !== parent[b]) { a = parent[a]; b = parent[b]; }
      if (a === b) continue;
      const out = inner[parent[a]];
      if (!out.has(a)) out.set(a, new Set());
      out.get(a).add(b);
    }
    return { scopes, nodes, count, parent, children, size, depth, inner };
  }

  function View(panel, stage) {
    const tree = Tree(stage);
    const canvas = panel.querySelector(".canvas"), about = panel.querySelector(".about dl");
    const search = panel.querySelector("input"), found = panel.querySelector(".found");
    const open = new Set([0]);
    let visible = [], boxes = new Map(), active = -1, zoom = 1, hits = [], hit = -1, marked = new Set();
    let svg = null, wide = 0, high = 0;

    const isScope = (id) => id < tree.count;
    const fact = (id) => isScope(id) ? tree.scopes[id] : tree.nodes[id - tree.count];
    const below = (id) => isScope(id) ? tree.size[id] + (tree.size[id] === 1 ? " operator" : " operators") : fact(id).t;

    function sizeOf(id) {
      if (isScope(id) && open.has(id)) return layout(id);
      const item = fact(id);
      const letters = Math.max(cut(item.l, 34).length * 7.2, cut(below(id), 40).length * 6.2);
      return { w: Math.max(84, letters + 22), h: NODE_HEIGHT, at: null };
    }

    // Children of an open scope in rows: a row for each layer, several for a layer that is too wide.
    function layout(scope) {
      const list = tree.children[scope], edges = tree.inner[scope];
      const place = new Map(list.map((id, i) => [id, i]));
      const rank = new Map(list.map((id) => [id, 0]));
      const before = new Map(list.map((id) => [id, []]));
      for (const id of list) {
        for (const to of edges.get(id) || []) {
          if (place.get(to) <= place.get(id)) continue;
          rank.set(to, Math.max(rank.get(to), rank.get(id) + 1));
          before.get(to).push(id);
        }
      }
      const sizes = new Map(list.map((id) => [id, sizeOf(id)]));
      const layers = [];
      for (const id of list) (layers[rank.get(id)] = layers[rank.get(id)] || []).push(id);
      const rows = [];
      for (const layer of layers) {
        let row = [], width = 0;
        for (const id of layer || []) {
          const w = sizes.get(id).w + GAP_X;
          if (row.length && width + w > ROW) { rows.push(row); row = []; width = 0; }
          row.push(id);
          width += w;
        }
        if (row.length) rows.push(row);
      }
      // Each row in the order of what it reads, as near below it as its neighbours allow.
      const centre = new Map();
      const widthOf = (row) => row.reduce((sum, id) => sum + sizes.get(id).w + GAP_X, -GAP_X);
      const whole = Math.max(60, ...rows.map(widthOf));
      for (const row of rows) {
        const wish = (id) => {
          const known = before.get(id).filter((p) => centre.has(p));
          return known.length ? known.reduce((sum, p) => sum + centre.get(p), 0) / known.length : whole / 2;
        };
        const wishes = new Map(row.map((id) => [id, wish(id)]));
        row.sort((a, b) => wishes.get(a) - wishes.get(b) || place.get(a) - place.get(b));
        let edge = 0;
        const left = row.map((id) => {
          const x = Math.max(edge, wishes.get(id) - sizes.get(id).w / 2);
          edge = x + sizes.get(id).w + GAP_X;
          return x;
        });
        let limit = whole;
        for (let i = row.length - 1; i >= 0; i--) {
          left[i] = Math.max(0, Math.min(left[i], limit - sizes.get(row[i]).w));
          limit = left[i] - GAP_X;
        }
        row.forEach((id, i) => centre.set(id, left[i] + sizes.get(id).w / 2));
      }
      const at = new Map();
      const title = scope ? TITLE : 0;
      const head = scope ? cut(fact(scope).l, 60).length * 7.2 + 30 : 0;
      const total = Math.max(whole, head);
      let y = PAD + title;
      for (const row of rows) {
        const height = Math.max(...row.map((id) => sizes.get(id).h));
        for (const id of row) {
          const one = sizes.get(id);
          at.set(id, { x: PAD + (total - whole) / 2 + centre.get(id) - one.w / 2, y: y + (height - one.h) / 2, size: one });
        }
        y += height + GAP_Y;
      }
      return { w: total + 2 * PAD, h: Math.max(y - GAP_Y, title + PAD) + PAD, at };
    }

    function place(scope, box, x, y) {
      for (const id of tree.children[scope]) {
        const spot = box.at.get(id);
        boxes.set(id, { x: x + spot.x, y: y + spot.y, w: spot.size.w, h: spot.size.h });
        visible.push(id);
        if (spot.size.at) place(id, spot.size, x + spot.x, y + spot.y);
      }
    }

    // What stands for a node: the outermost folded scope around it.
    function shown(id) {
      let best = id;
      for (let s = tree.parent[id]; s > 0; s = tree.parent[s]) if (!open.has(s)) best = s;
      return best;
    }

    function draw(withFocus) {
      const box = layout(0);
      visible = [];
      boxes = new Map();
      place(0, box, 0, 0);
      wide = box.w;
      high = box.h;
      svg = make("svg", { role: "tree", "aria-label": stage.title });
      const defs = make("defs", {}, svg);
      const tipId = "tip-" + stage.name;
      const arrow = make("marker", { id: tipId, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, defs);
      make("path", { d: "M0 0 L8 4 L0 8 z", class: "arrow" }, arrow);
      const edges = new Map();
      for (const [from, to, type] of stage.edges) {
        const a = shown(tree.count + from), b = shown(tree.count + to);
        if (a === b) continue;
        const key = a + ">" + b;
        if (!edges.has(key)) edges.set(key, { a, b, types: new Set() });
        edges.get(key).types.add(from + " " + type);
      }
      // Lines pass over the boxes that are open, and under nodes.
      const layer = make("g", { "aria-hidden": "true" }, svg);
      for (const id of visible) if (isScope(id) && open.has(id)) drawBack(id, layer);
      for (const edge of edges.values()) drawEdge(edge, layer, tipId);
      if (!visible.includes(active)) active = visible.length ? visible[0] : -1;
      visible.forEach(drawItem);
      svg.setAttribute("viewBox", `0 0 ${wide} ${high}`);
      canvas.replaceChildren(svg);
      setZoom(zoom);
      if (withFocus && active >= 0) focus(active);
    }

    // Boxes of operators and folded parts that a line from (x1, y1) down to (x2, y2) would cross.
    function between(edge, x1, y1, x2, y2) {
      return visible.filter((id) => {
        const box = boxes.get(id);
        if (id === edge.a || id === edge.b || (isScope(id) && open.has(id)) || box.y >= y2 || box.y + box.h <= y1) return false;
        const x = x1 + (x2 - x1) * (Math.min(Math.max(box.y + box.h / 2, y1), y2) - y1) / (y2 - y1);
        return x > box.x - 6 && x < box.x + box.w + 6;
      });
    }

    function drawEdge(edge, layer, tipId) {
      const from = boxes.get(edge.a), to = boxes.get(edge.b);
      const x1 = from.x + from.w / 2, y1 = from.y + from.h, x2 = to.x + to.w / 2, y2 = to.y;
      const drop = y2 - y1, inWay = drop > 0 ? between(edge, x1, y1, x2, y2) : [edge.a, edge.b];
      let path, lx = (x1 + x2) / 2, ly = (y1 + y2) / 2;
      if (!inWay.length) {
        const bend = Math.min(drop / 2, 60);
        path = `M${x1} ${y1} C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`;
      } else {
        // Past what stands between: by the side.
        const side = Math.max(...inWay.map((id) => boxes.get(id).x + boxes.get(id).w)) + 14;
        path = `M${x1} ${y1} C${x1} ${y1 + 26} ${side} ${y1} ${side} ${y1 + 40} L${side} ${y2 - 40} C${side} ${y2} ${x2} ${y2 - 26} ${x2} ${y2}`;
        lx = side;
        wide = Math.max(wide, side + 60);
      }
      make("path", { d: path, class: "edge", "marker-end": `url(#${tipId})` }, layer);
      const types = Array.from(edge.types);
      const text = types.length === 1 ? types[0].slice(types[0].indexOf(" ") + 1) : types.length + " values";
      if (text) make("text", { x: lx, y: ly + 3, class: "edge-label", "text-anchor": "middle" }, layer).textContent = cut(text, 32);
    }

    function drawBack(id, layer) {
      const box = boxes.get(id), group = fact(id).g;
      make("rect", { x: box.x, y: box.y, width: box.w, height: box.h, rx: 6, class: group >= 0 ? "back c" + group % 8 : "back" }, layer);
    }

    function drawItem(id) {
      const item = fact(id), box = boxes.get(id), scope = isScope(id), unfolded = scope && open.has(id);
      const names = ["item", scope ? "scope" : "node"];
      if (scope) names.push(unfolded ? "open" : "closed");
      if (item.g >= 0) names.push("c" + item.g % 8);
      if (item.e) names.push("end");
      if (marked.has(id)) names.push("hit");
      if (hit >= 0 && hits[hit] === id) names.push("now");
      const group = make("g", { class: names.join(" "), role: "treeitem", "data-id": id, "aria-level": tree.depth[id], tabindex: id === active ? 0 : -1 }, svg);
      if (scope) group.setAttribute("aria-expanded", String(unfolded));
      group.setAttribute("aria-label", [item.l, scope ? item.k : "", below(id), item.g >= 0 ? "group " + item.g : ""].filter(Boolean).join(", "));
      make("rect", { x: box.x, y: box.y, width: box.w, height: box.h, rx: 6 }, group);
      if (unfolded) {
        make("text", { x: box.x + 10, y: box.y + 18 }, group).textContent = "\u2212 " + cut(item.l, 60);
      } else {
        const middle = { x: box.x + box.w / 2, "text-anchor": "middle" };
        make("text", { ...middle, y: box.y + (below(id) ? 16 : 23) }, group).textContent = (scope ? "+ " : "") + cut(item.l, 34);
        make("text", { ...middle, y: box.y + 30, class: "sub" }, group).textContent = cut(below(id), 40);
      }
    }

    const itemOf = (id) => svg.querySelector(`[data-id="${id}"]`);

    function focus(id) {
      const old = itemOf(active);
      if (old) old.setAttribute("tabindex", "-1");
      active = id;
      const now = itemOf(id);
      now.setAttribute("tabindex", "0");
      now.focus({ preventScroll: true });
      reveal(id);
      describe(id);
    }

    function reveal(id) {
      const box = boxes.get(id);
      const x = box.x * zoom + (canvas.scrollWidth - wide * zoom) / 2, y = box.y * zoom;
      const inside = x >= canvas.scrollLeft && x + box.w * zoom <= canvas.scrollLeft + canvas.clientWidth &&
        y >= canvas.scrollTop && y + Math.min(box.h, 60) * zoom <= canvas.scrollTop + canvas.clientHeight;
      if (!inside) {
        canvas.scrollTo({ left: x + box.w * zoom / 2 - canvas.clientWidth / 2, top: y - canvas.clientHeight / 3 });
      }
    }

    function describe(id) {
      const item = fact(id);
      const rows = isScope(id)
        ? [[item.k, item.l], ["holds", below(id)]]
        : item.f;
      about.replaceChildren();
      for (const [name, value] of rows) {
        if (!value) continue;
        const dt = document.createElement("dt"), dd = document.createElement("dd");
        dt.textContent = name;
        dd.textContent = value;
        dd.className = "name";
        about.append(dt, dd);
      }
      const target = item.g >= 0 && document.getElementById("group-" + item.g);
      if (target) {
        const dt = document.createElement("dt"), dd = document.createElement("dd"), a = document.createElement("a");
        dt.textContent = "fusion group";
        a.href = "#group-" + item.g;
        a.textContent = `group ${item.g}: its kernel`;
        dd.append(a);
        about.append(dt, dd);
      }
    }

    function toggle(id) {
      if (!isScope(id)) return;
      if (open.has(id)) open.delete(id); else open.add(id);
      active = id;
      draw(true);
    }

    function setZoom(value) {
      zoom = Math.max(0.1, Math.min(3, value));
      svg.setAttribute("width", wide * zoom);
      svg.setAttribute("height", high * zoom);
    }

    function unfoldTo(id) {
      for (let s = tree.parent[id]; s > 0; s = tree.parent[s]) open.add(s);
    }

    function find() {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      hits = [];
      hit = -1;
      if (words.length) {
        for (let id = 1; id < tree.parent.length; id++) {
          const item = fact(id);
          const text = (isScope(id) ? item.l + " " + item.k : [item.l, item.t].concat(item.f.map((f) => f[1])).join(" ")).toLowerCase();
          if (words.every((word) => text.includes(word))) hits.push(id);
        }
        // Down the page, as the graph runs.
        hits.sort((a, b) => (isScope(a) ? -1 : a) - (isScope(b) ? -1 : b) || a - b);
      }
      marked = new Set(hits);
      if (hits.length && hits.length <= 40) hits.forEach(unfoldTo);
      go(0, false);
    }

    function go(to, withFocus) {
      if (hits.length) {
        hit = (to + hits.length) % hits.length;
        unfoldTo(hits[hit]);
        active = hits[hit];
      }
      draw(withFocus);
      if (hits.length) { reveal(active); describe(active); }
      found.textContent = search.value.trim() === "" ? "" : hits.length ? `${hit + 1} of ${hits.length} found` : "nothing found";
    }

    let waiting = 0;
    search.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(find, 120);
    });
    search.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      go(hit + (event.shiftKey ? -1 : 1), false);
    });
    const all = panel.querySelector("[data-do=unfold]");
    if (tree.nodes.length > WHOLE) {
      all.disabled = true;
      all.title = `${tree.nodes.length} operators are too many to draw at once`;
    }
    const actions = {
      next: () => go(hit + 1, false),
      previous: () => go(hit - 1, false),
      unfold: () => { for (let s = 1; s < tree.count; s++) open.add(s); draw(false); },
      fold: () => { open.clear(); open.add(0); draw(false); },
      larger: () => setZoom(zoom * 1.25),
      smaller: () => setZoom(zoom / 1.25),
      fit: () => setZoom(Math.min(1, (canvas.clientWidth - 4) / wide)),
    };
    for (const button of panel.querySelectorAll("[data-do]")) button.addEventListener("click", actions[button.dataset.do]);
    canvas.addEventListener("click", (event) => {
      const item = event.target.closest(".item");
      if (!item) return;
      const id = Number(item.dataset.id);
      if (isScope(id)) toggle(id); else focus(id);
    });
    canvas.addEventListener("focusin", (event) => {
      const item = event.target.closest(".item");
      if (item) describe(Number(item.dataset.id));
    });
    canvas.addEventListener("keydown", (event) => {
      const item = event.target.closest(".item");
      if (!item) return;
      const id = Number(item.dataset.id), i = visible.indexOf(id);
      let to = -1;
      if (event.key === "ArrowDown") to = visible[Math.min(i + 1, visible.length - 1)];
      else if (event.key === "ArrowUp") to = visible[Math.max(i - 1, 0)];
      else if (event.key === "Home") to = visible[0];
      else if (event.key === "End") to = visible[visible.length - 1];
      else if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(id); return; }
      else if (event.key === "ArrowRight" && isScope(id)) {
        if (!open.has(id)) { event.preventDefault(); toggle(id); return; }
        to = tree.children[id][0];
      } else if (event.key === "ArrowLeft") {
        if (isScope(id) && open.has(id)) { event.preventDefault(); toggle(id); return; }
        to = tree.parent[id] > 0 ? tree.parent[id] : id;
      } else return;
      event.preventDefault();
      focus(to);
    });

    // From the outside in, as long as what is seen stays small.
    let seen = tree.children[0].length;
    for (let level = tree.children[0].filter(isScope); level.length; level = level.flatMap((id) => tree.children[id]).filter(isScope)) {
      seen += level.reduce((sum, id) => sum + tree.children[id].length, 0);
      if (seen > SMALL) break;
      level.forEach((id) => open.add(id));
    }
    draw(false);
  }

  stages.forEach((stage) => {
    const panel = document.getElementById("graph-" + stage.name);
    let isDrawn = false;
    const show = () => {
      if (isDrawn || panel.hidden) return;
      isDrawn = true;
      View(panel, stage);
    };
    panel.addEventListener("shown", show);
    show();
  });
})();
