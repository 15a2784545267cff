"use strict";
(() => {
  const specs = JSON.parse(document.getElementById("specs").textContent);
  const MANY = 1500; // marks beyond which a chart is drawn as pixels
  const SMALL = 5000; // marks of all charts of a small page
  const drawn = new Map(); // the charts that are drawn, and how their legends were laid out
  const rows = {}, labels = {};
  for (const [id, spec] of Object.entries(specs)) {
    rows[id] = 0;
    for (const [name, data] of Object.entries(spec.datasets || {})) {
      if (!Array.isArray(data)) {
        const unpack = (row) => Object.fromEntries(data.fields.map((field, i) => [field, row[i]]));
        spec.datasets[name] = data.rows.map(unpack);
      }
      rows[id] = Math.max(rows[id], spec.datasets[name].length);
    }
  }
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  // Vega lays out a legend in columns whatever its width and cuts off what does not fit, so the
  // columns are counted here. Two legends stand next to each other only where there is room.
  const legends = (id) => {
    const widths = (specs[id].usermeta || {}).legends || [];
    const room = document.getElementById(id).clientWidth - 70; // the axis is left of the legend
    const stacked = room < 600;
    const abreast = stacked ? 1 : Math.max(1, widths.length);
    const columns = Math.floor((room - 40 * (abreast - 1)) / abreast / Math.max(1, ...widths));
    return { columns: Math.max(1, columns), stacked };
  };
  const theme = (id) => {
    const css = getComputedStyle(document.documentElement);
    const colour = (name) => css.getPropertyValue(name).trim();
    const [ink, muted, line] = ["--ink", "--muted", "--line"].map(colour);
    const { columns, stacked } = legends(id);
    return {
      background: "transparent",
      font: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
      view: { stroke: "transparent" },
      axis: {
        labelColor: muted, titleColor: muted, gridColor: line, domainColor: line, tickColor: line,
        labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", titlePadding: 10,
      },
      legend: {
        labelColor: ink, titleColor: muted, titleFontWeight: "normal",
        labelFontSize: 12, titleFontSize: 12, labelLimit: window.innerWidth < 640 ? 260 : 320,
        symbolBaseStrokeColor: muted, symbolBaseFillColor: muted,
        orient: "bottom", direction: "horizontal", columns, offset: 14,
        layout: { bottom: { direction: stacked ? "vertical" : "horizontal", margin: stacked ? 10 : 40 } },
      },
      text: { color: ink },
      rule: { color: muted },
      tick: { color: ink },
      mark: { color: ink },
    };
  };
  const draw = (id) => {
    drawn.set(id, JSON.stringify(legends(id)));
    const place = document.getElementById(id);
    const label = labels[id] || (labels[id] = place.getAttribute("aria-label"));
    const options = {
      ast: true, // expressions are interpreted: the page's policy allows no code made of text
      actions: false, defaultStyle: false, config: theme(id),
      renderer: rows[id] > MANY ? "canvas" : "svg",
      tooltip: { theme: "coterie", disableDefaultStyle: true },
    };
    return vegaEmbed("#" + id, specs[id], options)
      .then(() => {
        place.setAttribute("role", "img"); // Vega has put its own in their place
        place.setAttribute("aria-label", label);
        place.dataset.drawn = "yes";
      })
      .catch((error) => { place.textContent = "This chart could not be drawn: " + error.message; });
  };
  const again = () => { for (const id of drawn.keys()) draw(id); };
  const all = () => { for (const id of Object.keys(specs)) if (!drawn.has(id)) draw(id); };
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting || drawn.has(entry.target.id)) continue;
      near.unobserve(entry.target);
      draw(entry.target.id);
    }
  }, { rootMargin: "800px" });
  // A print or a screenshot must not find empty charts. So those of a small page are drawn from top
  // to bottom before the page counts as loaded, as many as a second allows. A large page would
  // stay blank for that long: its charts, and the rest of a small one, are drawn when the browser
  // has nothing else to do, and those that the reader comes near first of all.
  const next = () => {
    const id = Object.keys(specs).find((one) => !drawn.has(one));
    if (id !== undefined) near.unobserve(document.getElementById(id));
    return id;
  };
  // Within a second: Chromium may never call itself idle while a page waits for its next frame.
  const whenIdle = window.requestIdleCallback
    ? (work) => requestIdleCallback(work, { timeout: 1000 })
    : (work) => setTimeout(work, 50);
  const drawRest = () => {
    const id = next();
    if (id !== undefined) draw(id).then(() => whenIdle(drawRest));
  };
  const drawFirst = async () => {
    const begun = performance.now();
    while (performance.now() - begun < 1000) {
      const id = next();
      if (id === undefined) return;
      await draw(id);
    }
    whenIdle(drawRest);
  };
  for (const [id, spec] of Object.entries(specs)) {
    const place = document.getElementById(id);
    if (typeof spec.height === "number") place.style.minHeight = spec.height + 60 + "px";
    near.observe(place);
  }
  dark.addEventListener("change", again);
  const unfolded = []; // definitions, which paper has and which a print must not leave open
  window.addEventListener("beforeprint", () => {
    all();
    for (const one of document.querySelectorAll("details.about:not([open])")) {
      one.open = true;
      unfolded.push(one);
    }
  });
  window.addEventListener("afterprint", () => {
    for (const one of unfolded.splice(0)) one.open = false;
  });
  const total = Object.values(rows).reduce((sum, count) => sum + count, 0);
  if (total <= SMALL) drawFirst(); else whenIdle(drawRest);
  // Vega fits a chart to another width by itself, but not the columns of its legends.
  const fitLegends = () => {
    for (const [id, layout] of drawn) if (layout !== JSON.stringify(legends(id))) draw(id);
  };
  let resized;
  window.addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(fitLegends, 200);
  });
})();
