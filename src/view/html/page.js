"use strict";
(() => {
const began = performance.now();
const byId = id => document.getElementById(id);
const runs = JSON.parse(byId("columns").textContent);
const root = byId("charts");
const dark = matchMedia("(prefers-color-scheme: dark)");
const print = matchMedia("print");
const style = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name);
const make = (name, parent, text) => {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
};
// The bounds of a step of the histograms: 8 for each power of two.
const lower = s => s < 8 ? s : (8 + s % 8) * 2 ** ((s >> 3) - 1);
const stepOf = ns => {
  if (ns < 8) return Math.floor(ns);
  const bit = Math.floor(Math.log2(ns));
  return (bit - 2) * 8 + Math.floor(ns / 2 ** (bit - 3)) % 8;
};
const LAST = 304;
const time = ns => {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]])
    if (ns >= size) return (ns / size >= 100 ? (ns / size).toFixed(0) : (ns / size).toFixed(ns % size ? 1 : 0)) + " " + unit;
  return Math.round(ns) + " ns";
};
const count = n => n.toLocaleString("en");
const clock = ms => new Date(ms).toISOString().slice(11, 19);
const range = s => s >= LAST ? "at least " + time(lower(s)) : time(lower(s)) + " to " + time(lower(s + 1));

// The calls of a series in each column, as pairs of a step and a count, and the time in each row.
const table = (run, index) => run.columns.map(([at, ns, parts]) => {
  const [rows, steps] = parts[index] || [[], []];
  const cells = [];
  for (let k = 1; k < steps.length; k++) if (steps[k]) cells.push([steps[0] + k - 1, steps[k]]);
  return {at, ns, rows, cells, calls: cells.reduce((sum, cell) => sum + cell[1], 0)};
});
const quantile = (column, q) => {
  if (column.calls < 1 / (1 - q) - 1e-9) return null;
  let seen = 0;
  for (const [step, n] of column.cells) if ((seen += n) >= column.calls * q - 1e-9) return step;
  return null;
};

const LEFT = 62, BOTTOM = 18, TOP = 6, HEIGHT = 190;
// A canvas with axes: `draw(context, width, height, left, top)`, drawn again when the colours or the width change.
const charts = [];
const chart = (parent, caption, draw, hint) => {
  const figure = make("figure", parent);
  make("figcaption", figure, caption);
  const canvas = make("canvas", figure);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", caption);
  const paint = () => {
    const width = Math.max(280, figure.clientWidth), ratio = Math.max(2, devicePixelRatio || 1);
    canvas.width = width * ratio;
    canvas.height = HEIGHT * ratio;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.font = "11px system-ui,sans-serif";
    context.fillStyle = style("dim");
    draw(context, width - LEFT - 2, HEIGHT - TOP - BOTTOM);
  };
  canvas.addEventListener("mousemove", event => {
    const box = canvas.getBoundingClientRect(), scale = Math.max(280, figure.clientWidth) / box.width;
    const x = (event.clientX - box.left) * scale - LEFT, y = (event.clientY - box.top) * scale - TOP;
    const width = Math.max(280, figure.clientWidth) - LEFT - 2, height = HEIGHT - TOP - BOTTOM;
    const text = x >= 0 && x < width && y >= 0 && y < height ? hint(x / width, y / height) : "";
    const shown = byId("hint");
    shown.textContent = text;
    shown.hidden = !text;
    shown.style.left = Math.min(event.clientX + 14, innerWidth - shown.offsetWidth - 8) + "px";
    shown.style.top = Math.min(event.clientY + 14, innerHeight - shown.offsetHeight - 8) + "px";
  });
  canvas.addEventListener("mouseleave", () => { byId("hint").hidden = true; });
  charts.push(paint);
};
const times = (context, run, width, height) => {
  const n = run.columns.length, marks = Math.min(n, Math.max(2, Math.floor(width / 90)));
  context.fillStyle = style("dim");
  context.textAlign = "left";
  for (let k = 0; k < marks; k++) {
    const column = Math.floor(k * n / marks);
    context.fillText(clock(run.start + run.columns[column][0]), LEFT + column / n * width, TOP + height + 13);
  }
};
const label = (context, text, y) => {
  context.fillStyle = style("dim");
  context.textAlign = "right";
  context.fillText(text, LEFT - 5, Math.max(TOP + 8, y + 4));
};
const when = (run, column) => clock(run.start + column.at) + " UTC, " + time(column.ns) + ", from +" + (column.at / 1e3).toFixed(1) + " s";

// The rows of a family over time.
const area = (parent, run, index, columns) => {
  const rows = run.series[index][1];
  const sum = column => column.rows.reduce((all, ns) => all + ns, 0);
  const most = columns.reduce((all, column) => Math.max(all, sum(column) / column.ns), 0);
  if (!most) return;
  const draw = (context, width, height) => {
    const colours = rows.map(row => style(row[1]));
    const step = width / columns.length;
    columns.forEach((column, k) => {
      let base = TOP + height;
      column.rows.forEach((ns, row) => {
        const tall = ns / column.ns / most * height;
        context.fillStyle = colours[row];
        context.fillRect(LEFT + k * step, base - tall, step + .3, tall);
        base -= tall;
      });
    });
    label(context, most.toPrecision(2), TOP);
    label(context, "0", TOP + height);
    times(context, run, width, height);
  };
  const hint = (x, y) => {
    const column = columns[Math.min(columns.length - 1, Math.floor(x * columns.length))], all = sum(column);
    let height = (1 - y) * most * column.ns, text = when(run, column) + "\n" + (all / column.ns).toFixed(3) + " threads inside";
    column.rows.forEach((ns, row) => {
      if (!ns) return;
      const mark = height >= 0 && height < ns ? "> " : "   ";
      height -= ns;
      text += "\n" + mark + rows[row][0] + " " + (ns / all * 100).toFixed(1) + " %, " + time(ns);
    });
    return text;
  };
  chart(parent, "threads inside, by row", draw, hint);
};

const RAMPS = {light: [[222, 235, 247], [66, 146, 198], [8, 29, 88]], dark: [[27, 45, 72], [49, 130, 189], [225, 243, 255]]};
const shade = (ramp, t) => {
  const at = Math.min(.9999, Math.max(0, t)) * 2, k = Math.floor(at);
  return ramp[k].map((from, c) => Math.round(from + (ramp[k + 1][c] - from) * (at - k)));
};
// The range of steps, and of calls per second and step, of several tables.
const scaleOf = tables => {
  const scale = {from: LAST, to: 0, least: Infinity, most: 0};
  for (const column of tables.flat()) for (const [step, n] of column.cells) {
    const rate = n / column.ns;
    scale.from = Math.min(scale.from, step);
    scale.to = Math.max(scale.to, step);
    scale.least = Math.min(scale.least, rate);
    scale.most = Math.max(scale.most, rate);
  }
  return scale;
};
// How many calls or requests took how long: over time if there are several columns, else one bar for each step.
const heat = (parent, caption, run, columns, scale, counted) => {
  const steps = scale.to - scale.from + 1, isOne = columns.length === 1;
  const draw = (context, width, height) => {
    const ramp = RAMPS[dark.matches && !print.matches ? "dark" : "light"];
    const spread = Math.log(scale.most / scale.least) || 1;
    if (isOne) {
      const tall = height / steps;
      context.fillStyle = `rgb(${ramp[1]})`;
      for (const [step, n] of columns[0].cells)
        context.fillRect(LEFT, TOP + (scale.to - step) * tall, Math.max(1, n / columns[0].ns / scale.most * width), Math.max(.5, tall - .3));
    } else {
      const image = new ImageData(columns.length, steps);
      columns.forEach((column, x) => {
        for (const [step, n] of column.cells) {
          const [r, g, b] = shade(ramp, .08 + .92 * Math.log(n / column.ns / scale.least) / spread);
          image.data.set([r, g, b, 255], ((scale.to - step) * columns.length + x) * 4);
        }
      });
      const small = document.createElement("canvas");
      small.width = columns.length;
      small.height = steps;
      small.getContext("2d").putImageData(image, 0, 0);
      context.imageSmoothingEnabled = columns.length > width * 2;
      context.drawImage(small, LEFT, TOP, width, height);
      context.fillStyle = style("device");
      columns.forEach((column, x) => {
        const p99 = quantile(column, .99);
        if (p99 !== null) context.fillRect(LEFT + x / columns.length * width, TOP + (scale.to - p99 + .5) / steps * height - .75, width / columns.length + .3, 1.5);
      });
      times(context, run, width, height);
    }
    context.strokeStyle = style("line");
    context.strokeRect(LEFT - .5, TOP - .5, width + 1, height + 1);
    let last = Infinity;
    for (let ns = 1; ns <= 1e12; ns *= steps < 28 ? 2 : 10) {
      const step = stepOf(ns), y = TOP + (scale.to - step + 1) / steps * height;
      if (step < scale.from || step > scale.to + 1 || last - y < 13) continue;
      last = y;
      label(context, time(ns), y);
    }
  };
  const hint = (x, y) => {
    const column = columns[isOne ? 0 : Math.min(columns.length - 1, Math.floor(x * columns.length))];
    const step = scale.to - Math.min(steps - 1, Math.floor(y * steps));
    let upTo = 0, here = 0;
    for (const [at, n] of column.cells) {
      if (at <= step) upTo += n;
      if (at === step) here = n;
    }
    const share = column.calls ? (upTo / column.calls * 100).toFixed(2) + " % of " + count(column.calls) + " took at most that long" : `no ${counted}s`;
    return when(run, column) + "\n" + range(step) + ": " + count(here) + ` ${counted}${here === 1 ? "" : "s"}\n` + share;
  };
  chart(parent, caption, draw, hint);
};

const names = [...new Set(runs.flatMap(run => run.series.map(series => series[0])))];
for (const name of names) {
  const tables = runs.map(run => {
    const index = run.series.findIndex(series => series[0] === name);
    return index < 0 ? [] : table(run, index);
  });
  const scale = scaleOf(tables);
  if (!scale.most) continue;
  make("h3", root, name);
  const pair = make("div", root);
  pair.className = "pair";
  runs.forEach((run, k) => {
    if (!tables[k].length) return;
    const index = run.series.findIndex(series => series[0] === name);
    if (runs.length === 1 && run.columns.length > 1) area(pair, run, index, tables[k]);
    const counted = name.startsWith("blk ") ? "request" : "call";
    const many = run.columns.length > 1 ? `; darker or brighter: more ${counted}s; line: p99` : "";
    const caption = (run.name ? run.name + ": " : "") + `latency: how many ${counted}s took how long` + many;
    heat(pair, caption, run, tables[k], scale, counted);
  });
}
// Widths are known only when all charts are in the page.
const repaint = () => charts.forEach(paint => paint());
repaint();
dark.addEventListener("change", repaint);
print.addEventListener("change", repaint);
let waiting = 0;
addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(repaint, 100); });

for (const sorted of document.querySelectorAll("table.sortable")) {
  const heads = [...sorted.tHead.rows[0].cells], body = sorted.tBodies[0];
  heads.forEach((head, k) => head.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") !== "descending";
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = row => row.cells[k].dataset.v, sign = down ? -1 : 1;
    const compare = (a, b) => {
      const [x, y] = [value(a), value(b)];
      return x === undefined ? a.cells[k].textContent.localeCompare(b.cells[k].textContent) : x - y;
    };
    body.append(...[...body.rows].sort((a, b) => sign * compare(a, b)));
  }));
}
// For tests.
document.documentElement.dataset.drawn = charts.length + " in " + Math.ceil(performance.now() - began) + " ms";
})();
