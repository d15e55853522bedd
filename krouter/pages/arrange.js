// Boxes of a drawing that can be put in order, by pointer and by keys.

const DRAG_FROM = 6; // pixels, below which it is a click
const STEPS = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };

const indexOf = (target) => {
  const box = target.closest?.("[data-index]");
  return box ? Number(box.dataset.index) : null;
};

const nothing = () => {};

/**
 * Makes the boxes inside `place` movable; it may be drawn anew at any time. `open` is what a click
 * or Enter does, besides choosing a box.
 */
export function arranged(place, { move = nothing, remove = nothing, select, open = nothing }) {
  byPointer(place, move, select, open);
  place.addEventListener("keydown", (event) => {
    const index = indexOf(event.target);
    if (index == null) return;
    const step = STEPS[event.key];
    if (step && (event.altKey || event.shiftKey)) move(index, index + step);
    else if (step) select(index + step);
    else if (event.key === "Home") select(0);
    else if (event.key === "End") select(Infinity);
    else if (event.key === "Delete" || event.key === "Backspace") remove(index);
    else if (event.key === "Enter" || event.key === " ") {
      select(index);
      open(index);
    } else return;
    event.preventDefault();
  });
}

function byPointer(place, move, select, open) {
  let held = null;
  place.addEventListener("pointerdown", (event) => {
    const index = indexOf(event.target);
    if (index == null || event.button) return;
    held = { index, x: event.clientX, y: event.clientY, moving: false };
    place.setPointerCapture(event.pointerId);
    event.preventDefault();
    select(index);
  });
  place.addEventListener("pointermove", (event) => {
    if (!held) return;
    held.moving ||= Math.hypot(event.clientX - held.x, event.clientY - held.y) > DRAG_FROM;
    place.classList.toggle("dragging", held.moving);
    const over = held.moving ? boxAt(place, event.clientX, event.clientY) : null;
    if (over == null || over === held.index) return;
    move(held.index, over);
    held.index = over;
  });
  const end = () => {
    held = null;
    place.classList.remove("dragging");
  };
  place.addEventListener("pointercancel", end);
  place.addEventListener("pointerup", () => {
    const clicked = held && !held.moving ? held.index : null;
    end();
    if (clicked != null) open(clicked);
  });
}

/** The index of the box at a point. */
function boxAt(place, x, y) {
  for (const box of place.querySelectorAll("[data-index]")) {
    const { left, right, top, bottom } = box.getBoundingClientRect();
    if (x >= left && x <= right && y >= top && y <= bottom) return Number(box.dataset.index);
  }
  return null;
}
