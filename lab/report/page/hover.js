"use strict";
// A crosshair over each picture, and what memory and every flow had at that time.
(() => {
  const { flows, pages } = JSON.parse(document.getElementById("series").textContent);
  const box = document.getElementById("readout");
  const show = (v, unit) => v === null || v === undefined ? "–" : (v >= 100 ? v.toFixed(0) : v.toPrecision(3)) + unit;
  const megabytes = (v) => show(v === null ? v : v / 1e6, " MB");
  const nearest = (list, t) => {
    let low = 0, high = list.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (list[middle] < t) low = middle + 1; else high = middle;
    }
    return low > 0 && t - list[low - 1] < list[low] - t ? low - 1 : low;
  };
  for (const svg of document.querySelectorAll("svg.picture")) {
    const { from, to, left, right } = svg.dataset;
    const cross = svg.querySelector(".cross");
    svg.addEventListener("pointermove", (e) => {
      const at = new DOMPoint(e.clientX, e.clientY).matrixTransform(svg.getScreenCTM().inverse());
      const inside = at.x >= +left && at.x <= +right;
      box.hidden = !inside;
      cross.style.opacity = inside ? 0.5 : 0;
      if (!inside) return;
      const t = +from + (at.x - left) / (right - left) * (to - from);
      cross.setAttribute("x1", at.x);
      cross.setAttribute("x2", at.x);
      box.textContent = t.toFixed(2) + " s";
      for (const p of pages) {
        if (t < p.t[0] || t > p.t[p.t.length - 1]) continue;
        const i = nearest(p.t, t), row = document.createElement("div");
        row.textContent = p.guest + "  left " + megabytes(p.left[i]) + "  queue " + megabytes(p.queue[i]) + "  delivered " + megabytes(p.delivered[i]) +
          "  writes " + show(p.dirty[i], " Mbit/s");
        box.append(row);
      }
      flows.forEach((f, n) => {
        if (!f.t.length) return;
        const i = nearest(f.t, t), row = document.createElement("div"), key = document.createElement("i");
        if (Math.abs(f.t[i] - t) > 0.5) return;
        key.style.background = "var(--f" + n % 8 + ")";
        row.append(key, f.name + "  " + show(f.mbps[i], " Mbit/s") + "  RTT " + show(f.rtt[i], " ms") + "  gap " + show(f.gap[i], " ms"));
        box.append(row);
      });
      box.style.left = Math.min(e.clientX + 16, innerWidth - box.offsetWidth - 8) + "px";
      box.style.top = Math.min(e.clientY + 16, innerHeight - box.offsetHeight - 8) + "px";
    });
    svg.addEventListener("pointerleave", () => { box.hidden = true; cross.style.opacity = 0; });
  }
})();
