(() => {
  "use strict";

  // Paper is white, whatever the screen was.
  const root = document.documentElement;
  let theme = "";
  window.addEventListener("beforeprint", () => {
    theme = root.dataset.theme;
    root.dataset.theme = "light";
  });
  window.addEventListener("afterprint", () => {
    root.dataset.theme = theme;
  });

  // Boxes that scroll sideways can be reached and scrolled with the keyboard, and say what they are.
  const names = [
    [".bd-article div.math", "Formula"],
    [".bd-article .pst-scrollable-table-container", "Table"],
    [".bd-article .cell_output .output", "Output"],
    [".bd-article pre", "Code"],
  ];

  const mark = () => {
    for (const [selector, name] of names) {
      for (const box of document.querySelectorAll(selector)) {
        const scrolls = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
        if (scrolls) {
          box.tabIndex = 0;
          box.setAttribute("role", "group");
          box.setAttribute("aria-label", name);
        } else if (box.getAttribute("role") === "group") {
          box.removeAttribute("tabindex");
          box.removeAttribute("role");
          box.removeAttribute("aria-label");
        }
      }
    }
  };

  // The theme marks the same boxes 0.3 s after a resize, without a name; so come after it.
  let waiting = 0;
  const later = () => {
    clearTimeout(waiting);
    waiting = setTimeout(mark, 400);
  };
  window.addEventListener("resize", later);
  window.addEventListener("load", () => {
    mark();
    later();
    window.MathJax?.startup?.promise?.then(later);
  });
  document.addEventListener("toggle", later, true);
})();
