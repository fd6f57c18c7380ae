// The home page: draws its charts in the colours of the theme, and keeps itself up to date without losing focus, place, or what is folded out.
"use strict";
{
  const EVERY_MS = 15000;
  const charts = new Map();
  let home;
  let data;

  // ---- charts --------------------------------------------------------------------------------------------------------------------------

  const css = (name) => getComputedStyle(home).getPropertyValue(name).trim();

  function said(seconds) {
    if (!seconds) return "0";
    const [size, unit] = data.words.units.find(([size]) => seconds >= size) ?? data.words.units.at(-1);
    const count = +(seconds / size).toPrecision(seconds / size < 10 ? 2 : 3);
    return unit.replace("%(count)d", count.toLocaleString(document.documentElement.lang));
  }

  // Steps between the lines of an axis of times, in seconds: such as clocks have.
  const STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];

  function axes(values, label, most) {
    const small = values === "times";
    const step = small && most ? STEPS.find((step) => most / step <= 3) ?? 86400 * Math.ceil(most / 259200) : undefined;
    return {
      x: {
        stacked: true,
        border: { color: css("--line") },
        grid: { display: false },
        ticks: { color: css("--text-quiet"), maxRotation: 0, autoSkipPadding: small ? 24 : 12, font: { size: 11 } },
      },
      y: {
        stacked: !small,
        min: 0,
        border: { display: false },
        grid: { color: css("--line"), tickLength: 0 },
        ticks: {
          color: css("--text-quiet"),
          font: { size: 11 },
          padding: 6,
          maxTicksLimit: 5,
          stepSize: step,
          precision: values === "recorded" || small ? undefined : 0,
          callback: label,
        },
      },
    };
  }

  function describe(kind, step) {
    if (kind === "times") {
      const { median, slow } = data.times[step];
      const line = { borderWidth: 2, tension: 0.25, cubicInterpolationMode: "monotone", spanGaps: true, pointHitRadius: 12 };
      // A line of one point is none; then the point itself is shown.
      const radius = (values) => (values.filter((value) => value !== null).length < 3 ? 3 : 0);
      return {
        type: "line",
        datasets: [
          { ...line, label: data.words.median, data: median, borderColor: css("--home-1"), backgroundColor: css("--home-1"), pointRadius: radius(median) },
          { ...line, label: data.words.slow, data: slow, borderColor: css("--home-2"), backgroundColor: css("--home-2"), pointRadius: radius(slow), borderDash: [5, 3] },
        ],
        options: { scales: axes("times", said, Math.max(...median, ...slow)), tooltip: (item) => `${item.dataset.label}: ${said(item.raw)}` },
      };
    }
    const series = data[kind].series;
    const colours = kind === "done" ? ["--home-1"] : kind === "recorded" ? ["--home-3"] : ["--home-1", "--home-2", "--home-3", "--home-4"];
    return {
      type: "bar",
      datasets: series.map(({ name, values }, index) => ({
        label: name,
        data: values,
        backgroundColor: css(colours[index % colours.length]),
        borderRadius: series.length > 1 ? 0 : 4,
        maxBarThickness: 40,
        categoryPercentage: 0.8,
        barPercentage: 0.95,
      })),
      options: { scales: axes(kind, undefined), tooltip: undefined },
    };
  }

  function draw(canvas) {
    const kind = canvas.dataset.plot;
    const { type, datasets, options } = describe(kind, canvas.dataset.step);
    const isEmpty = !datasets.some((set) => set.data.some(Boolean));
    canvas.parentElement.classList.toggle("is-empty", isEmpty);
    const settings = {
      animation: false,
      maintainAspectRatio: false,
      interaction: { mode: "index", intersect: false },
      plugins: {
        legend: { display: false },
        tooltip: {
          backgroundColor: css("--home-tip"),
          titleColor: css("--home-tip-text"),
          bodyColor: css("--home-tip-text"),
          padding: 10,
          cornerRadius: 6,
          boxPadding: 4,
          filter: (item) => datasets.length < 3 || item.raw > 0,
          callbacks: { title: (items) => (items.length ? data.names[items[0].dataIndex] : ""), ...(options.tooltip && { label: options.tooltip }) },
        },
      },
      scales: options.scales,
    };
    const chart = charts.get(canvas);
    if (chart) {
      chart.data = { labels: data.labels, datasets };
      chart.options = settings;
      chart.update("none");
    } else {
      charts.set(canvas, new Chart(canvas, { type, data: { labels: data.labels, datasets }, options: settings }));
    }
  }

  function drawAll() {
    const source = document.getElementById("home-data");
    if (!source) return;
    data = JSON.parse(source.textContent);
    Chart.defaults.font.family = "Inter, sans-serif";
    home.querySelectorAll("canvas[data-plot]").forEach(draw);
  }

  // ---- up to date ----------------------------------------------------------------------------------------------------------------------

  let isAsking = false;
  let told = "";

  function tell(text) {
    // What is said again and again is not read out again and again.
    if (text !== told) home.querySelector("[data-told]").textContent = told = text;
  }

  function place(element) {
    // Where a focused element will be found again: by its id, or as the same of the links of its part.
    if (element.id) return { id: element.id };
    const part = element.closest("[data-live]");
    return part && { part: part.dataset.live, index: [...part.querySelectorAll("a, button, [tabindex]")].indexOf(element) };
  }

  function take(fresh) {
    const focused = home.contains(document.activeElement) ? place(document.activeElement) : null;
    const parts = (root) => [...root.querySelectorAll("[data-live]")].map((part) => part.dataset.live).join();
    if (parts(home) !== parts(fresh)) {
      // A part came or went: all of it is new, but for what is folded out.
      const isOpen = Boolean(home.querySelector("details[open]"));
      charts.forEach((chart) => chart.destroy());
      charts.clear();
      home.replaceWith(fresh);
      home = fresh;
      told = "";
      const details = home.querySelector("details");
      if (details) details.open = isOpen;
    } else {
      for (const part of home.querySelectorAll("[data-live]")) {
        const newer = fresh.querySelector(`[data-live="${part.dataset.live}"]`);
        if (part.innerHTML !== newer.innerHTML) part.innerHTML = newer.innerHTML;
      }
      home.querySelector(".home-status").className = fresh.querySelector(".home-status").className;
      const source = home.querySelector("#home-data");
      if (source) source.textContent = fresh.querySelector("#home-data").textContent;
    }
    drawAll();
    if (focused && !home.contains(document.activeElement)) {
      const again = focused.id
        ? document.getElementById(focused.id)
        : home.querySelector(`[data-live="${focused.part}"]`)?.querySelectorAll("a, button, [tabindex]")[focused.index];
      again?.focus({ preventScroll: true });
    }
  }

  async function refresh() {
    if (isAsking) return;
    isAsking = true;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", cache: "no-store" });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("home");
      if (fresh) {
        take(document.adoptNode(fresh));
        tell("");
      } else {
        tell(answer.redirected ? home.dataset.out : home.dataset.lost);
      }
    } catch {
      tell(home.dataset.lost);
    } finally {
      isAsking = false;
    }
  }

  function begin() {
    home = document.getElementById("home");
    if (!home) return;
    drawAll();
    new MutationObserver(drawAll).observe(document.documentElement, { attributes: true, attributeFilter: ["class"] });
    document.addEventListener("click", (event) => {
      if (event.target.closest("[data-refresh]")) {
        event.preventDefault();
        refresh();
      }
    });
    setInterval(() => document.visibilityState === "visible" && refresh(), EVERY_MS);
    document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && refresh());
  }

  begin();
}
