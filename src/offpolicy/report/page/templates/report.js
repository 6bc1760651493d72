// The page is complete without this script. It makes the map easier to read, and expands all sections for printing.
"use strict";
(() => {
  const REACH = 28; // pixels around a point in which it responds

  const show = (map, svg, tip, ring, point) => {
    tip.replaceChildren(...point.lines.map((text, k) => {
      const line = document.createElement(k ? "div" : "strong");
      line.textContent = text;
      return line;
    }));
    ring.setAttribute("cx", point.x + "%");
    ring.setAttribute("cy", point.y + "%");
    ring.setAttribute("r", point.r + 3);
    ring.style.display = "";
    tip.hidden = false;
    const left = point.x / 100 * svg.clientWidth, top = point.y / 100 * svg.clientHeight;
    const room = svg.clientWidth - tip.offsetWidth;
    tip.style.left = Math.max(0, Math.min(room, left - tip.offsetWidth / 2)) + "px";
    const above = top - tip.offsetHeight - point.r - 10;
    tip.style.top = (above > -20 ? above : top + point.r + 10) + "px";
  };

  const nearest = (points, cost) => {
    let best = null, least = Infinity;
    for (const point of points) {
      const c = cost(point);
      if (c < least) { best = point; least = c; }
    }
    return best;
  };

  const DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

  const start = (map) => {
    const svg = map.querySelector("svg");
    const points = Array.from(svg.querySelectorAll("circle"), (circle) => {
      const title = circle.querySelector("title");
      title.remove(); // or the browser's own tooltip would cover ours
      return {
        x: parseFloat(circle.getAttribute("cx")), y: parseFloat(circle.getAttribute("cy")),
        r: parseFloat(circle.getAttribute("r")), lines: title.textContent.split("\n"),
      };
    });
    const ring = document.createElementNS(svg.namespaceURI, "circle");
    ring.setAttribute("class", "ring");
    ring.style.display = "none";
    svg.append(ring);
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.setAttribute("role", "status");
    tip.hidden = true;
    map.append(tip);
    map.tabIndex = 0;
    map.setAttribute("role", "group");
    map.setAttribute("aria-label", "Map of actions. Use the arrow keys to move between actions, and Escape to hide the tooltip.");
    let current = null;
    const choose = (point) => {
      current = point;
      if (point) show(map, svg, tip, ring, point);
      else { tip.hidden = true; ring.style.display = "none"; }
    };
    const at = (event) => {
      const box = svg.getBoundingClientRect();
      const away = (p) => Math.hypot(p.x / 100 * box.width - (event.clientX - box.left),
        p.y / 100 * box.height - (event.clientY - box.top));
      const point = nearest(points, away); // by centres, so that a small point on a large one can be reached
      choose(point && away(point) <= REACH + point.r ? point : null);
    };
    svg.addEventListener("pointermove", at);
    svg.addEventListener("pointerdown", at);
    svg.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") choose(null); });
    map.addEventListener("blur", () => choose(null));
    map.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return choose(null);
      const direction = DIRECTIONS[event.key];
      if (!direction) return;
      event.preventDefault();
      if (!current) return choose(points[0]); // the most frequently logged one
      const next = nearest(points, (p) => {
        const dx = p.x - current.x, dy = p.y - current.y;
        const along = dx * direction[0] + dy * direction[1];
        const aside = Math.abs(dx * direction[1]) + Math.abs(dy * direction[0]);
        return along > 0 ? along + 2 * aside : Infinity;
      });
      if (next) choose(next);
    });
  };

  document.querySelectorAll("[data-map]").forEach(start);

  let opened = [];
  addEventListener("beforeprint", () => {
    opened = Array.from(document.querySelectorAll("details:not([open])"));
    opened.forEach((each) => { each.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((each) => { each.open = false; }));
})();
