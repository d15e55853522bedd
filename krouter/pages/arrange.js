// Boxes of a drawing that can be chosen and put in order, by pointer and by keys.

import { destination } from "./drag.js";

const DRAG_FROM = 6; // pixels, below which it is a click
const STEPS = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };

const indexOf = (target) => {
  const box = target.closest?.("[data-index]");
  return box ? Number(box.dataset.index) : null;
};

const isGrip = (target) => !!target.closest?.(".grip");

const nothing = () => {};

/**
 * Makes the boxes inside `place` movable; it may be drawn anew at any time. `open` is what a click
 * or Enter does, besides choosing a box. Arrows go through the boxes as they are drawn.
 */
export function arranged(place, { move = nothing, remove = nothing, select, open = nothing }) {
  new Pointer(place, { move, select, open });
  place.addEventListener("keydown", (event) => {
    const index = indexOf(event.target);
    if (index == null) return;
    const step = STEPS[event.key];
    if (step && (event.altKey || event.shiftKey)) move(index, index + step);
    else if (step) select(beside(place, index, step));
    else if (event.key === "Home") select(beside(place, index, -Infinity));
    else if (event.key === "End") select(beside(place, index, Infinity));
    else if (event.key === "Delete" || event.key === "Backspace") remove(index);
    else if (event.key === "Enter" || event.key === " ") {
      select(index);
      open(index);
    } else return;
    event.preventDefault();
  });
}

/** The index of the box that is drawn so many boxes after another one, or of the outermost. */
function beside(place, index, step) {
  const drawn = [...place.querySelectorAll("[data-index]")].map(indexOf);
  const at = drawn.indexOf(index) + step;
  return drawn[Math.max(0, Math.min(at, drawn.length - 1))];
}

/** A box is dragged by mouse or pen, by a finger only at its grip: elsewhere that scrolls. */
class Pointer {
  constructor(place, { move, select, open }) {
    Object.assign(this, { place, move, select, open });
    this.held = null;
    // what a finger holds by its grip does not scroll; touch-action has no effect inside an SVG
    const hold = (event) => isGrip(event.target) && event.preventDefault();
    place.addEventListener("touchstart", hold, { passive: false });
    place.addEventListener("pointerdown", (event) => this.down(event));
    place.addEventListener("pointermove", (event) => this.over(event));
    place.addEventListener("pointerup", (event) => this.up(event));
    place.addEventListener("pointercancel", () => this.cancel());
    this.escape = (event) => {
      if (event.key === "Escape") this.cancel();
    };
  }

  down(event) {
    const index = indexOf(event.target);
    if (index == null || event.button || this.held) return;
    const at = [event.clientX, event.clientY];
    const isTouch = event.pointerType === "touch";
    const mayDrag = !isTouch || isGrip(event.target);
    this.held = { index, began: index, at, turned: at, isTouch, mayDrag, moving: false };
    if (!mayDrag) return;
    this.place.setPointerCapture(event.pointerId);
    document.addEventListener("keydown", this.escape);
    event.preventDefault();
    if (!isTouch) this.select(index); // a finger scrolls where what it touches is drawn anew
  }

  over(event) {
    const { held } = this;
    if (!held?.mayDrag) return;
    const at = [event.clientX, event.clientY];
    held.moving ||= Math.hypot(at[0] - held.at[0], at[1] - held.at[1]) > DRAG_FROM;
    this.place.classList.toggle("dragging", held.moving);
    if (!held.moving) return;
    const to = destination(rects(this.place), held.index, held.turned, at);
    if (to === held.index) return;
    this.move(held.index, to);
    Object.assign(held, { index: to, turned: at });
  }

  up() {
    const { held } = this;
    this.end();
    if (!held || held.moving) return;
    if (held.isTouch) this.select(held.index);
    this.open(held.index);
  }

  /** Back to where it was. */
  cancel() {
    const { held } = this;
    this.end();
    if (held && held.index !== held.began) this.move(held.index, held.began);
  }

  end() {
    this.held = null;
    this.place.classList.remove("dragging");
    document.removeEventListener("keydown", this.escape);
  }
}

/** The boxes as they are seen now, by their indices. */
function rects(place) {
  const boxes = [...place.querySelectorAll("[data-index]")];
  return new Map(boxes.map((box) => [indexOf(box), box.getBoundingClientRect()]));
}
