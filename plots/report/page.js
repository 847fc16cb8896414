"use strict";
// Draws sweeps, curves and timelines from data that are packed in the page. Texts of files become text nodes, or are
// escaped where plotly.js would read them as markup.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const options = {displaylogo: false, responsive: true, modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"]};
  const words = {compute: "computing", discarded: "dropped work", wait: "waiting", communicate: "communicating",
                 down: "down"};
  const far = 1000;  // multiple of the usual size: a line that goes further does not set the range
  const steep = 0.18;  // share of a curve at its beginning that does not set the range

  const show = fault => {
    const place = document.querySelector(".fault");
    place.textContent = `The curves cannot be shown: ${fault.message || fault}`;
    place.hidden = false;
  };

  async function unpacked(id) {
    if (typeof DecompressionStream === "undefined")
      throw new Error("this browser is too old to unpack them (it has no DecompressionStream); Chromium 80, Firefox 113 " +
                      "and Safari 16.4 can");
    const letters = atob(document.getElementById(id).textContent);  // empty for data that the page does not need
    if (!letters) return "";
    const bytes = Uint8Array.from(letters, letter => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  const escaped = text => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = look => dark.matches ? look.dark : look.light;
  const faint = hex => `rgba(${[1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16)).join(",")},${dark.matches ? 0.22 : 0.15})`;
  const has = (object, key) => Object.prototype.hasOwnProperty.call(object, key);

  // An element of the page: element("label", {class: "pill"}, child, "text", ...)
  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  // The rule of plots/numbers.py: `decimals` decimals if these show two digits; otherwise a plain number from 1e-4 to
  // 1e7, and scientific form beyond.
  function shown(value, decimals) {
    const size = Math.abs(value), signed = text => text.replace("-", "\u2212");
    if (value === 0 || (size >= 10 ** (1 - decimals) && size < 1e7)) return signed(value.toFixed(decimals));
    if (size >= 1e-4 && size < 1e7) return signed(String(+value.toPrecision(size >= 1e4 ? 7 : 4)));
    const [digits, power] = (+value.toPrecision(4)).toExponential().split("e");
    const raised = [...String(+power)].map(letter => letter === "-" ? "\u207b" : "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"[letter]);
    return signed(digits === "1" ? "" : `${digits}\u00d7`) + `10${raised.join("")}`;
  }

  // The corners of a marker, by plotly.js's name of it, within a circle of radius 1; no corners for a circle.
  function corners(symbol) {
    const round = (count, turn, radius = () => 1) => Array.from({length: count}, (_, at) => {
      const angle = Math.PI * (turn / 180 + 2 * at / count);
      return [radius(at) * Math.cos(angle), radius(at) * Math.sin(angle)];
    });
    const arms = turn => round(12, turn, at => at % 3 === 2 ? 0.45 : 1).map(([x, y]) => [x, y]);
    const known = {square: () => round(4, 45), diamond: () => round(4, 0), "diamond-tall": () => round(4, 0).map(([x, y]) => [0.6 * x, y]),
                   "triangle-up": () => round(3, -90), "triangle-down": () => round(3, 90), "triangle-left": () => round(3, 180),
                   "triangle-right": () => round(3, 0), pentagon: () => round(5, -90), hexagon: () => round(6, 0),
                   star: () => round(10, -90, at => at % 2 ? 0.45 : 1), cross: () => arms(-15), x: () => arms(30)};
    return has(known, symbol) ? known[symbol]() : null;
  }

  function drawing(width, height, attributes, look, shape) {
    const space = "http://www.w3.org/2000/svg", svg = document.createElementNS(space, "svg");
    for (const [key, value] of Object.entries({...attributes, width, height, "aria-hidden": "true"})) svg.setAttribute(key, value);
    svg.style.setProperty("--light", look.light);
    svg.style.setProperty("--dark", look.dark);
    const made = document.createElementNS(space, shape.name);
    for (const [key, value] of Object.entries(shape.attributes)) made.setAttribute(key, value);
    svg.append(made);
    return svg;
  }

  const swatch = look => drawing(26, 10, {class: "swatch"}, look, {name: "line", attributes: {
    x1: 1, y1: 5, x2: 25, y2: 5, ...(look.dash.length ? {"stroke-dasharray": look.dash.join(" ")} : {})}});

  function marker(look) {
    const points = corners(look.symbol);
    return drawing(14, 14, {class: "swatch", viewBox: "-1.3 -1.3 2.6 2.6"}, look, points
      ? {name: "polygon", attributes: {points: points.map(point => point.map(at => at.toFixed(3)).join(",")).join(" ")}}
      : {name: "circle", attributes: {r: 1}});
  }

  const axis = more => ({color: style("--soft"), gridcolor: style("--grid"), linecolor: style("--line"), zeroline: false,
                         automargin: true, exponentformat: "power", ...more});

  const layout = more => ({
    paper_bgcolor: style("--paper"), plot_bgcolor: style("--paper"), showlegend: false,
    font: {family: getComputedStyle(document.body).fontFamily, size: 12.5, color: style("--ink")},
    hoverlabel: {bgcolor: style("--panel"), bordercolor: style("--line"), font: {color: style("--ink"), size: 12.5}},
    modebar: {bgcolor: "rgba(0,0,0,0)", color: style("--soft"), activecolor: style("--accent")}, ...more});

  function radios(legend, name, choices, chosen, changed) {
    const group = element("fieldset", {}, element("legend", {}, legend));
    for (const choice of choices) {
      const input = element("input", {type: "radio", name, value: choice.key, autocomplete: "off"});
      input.checked = choice.key === chosen;
      input.addEventListener("change", () => changed(choice.key));
      group.append(element("label", {class: "pill"}, input, element("span", {}, choice.label)));
    }
    return group;
  }

  function checkbox(label, checked, changed, ...before) {
    const input = element("input", {type: "checkbox", autocomplete: "off"});
    input.checked = checked;
    input.addEventListener("change", () => changed(input.checked));
    return element("label", {}, input, ...before, element("span", {}, label));
  }

  // The curves of one experiment at one of its points.
  class Curves {
    constructor(place, numbers, name) {
      Object.assign(this, {place, numbers, name, hidden: new Set(), x: null, y: null, logX: false, logY: false});
    }

    show(point) {
      this.point = point;
      if (!point.values.some(value => value.key === this.y)) this.y = point.values.length ? point.values[0].key : null;
      if (!point.axes.some(axis => axis.key === this.x)) this.x = point.axes[0].key;
      this.controls();
      this.draw();
    }

    controls() {
      const redraw = change => { change(); this.draw(); };
      const {values, axes, methods} = this.point;
      const names = axes.map(({key, short}) => ({key, label: short}));
      const box = element("div", {class: "controls"},
        radios("Show", `${this.name}-y`, values, this.y, key => redraw(() => { this.y = key; })),
        radios("against", `${this.name}-x`, names, this.x, key => redraw(() => { this.x = key; })),
        element("fieldset", {class: "logarithmic"}, element("legend", {}, "logarithmic"),
                checkbox("across", this.logX, on => redraw(() => { this.logX = on; })),
                checkbox("upwards", this.logY, on => redraw(() => { this.logY = on; }))));
      const shown = element("fieldset", {class: "methods"}, element("legend", {}, "Methods"));
      for (const method of methods)
        shown.append(checkbox(method.name, !this.hidden.has(method.name),
                              on => redraw(() => { on ? this.hidden.delete(method.name) : this.hidden.add(method.name); }),
                              swatch(method.look)));
      if (methods.length > 4)
        for (const [label, on] of [["all", true], ["none", false]]) {
          const button = element("button", {type: "button"}, label);
          button.addEventListener("click", () => {
            for (const input of shown.querySelectorAll("input")) if (input.checked !== on) input.click();
          });
          shown.append(button);
        }
      this.plot = element("div", {class: "plot", role: "img"});
      this.place.replaceChildren(box, element("div", {class: "controls"}, shown), this.plot);
    }

    traces(value, across) {
      const times = value.percent ? 100 : 1, traces = [], ends = new Map();
      for (const method of this.point.methods) {
        const key = `${across.key}|${value.key}`;
        if (this.hidden.has(method.name) || !has(method.curves, key)) continue;
        const [x, mean, low, high] = method.curves[key].map(
          (place, at) => this.numbers[place].map(number => number === null ? null : at ? number * times : number / across.divisor));
        const line = colour(method.look), name = escaped(method.name);
        if (low) {
          const edge = {x, mode: "lines", line: {width: 0}, hoverinfo: "skip", name};
          traces.push({...edge, y: low}, {...edge, y: high, fill: "tonexty", fillcolor: faint(line)});
        }
        const digits = value.percent ? 2 : 4;
        const texts = x.map((_, at) => mean[at] === null ? "" : shown(mean[at], digits) +
          (low ? ` (${shown(low[at], digits)} to ${shown(high[at], digits)})` : ""));
        traces.push({x, y: mean, name, customdata: texts, mode: x.length === 1 || method.look.symbol ? "lines+markers" : "lines",
                     marker: {symbol: method.look.symbol || "circle", size: 6, maxdisplayed: 12},
                     line: {color: line, width: 2, dash: method.look.dash.length ? method.look.dash.map(n => `${n}px`).join(",") : "solid"},
                     hovertemplate: "%{customdata}", meta: "mean"});
        const from = x[0] + steep * (x[x.length - 1] - x[0]);
        ends.set(method.name, x.flatMap((at, place) => at >= from ? [(low || mean)[place], (high || mean)[place]] : []).filter(Number.isFinite));
      }
      return {traces, ...this.crowd(ends)};
    }

    // The values that set the range, and the methods that leave it, with how far they go. For instance they have
    // diverged, and would make all others one flat line.
    crowd(ends) {
      const tops = new Map([...ends].filter(([, values]) => values.length).map(([name, values]) => [name, Math.max(...values.map(Math.abs))]));
      const usual = [...tops.values()].sort((a, b) => a - b)[Math.floor((tops.size - 1) / 2)];
      const beyond = [...tops].filter(([, top]) => top > far * usual && usual > 0);
      return {beyond, ends: [...ends].filter(([name]) => !beyond.some(([other]) => other === name)).flatMap(([, values]) => values)};
    }

    draw() {
      const value = this.point.values.find(({key}) => key === this.y);
      if (!value) return;
      const across = this.point.axes.find(({key}) => key === this.x);
      const {traces, ends, beyond} = this.traces(value, across);
      const target = has(value, "target") ? value.target * (value.percent ? 100 : 1) : null;
      const upwards = {title: {text: value.percent ? `${value.label} (%)` : value.label, standoff: 8}};
      if (this.logY) upwards.type = "log";
      else if (ends.length) {
        if (target !== null) ends.push(target);
        const low = ends.reduce((a, b) => Math.min(a, b)), high = ends.reduce((a, b) => Math.max(a, b));
        const margin = 0.06 * (high - low || Math.abs(high) || 1);
        upwards.range = [low - margin, high + margin];
      }
      const marks = target === null ? {} : {
        shapes: [{type: "line", xref: "paper", x0: 0, x1: 1, y0: target, y1: target, line: {color: style("--soft"), width: 1, dash: "4px,3px"}}],
        annotations: [{xref: "paper", x: 1, y: this.logY ? Math.log10(target) : target, text: `target ${shown(+target.toPrecision(4), 0)}${value.percent ? " %" : ""}`,
                       showarrow: false, xanchor: "right", yanchor: value.rising ? "top" : "bottom", font: {color: style("--soft"), size: 11.5}}]};
      if (beyond.length && !this.logY)
        (marks.annotations ||= []).push({xref: "paper", yref: "paper", x: 1, y: 1, xanchor: "right", yanchor: "top", showarrow: false,
          text: beyond.map(([name, top]) => `${escaped(name)}: up to ${shown(top, 0)}`).join("<br>"), font: {color: style("--soft"), size: 11.5}});
      this.plot.setAttribute("aria-label", `${value.label} against ${across.short}, ${traces.filter(trace => trace.meta).length} methods`);
      Plotly.react(this.plot, traces, layout({
        margin: {l: 52, r: 8, t: 28, b: 48}, hovermode: "x unified", hoverdistance: 40, ...marks,
        uirevision: [this.x, this.y, this.logX, this.logY].join(),  // a zoom is kept while methods are switched
        xaxis: axis({title: {text: across.label, standoff: 8}, type: this.logX ? "log" : "linear", exponentformat: "SI", hoverformat: ".5~s",
                     spikecolor: style("--soft"), spikethickness: 1, spikedash: "solid",
                     ...(this.logX ? {} : {rangemode: "tozero"})}),
        yaxis: axis(upwards)}), options);
    }
  }

  // The quantities that depend on a swept number.
  class Sweeps {
    constructor(place, sweeps, name) {
      Object.assign(this, {place, sweeps, name, sweep: sweeps[0], label: sweeps[0].values[0].label});
      this.controls();
    }

    controls() {
      const of = list => list.map(text => ({key: text, label: text}));
      const box = element("div", {class: "controls"});
      if (this.sweeps.length > 1)
        box.append(radios("Along", `${this.name}-along`, of(this.sweeps.map(({where}) => where)), this.sweep.where, where => {
          this.sweep = this.sweeps.find(sweep => sweep.where === where);
          if (!this.sweep.values.some(({label}) => label === this.label)) this.label = this.sweep.values[0].label;
          this.controls();
        }));
      box.append(radios("Show", `${this.name}-of`, of(this.sweep.values.map(({label}) => label)), this.label,
                        label => { this.label = label; this.draw(); }));
      const lines = new Map(this.sweep.values.flatMap(({lines}) => lines).map(line => [line.name, line.look]));
      const keys = element("p", {class: "keys"}, ...[...lines].map(([name, look]) => element("span", {}, swatch(look), name)));
      this.plot = element("div", {class: "plot", role: "img"});
      this.place.replaceChildren(box, keys, this.plot);
      this.draw();
    }

    show() {}  // the same at every point

    draw() {
      const {key, spread, ticks, texts, values} = this.sweep;
      const {lines} = values.find(({label}) => label === this.label), traces = [];
      for (const {name, look, x, mean, low, high} of lines) {
        const line = colour(look), plain = escaped(name);
        if (low) {
          const edge = {x, mode: "lines", line: {width: 0}, hoverinfo: "skip", name: plain};
          traces.push({...edge, y: low}, {...edge, y: high, fill: "tonexty", fillcolor: faint(line)});
        }
        traces.push({x, y: mean, name: plain, mode: "lines+markers", meta: "mean", customdata: mean.map(number => number === null ? "" : shown(number, 0)),
                     hovertemplate: "%{customdata}",
                     marker: {symbol: look.symbol || "circle", size: 7},
                     line: {color: line, width: 2, dash: look.dash.length ? look.dash.map(n => `${n}px`).join(",") : "solid"}});
      }
      const all = lines.flatMap(({mean}) => mean).filter(Number.isFinite);
      const wide = Math.min(...all) > 0 && Math.max(...all) >= 10 * Math.min(...all);
      this.plot.setAttribute("aria-label", `${this.label} against ${key}, ${lines.length} methods`);
      Plotly.react(this.plot, traces, layout({
        margin: {l: 52, r: 8, t: 28, b: 48}, hovermode: "x unified", uirevision: [this.label, this.sweep.where].join(),
        xaxis: axis({title: {text: escaped(key), standoff: 8}, type: spread ? "log" : "linear", tickvals: ticks,
                     ticktext: texts.map(escaped)}),
        yaxis: axis({title: {text: this.label, standoff: 8}, type: wide ? "log" : "linear", ...(wide ? {dtick: "D2"} : {})})}), options);
    }
  }

  // The cost of the target: time against bytes.
  class Costs {
    constructor(place) { this.place = place; }

    show(point) {
      this.data = point.costs;
      this.place.replaceChildren();
      if (!this.data) return void this.place.append("Fewer than two methods reached the target here with every seed.");
      this.place.append(element("p", {class: "keys"}, ...this.data.methods.map(({name, look}) => element("span", {}, marker(look), name))));
      this.plot = element("div", {class: "plot", role: "img", "aria-label": `${this.data.upwards} against ${this.data.across}`});
      this.place.append(this.plot);
      if (this.data.missed.length)
        this.place.append(element("p", {class: "note"}, `Not there, as some seed did not reach the target: ${this.data.missed.join(", ")}.`));
      this.draw();
    }

    draw() {
      if (!this.data) return;
      const {methods, across, upwards} = this.data;
      const traces = methods.map(({name, look, across: x, upwards: y}) => {
        const line = colour(look), stroke = ([, half]) => half === undefined ? {visible: false}
          : {type: "data", array: [half], color: line, thickness: 1.5, width: 0};
        return {x: [x[0]], y: [y[0]], error_x: stroke(x), error_y: stroke(y), name: escaped(name), mode: "markers", meta: "mean",
                marker: {symbol: look.symbol || "circle", size: 12, color: line}, cliponaxis: false,
                hovertemplate: `${escaped(name)}<br>${escaped(upwards)}: ${shown(y[0], 2)}<br>${escaped(across)}: ${shown(x[0], 2)}<extra></extra>`};
      });
      const scale = (title, key) => {
        const means = methods.map(method => method[key][0]), ends = methods.map(method => method[key][0] + (method[key][1] || 0));
        const wide = Math.min(...means) > 0 && Math.max(...means) >= 10 * Math.min(...means);
        return axis({title: {text: escaped(title), standoff: 8},
                     ...(wide ? {type: "log"} : {range: [0, 1.06 * Math.max(...ends)]})});
      };
      Plotly.react(this.plot, traces, layout({margin: {l: 52, r: 12, t: 28, b: 48}, hovermode: "closest",
                                              xaxis: scale(across, "across"), yaxis: scale(upwards, "upwards")}), options);
    }
  }

  // The workers' activities over time, with one picture per method.
  class Timeline {
    constructor(place) { this.place = place; }

    show(point) {
      this.data = point.timeline;
      this.place.replaceChildren();
      if (!this.data) return void this.place.append("No run has a trace here.");
      const used = new Set(this.data.methods.flatMap(method => method.bars.map(bar => bar[1])));
      this.place.append(element("p", {class: "keys"}, ...this.data.activities.filter((_, at) => used.has(at)).map(
        name => element("span", {}, element("i", {class: `key ${name}`}), words[name]))));
      this.plots = this.data.methods.map(method => {
        const all = method.rows.length === method.of ? "" : `${method.rows.length} of ${method.of} rows, the first and the last workers`;
        const cut = method.until < this.data.window ? (method.capped ? "not recorded to the end" : "the run ends earlier") : "";
        const plot = element("div", {role: "img", "aria-label": `What the workers did under ${method.name}`});
        plot.style.height = `${method.rows.length * (method.rows.length > 16 ? 11 : 17) + 52}px`;
        this.place.append(element("h4", {}, swatch(method.look), method.name, element("small", {}, [all, cut].filter(Boolean).join("; "))), plot);
        return plot;
      });
      this.draw();
    }

    draw() {
      if (!this.data) return;
      const {activities, unit, window: end} = this.data;
      this.data.methods.forEach((method, at) => {
        const traces = activities.map((name, activity) => {
          const bars = method.bars.filter(bar => bar[1] === activity);
          const probe = element("i", {class: name, hidden: ""});
          document.body.append(probe);
          const fill = getComputedStyle(probe).backgroundColor;
          probe.remove();
          return {type: "bar", orientation: "h", base: bars.map(bar => bar[2]), x: bars.map(bar => bar[3]), y: bars.map(bar => bar[0]),
                  customdata: bars.map(bar => [escaped(method.rows[bar[0]]), +(bar[2] + bar[3]).toPrecision(5)]), width: 0.86,
                  marker: {color: fill, line: {width: 0.5, color: style("--paper")}},
                  hovertemplate: `%{customdata[0]}: ${words[name]}<br>%{base} to %{customdata[1]} ${unit}<extra></extra>`};
        }).filter(trace => trace.x.length);
        const every = method.rows.length > 16 ? 4 : 1;
        const ticks = method.rows.map((_, row) => row).filter(row => row % every === 0);
        Plotly.react(this.plots[at], traces, layout({  // without buttons, which would lie on the bars
          margin: {l: 70, r: 8, t: 8, b: 40}, barmode: "overlay", bargap: 0, hovermode: "closest",
          shapes: method.rounds.map(time => ({type: "line", x0: time, x1: time, yref: "paper", y0: 0, y1: 1, line: {color: style("--ink"), width: 1, dash: "2px,2px"}})),
          xaxis: axis({range: [0, end], title: {text: `time (${unit})`, standoff: 4}, showgrid: false}),
          yaxis: axis({range: [method.rows.length - 0.5, -0.5], tickvals: ticks, ticktext: ticks.map(row => escaped(method.rows[row])),
                       showgrid: false, fixedrange: true, tickfont: {size: 11}})}), {...options, displayModeBar: false});
      });
    }
  }

  function save(name, type, text) {
    const link = element("a", {href: URL.createObjectURL(new Blob([text], {type})), download: name});
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function begin(data) {
    const drawn = [];
    for (const article of document.querySelectorAll("article[data-experiment]")) {
      const experiment = data.experiments[+article.dataset.experiment];
      const parts = [];
      const curves = article.querySelector(".curves"), timeline = article.querySelector(".timeline");
      if (curves) parts.push(new Curves(curves, data.numbers, article.id));
      const costs = article.querySelector(".costs");
      if (costs) parts.push(new Costs(costs));
      if (timeline) parts.push(new Timeline(timeline));
      const sweeps = article.querySelector(".sweeps");
      if (sweeps) parts.push(new Sweeps(sweeps, experiment.sweeps, article.id));
      const at = number => {
        for (const table of article.querySelectorAll("[data-point]")) table.hidden = +table.dataset.point !== number;
        for (const part of parts) part.show(experiment.points[number]);
      };
      const choice = article.querySelector("select.point");
      if (choice) choice.addEventListener("change", () => at(+choice.value));
      for (const button of article.querySelectorAll("button.save"))
        button.addEventListener("click", () => button.dataset.name.endsWith(".csv")
          ? save(button.dataset.name, "text/csv", experiment.csv)
          : save(button.dataset.name, "application/toml", button.parentElement.querySelector("pre").textContent));
      at(choice ? +choice.value : 0);
      drawn.push(...parts);
    }
    dark.addEventListener("change", () => { for (const part of drawn) part.draw(); });
    document.documentElement.dataset.ready = "yes";
  }

  (async () => {
    const [data, library] = await Promise.all([unpacked("data"), unpacked("library")]);
    const script = document.createElement("script");
    script.textContent = library;
    document.head.append(script);
    begin(JSON.parse(data));
  })().catch(fault => { show(fault); console.error(fault); });
})();
