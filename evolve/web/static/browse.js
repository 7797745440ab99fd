// The only script: following a run, zoom and filters of the lineage, keys. Pages work without it.
"use strict";
document.documentElement.classList.add("scripted");

// A page about a run that goes on is read again when the archive has changed.
const followed = document.querySelector("[data-follow]");
if (followed) {
  let seen = null;
  setInterval(async () => {
    if (document.hidden) return;
    try {
      const { version } = await (await fetch(followed.dataset.follow)).json();
      if (seen !== null && version !== seen) {
        const page = new DOMParser().parseFromString(await (await fetch(location.href)).text(), "text/html");
        document.querySelector("main").replaceWith(page.querySelector("main"));
      }
      seen = version;
    } catch { /* the server has ended; the page stays readable */ }
  }, 3000);
}

const lineage = document.getElementById("lineage");
if (lineage) {
  const canvas = lineage.querySelector(".canvas");
  const stage = canvas.querySelector(".stage");
  const svg = stage.querySelector("svg");
  const [width, height] = [svg.viewBox.baseVal.width, svg.viewBox.baseVal.height];
  let scale = 1;

  // The point (x, y) of the canvas stays where it is.
  const zoom = (factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) => {
    const next = Math.min(Math.max(scale * factor, 0.05), 6);
    const [left, top] = [(canvas.scrollLeft + x) * (next / scale) - x, (canvas.scrollTop + y) * (next / scale) - y];
    scale = next;
    // A transformation moves thousands of kernels at once; the stage keeps the room to scroll.
    svg.style.transform = `scale(${scale})`;
    stage.style.width = `${width * scale}px`;
    stage.style.height = `${height * scale}px`;
    canvas.scrollTo(left, top);
  };
  const fit = () => zoom(Math.min(canvas.clientWidth / width, (innerHeight * 0.72) / height) / scale);
  const steps = { in: () => zoom(1.3), out: () => zoom(1 / 1.3), fit };
  document.querySelectorAll("[data-zoom]").forEach((button) => button.addEventListener("click", steps[button.dataset.zoom]));
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.altKey) return; // plain wheels scroll
    event.preventDefault();
    const box = canvas.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const step = { "+": "in", "=": "in", "-": "out", 0: "fit" }[event.key];
    if (step && !event.ctrlKey && !event.metaKey) steps[step]();
  });
  let held = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button === 0 && event.pointerType === "mouse") held = { x: event.clientX, y: event.clientY, moved: false };
  });
  addEventListener("pointermove", (event) => {
    if (!held) return;
    canvas.scrollBy(held.x - event.clientX, held.y - event.clientY);
    held = { x: event.clientX, y: event.clientY, moved: held.moved || Math.abs(event.movementX) + Math.abs(event.movementY) > 2 };
  });
  addEventListener("pointerup", () => setTimeout(() => { held = null; }));
  canvas.addEventListener("click", (event) => { if (held?.moved) event.preventDefault(); }, true);
  canvas.addEventListener("dragstart", (event) => event.preventDefault());

  const controls = document.getElementById("lineage-controls");
  const show = () => {
    const chosen = new FormData(controls);
    lineage.className = `lineage by-${chosen.get("colour")}${chosen.get("hide") ? " hide-failures" : ""}`;
    const wanted = (chosen.get("find") || "").trim().toLowerCase();
    lineage.classList.toggle("finding", wanted !== "");
    svg.querySelectorAll(".n").forEach((node) =>
      node.classList.toggle("found", wanted !== "" && node.textContent.toLowerCase().includes(wanted)));
    const query = new URLSearchParams([...chosen].filter(([, value]) => value));
    history.replaceState(null, "", `?${query}`);
  };
  controls.addEventListener("input", show);
  controls.addEventListener("submit", (event) => event.preventDefault());
  if (height > innerHeight) fit();
}

// "/" goes to the search; j and k go through the rows of a table, or the steps of a story.
let row = -1;
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  if (event.key === "/") {
    event.preventDefault();
    document.querySelector(".find input").focus();
  } else if (event.key === "j" || event.key === "k") {
    const links = document.querySelectorAll("main tbody a.id, main tbody td:first-child > a, main .story .more a.id, main .hits a");
    row = Math.min(Math.max(row + (event.key === "j" ? 1 : -1), 0), links.length - 1);
    links[row]?.focus();
  }
});
