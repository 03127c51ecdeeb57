"use strict";
// What a browser makes of a page: written into the outer page's element by that name once this one is loaded.
(() => {
  const errors = [];
  addEventListener("error", (e) => errors.push(e.message));
  const covers = (a, b) => {
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left), down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    return across > 2 && down > 0.35 * Math.min(a.height, b.height);
  };
  const texts = (svg) => [...svg.querySelectorAll("text")]
    .map((t) => ({ word: t.textContent.trim(), halo: t.classList.contains("halo"), at: t.getBoundingClientRect() }))
    .filter((t) => t.word !== "" && t.at.width > 0);
  const look = () => {
    const root = document.documentElement, overlap = [], outside = [];
    let names = 0;
    for (const svg of document.querySelectorAll("svg.picture")) {
      const all = texts(svg), frame = svg.getBoundingClientRect();
      names += all.length;
      const unit = frame.width / svg.viewBox.baseVal.width, begins = (x) => frame.left + x * unit;
      all.forEach((a, i) => {
        if (!a.halo && a.at.left < begins(30) && a.at.right > begins(Number(svg.dataset.left))) overlap.push(a.word + " | its lane");
        if (a.at.left < frame.left - 1 || a.at.right > frame.right + 1 || a.at.top < frame.top - 1 || a.at.bottom > frame.bottom + 1) outside.push(a.word);
        for (const b of all.slice(i + 1)) if (covers(a.at, b.at)) overlap.push(a.word + " | " + b.word);
      });
    }
    let readout = "";
    const svg = document.querySelector("svg.picture"), box = document.getElementById("readout");
    if (svg) {
      const frame = svg.getBoundingClientRect();
      svg.dispatchEvent(new PointerEvent("pointermove", { clientX: frame.left + frame.width / 2, clientY: frame.top + 50 }));
      readout = box.hidden ? "" : box.innerText;
      svg.dispatchEvent(new PointerEvent("pointerleave"));
    }
    return {
      errors, overlap, outside, names, readout, stays: !!svg && !box.hidden, wider: root.scrollWidth - root.clientWidth,
      fetched: performance.getEntriesByType("resource").map((r) => r.name),
    };
  };
  addEventListener("load", () => {
    document.querySelectorAll("details").forEach((d) => { d.open = true; });
    parent.tell(frameElement.name, look());
  });
})();
