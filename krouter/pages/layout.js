// Where boxes and arrows go. Pure: boxes with heights in, places and paths out.
//
// A box is {width, height, x, y}; an edge {path, kind, from, to}, where kind names its look.

const GAP = 40; // between columns, where an arrow has room
const ROW = 34; // between rows
const RAIL = 20; // beside boxes that stand one below the other
const LEAST = 210; // width of a box
const MOST = 310;

/** How many columns of equal boxes fit, and how wide they are. */
function columns(count, width) {
  const fits = Math.max(1, Math.floor((width + GAP) / (LEAST + GAP)));
  const used = Math.min(count, fits);
  const each = Math.floor((width - GAP * (used - 1)) / used);
  return { used, width: Math.min(MOST, each) };
}

const right = (box) => [box.x + box.width, box.y + box.height / 2];
const left = (box) => [box.x, box.y + box.height / 2];
const top = (box) => [box.x + box.width / 2, box.y];
const bottom = (box) => [box.x + box.width / 2, box.y + box.height];

/** Straight pieces with rounded corners through `points`. */
function rounded(points, radius = 8) {
  let path = `M${points[0].map(Math.round).join(" ")}`;
  for (let i = 1; i < points.length - 1; i++) {
    const [before, at, after] = [points[i - 1], points[i], points[i + 1]];
    const reach = (other) => {
      const length = Math.hypot(other[0] - at[0], other[1] - at[1]) || 1;
      const part = Math.min(radius, length / 2) / length;
      return [at[0] + (other[0] - at[0]) * part, at[1] + (other[1] - at[1]) * part].map(Math.round);
    };
    path += ` L${reach(before).join(" ")} Q${at.map(Math.round).join(" ")} ${reach(after).join(" ")}`;
  }
  return `${path} L${points.at(-1).map(Math.round).join(" ")}`;
}

function curve([x1, y1], [x2, y2]) {
  const middle = Math.round((x1 + x2) / 2);
  return `M${Math.round(x1)} ${Math.round(y1)} C${middle} ${Math.round(y1)} ${middle} ${Math.round(y2)} ${Math.round(x2)} ${Math.round(y2)}`;
}

/** One row below the other; the boxes of a row are centred on its middle. */
function inRows(rows, place) {
  let y = 0;
  for (const row of rows) {
    const height = Math.max(...row.map((box) => box.height));
    for (const box of row) {
      box.x = place(box);
      box.y = y + (height - box.height) / 2;
    }
    y += height + ROW;
  }
  return Math.max(0, y - ROW);
}

/** From one box to the next in reading order, over the end of a row too. */
function onward(from, to) {
  if (to.y + to.height / 2 < from.y + from.height || to.x > from.x)
    return rounded([right(from), [left(to)[0], right(from)[1]]]);
  if (Math.abs(top(to)[0] - bottom(from)[0]) < 2) return rounded([bottom(from), top(to)]);
  const between = to.y - ROW / 2;
  return rounded([bottom(from), [bottom(from)[0], between], [top(to)[0], between], top(to)]);
}

/** Boxes in rows, each with an arrow to the next; one with `slim` set needs less room. */
export function chain(boxes, width) {
  if (width < 2 * LEAST + GAP) return stack(boxes, width);
  const rows = filled(boxes, width);
  const spare = (row) => Math.floor((width - taken(row)) / row.filter((box) => !box.slim).length);
  const more = Math.min(MOST - LEAST, ...rows.map(spare).filter(Number.isFinite));
  for (const box of boxes) box.width = least(box) + (box.slim ? 0 : more);
  for (const row of rows) row.reduce((x, box) => ((box.at = x), x + box.width + GAP), 0);
  const height = inRows(rows, (box) => box.at);
  const edges = boxes
    .slice(1)
    .map((box, index) => ({ path: onward(boxes[index], box), from: index, to: index + 1 }));
  return { height, edges };
}

function stack(boxes, width) {
  for (const box of boxes) box.width = width;
  const height = inRows(
    boxes.map((box) => [box]),
    () => 0,
  );
  const edges = boxes
    .slice(1)
    .map((box, index) => ({ path: onward(boxes[index], box), from: index, to: index + 1 }));
  return { height, edges };
}

const least = (box) => (box.slim ? 150 : LEAST);
const taken = (row) => row.reduce((sum, box) => sum + least(box), GAP * (row.length - 1));

function filled(boxes, width) {
  const rows = [];
  for (const box of boxes) {
    if (rows.length && taken([...rows.at(-1), box]) <= width) rows.at(-1).push(box);
    else rows.push([box]);
  }
  return rows;
}

/** Boxes that take turns: clockwise where there is room, else a column with a way back beside it. */
export function ring(boxes, width) {
  const half = Math.ceil(boxes.length / 2);
  if (boxes.length < 2) return chain(boxes, width);
  if (width < 2 * LEAST + GAP) return column(boxes, width);
  if (columns(half, width).used < half) return column(boxes, Math.min(width, 2 * MOST));
  return boxes.length === 2 ? pair(boxes, width) : circle(boxes, half, width);
}

function circle(boxes, half, width) {
  const cols = columns(Math.max(2, half), Math.min(width, half * (MOST + GAP)));
  const step = cols.width + GAP;
  const shift = boxes.length % 2 ? step / 2 : 0;
  boxes.forEach((box, index) => {
    box.width = cols.width;
    box.at = index < half ? index * step : (2 * half - 1 - index) * step - shift;
  });
  const rows = [boxes.slice(0, half), boxes.slice(half).reverse()];
  const height = inRows(rows, (box) => box.at);
  const edges = boxes.map((box, from) => {
    const to = (from + 1) % boxes.length;
    return { path: around(box, boxes[to], from < half, to < half), from, to };
  });
  return { height, edges };
}

/** An arrow of a circle: along the upper row, down, back along the lower one, up. */
function around(from, to, isUpper, toUpper) {
  if (isUpper && toUpper) return rounded([right(from), [to.x, right(from)[1]]]);
  if (!isUpper && !toUpper) return rounded([left(from), [to.x + to.width, left(from)[1]]]);
  const [start, end] = isUpper ? [bottom(from), top(to)] : [top(from), bottom(to)];
  if (Math.abs(start[0] - end[0]) < 2) return rounded([start, end]);
  return isUpper
    ? rounded([start, [start[0], right(to)[1]], right(to)])
    : rounded([left(from), [end[0], left(from)[1]], end]);
}

function pair(boxes, width) {
  const laid = chain(boxes, Math.min(width, 2 * MOST + GAP));
  const below = laid.height + ROW / 2;
  const [first, last] = boxes;
  const way = [bottom(last), [bottom(last)[0], below], [bottom(first)[0], below], bottom(first)];
  return { height: below + 2, edges: [...laid.edges, { path: rounded(way), from: 1, to: 0 }] };
}

function column(boxes, width) {
  const inner = width - RAIL;
  boxes.forEach((box) => {
    box.width = inner;
  });
  const height = inRows(
    boxes.map((box) => [box]),
    () => RAIL,
  );
  const edges = boxes.slice(1).map((box, index) => ({
    path: rounded([bottom(boxes[index]), top(box)]),
    from: index,
    to: index + 1,
  }));
  const [first, last] = [boxes[0], boxes.at(-1)];
  const back = [left(last), [4, left(last)[1]], [4, left(first)[1]], left(first)];
  return { height, edges: [...edges, { path: rounded(back), from: boxes.length - 1, to: 0 }] };
}

/** From `source` to each of `boxes`, and from them to `sink`, which leads to `last`. */
export function fan(source, boxes, sink, last, width) {
  return width < 700
    ? steepFan(source, boxes, sink, last, width)
    : wideFan(source, boxes, sink, last, width);
}

function wideFan(source, boxes, sink, last, width) {
  const small = 108;
  const each = Math.min(MOST, Math.floor((width - 2 * small - 3 * GAP - 20) / 2));
  boxes.forEach((box) => {
    box.width = each;
  });
  const height = Math.max(
    inRows(
      boxes.map((box) => [box]),
      () => small + GAP + 10,
    ),
    sink.height,
  );
  const middle = (box) => (height - box.height) / 2;
  Object.assign(source, { width: small, x: 0, y: middle(source) });
  Object.assign(sink, { width: each, x: small + each + 2 * GAP + 20, y: middle(sink) });
  Object.assign(last, { width: small, x: sink.x + each + GAP, y: middle(last) });
  const edges = boxes.flatMap((box, to) => [
    { path: curve(right(source), left(box)), to },
    { path: curve(right(box), left(sink)), from: to },
  ]);
  return { height, edges: [...edges, { path: curve(right(sink), left(last)), ends: true }] };
}

function steepFan(source, boxes, sink, last, width) {
  const inner = width - 2 * RAIL;
  const all = [source, ...boxes, sink, last];
  all.forEach((box) => {
    box.width = inner;
  });
  const height = inRows(
    all.map((box) => [box]),
    () => RAIL,
  );
  const edges = boxes.flatMap((box, to) => [
    { path: rounded([left(source), [4, left(source)[1]], [4, left(box)[1]], left(box)]), to },
    {
      path: rounded([
        right(box),
        [width - 4, right(box)[1]],
        [width - 4, right(sink)[1]],
        right(sink),
      ]),
      from: to,
    },
  ]);
  return { height, edges: [...edges, { path: rounded([bottom(sink), top(last)]), ends: true }] };
}
