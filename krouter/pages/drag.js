// Where a dragged box comes to stand. Pure: rectangles and points in, an index out.

const NEAR = 1; // pixel: a pointer on the middle itself has reached it

/**
 * The index at which the box `held` stands now that the pointer is at `to`, having been at `from`
 * when a box was last moved. `rects` maps indices to `{left, top, right, bottom}`. It takes the
 * place of the box under the pointer once that is past its middle, seen from `held`, and has come
 * in this direction: so boxes that change places under a pointer never do so to and fro.
 */
export function destination(rects, held, from, to) {
  const own = rects.get(held);
  const over = [...rects].find(([index, rect]) => index !== held && isInside(rect, to));
  if (!own || !over) return held;
  const [index, target] = over;
  const way = between(middle(own), middle(target));
  const isPast = along(between(middle(target), to), way) >= -NEAR;
  return isPast && along(between(from, to), way) > 0 ? index : held;
}

const isInside = ({ left, top, right, bottom }, [x, y]) =>
  x >= left && x <= right && y >= top && y <= bottom;
const middle = ({ left, top, right, bottom }) => [(left + right) / 2, (top + bottom) / 2];
const between = ([x1, y1], [x2, y2]) => [x2 - x1, y2 - y1];

/** How far `step` goes in the direction of `way`. */
const along = ([x1, y1], [x2, y2]) => (x1 * x2 + y1 * y2) / (Math.hypot(x2, y2) || 1);
