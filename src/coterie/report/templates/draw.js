"use strict";
(() => {
  const specs = JSON.parse(document.getElementById("specs").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const theme = () => {
    const css = getComputedStyle(document.documentElement);
    const [ink, muted, line] = ["--ink", "--muted", "--line"].map((name) => css.getPropertyValue(name).trim());
    const narrow = window.innerWidth < 640;
    return {
      background: "transparent",
      font: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
      view: { stroke: "transparent" },
      axis: {
        labelColor: muted, titleColor: muted, gridColor: line, domainColor: line, tickColor: line,
        labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", titlePadding: 10,
      },
      legend: {
        labelColor: ink, titleColor: muted, titleFontWeight: "normal", labelFontSize: 12, titleFontSize: 12,
        symbolBaseStrokeColor: muted, symbolBaseFillColor: muted,
        orient: "bottom", direction: "horizontal", columns: narrow ? 5 : 10, offset: 14,
        layout: { bottom: { direction: narrow ? "vertical" : "horizontal", margin: narrow ? 10 : 40 } },
      },
      text: { color: ink },
      rule: { color: muted },
      mark: { color: ink },
    };
  };
  const draw = () => {
    for (const [id, spec] of Object.entries(specs)) {
      vegaEmbed("#" + id, spec, { ast: true, actions: false, renderer: "svg", config: theme(), tooltip: { theme: dark.matches ? "dark" : "light" } })
        .catch((error) => { document.getElementById(id).textContent = "This chart could not be drawn: " + error.message; });
    }
  };
  dark.addEventListener("change", draw);
  let width = window.innerWidth < 640;
  window.addEventListener("resize", () => {
    if (width !== window.innerWidth < 640) { width = !width; draw(); }
  });
  draw();
})();
