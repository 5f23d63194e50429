// Light or dark: as the system says, or as the reader chose.  Loaded before the page is drawn.

(() => {
  const KEY = "millpond-theme";
  const NEXT = { system: "light", light: "dark", dark: "system" };

  function read() {
    try {
      const saved = localStorage.getItem(KEY);
      return saved in NEXT ? saved : "system";
    } catch {
      return "system"; // storage is blocked
    }
  }

  function show(theme) {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    const button = document.getElementById("theme-button");
    if (!button) return;
    button.lastElementChild.textContent = theme;
    button.ariaLabel = `Theme: ${theme}`; // also where the first word is left out
  }

  show(read());
  addEventListener("DOMContentLoaded", () => {
    let theme = read();
    show(theme);
    document.getElementById("theme-button").addEventListener("click", () => {
      theme = NEXT[theme];
      show(theme);
      try {
        localStorage.setItem(KEY, theme);
      } catch {
        // storage is blocked: the choice lasts as long as the page
      }
    });
  });
})();
