// Draws the right side of the page.  Sections of a verdict come as HTML that the server has escaped; all other
// text is set as text.

const ORDER = ["why", "repairs", "kept", "picture", "time", "blocks", "proof", "growth"];
const SHOWN_REPAIRS = 3;
const ICONS = { bounded: "✓", unbounded: "↗", undetermined: "?" };

function make(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

/** The buttons that choose between several queries. */
export function showQueries(place, verdicts, current, choose) {
  const hadFocus = place.contains(document.activeElement);
  place.hidden = verdicts.length < 2;
  place.replaceChildren(
    ...verdicts.map(({ outcome }, index) => {
      const icon = make("span", { className: "icon", ariaHidden: "true" }, ICONS[outcome]);
      const button = make("button", { type: "button", className: `chip ${outcome}` }, icon, `Query ${index + 1}`);
      button.ariaLabel = `Query ${index + 1}, ${outcome}`;
      if (index === current) button.setAttribute("aria-current", "true");
      button.addEventListener("click", () => choose(index));
      return button;
    }),
  );
  if (hadFocus) place.querySelector("[aria-current]")?.focus();
}

export function showHint(place) {
  place.replaceChildren(
    make("p", { className: "hint" },
      "Declare streams with CREATE STREAMING TABLE, then write a SELECT. Or load one of the examples."),
  );
}

/** An error of the text, with its place; `goThere` moves the cursor to it. */
export function showError(place, error, goThere) {
  const card = make("section", { className: "verdict error" });
  const where = error.line === undefined ? "" : `line ${error.line}, column ${error.column}`;
  const head = make("h3", {}, make("span", { className: "icon", ariaHidden: "true" }, "!"), "Not checked");
  card.append(head, make("p", {}, where ? make("span", { className: "where" }, where) : "", error.message));
  if (error.remedy) card.append(make("p", { className: "dim" }, `→ ${error.remedy}`));
  if (where) {
    const button = make("button", { type: "button" }, "Go there");
    button.addEventListener("click", goThere);
    card.append(button);
  }
  place.replaceChildren(card);
}

/** A verdict: its headline and its sections. */
export function showVerdict(place, verdict) {
  const [outcome, ...rest] = verdict.headline.split(":");
  const icon = make("span", { className: "icon", ariaHidden: "true" }, ICONS[verdict.outcome]);
  const head = make("section", { className: `verdict ${verdict.outcome}` });
  head.append(make("h3", {}, icon, outcome[0].toUpperCase() + outcome.slice(1)), make("p", {}, rest.join(":").trim()));
  for (const each of Object.keys(ICONS)) place.classList.toggle(`mp-${each}`, each === verdict.outcome);
  place.replaceChildren(head);
  verdict.sections.forEach((section) => addSection(place, section));
}

/** Adds a section at its place among the others, or replaces the one of that name; returns its body. */
export function addSection(place, { name, title, html }) {
  const body = make("div", { className: "section-body" });
  body.innerHTML = html;
  const section = make("section", { className: "section" }, make("h3", {}, title), body);
  section.dataset.name = name;
  const others = [...place.querySelectorAll(":scope > .section")];
  const old = others.find((other) => other.dataset.name === name);
  const next = others.find((other) => ORDER.indexOf(other.dataset.name) > ORDER.indexOf(name));
  if (old) old.replaceWith(section);
  else place.insertBefore(section, next ?? null);
  return body;
}

/** The repairs of a query; null while they are sought. */
export function showRepairs(results, found, apply) {
  const place = addSection(results, { name: "repairs", title: "Repairs", html: "" });
  place.setAttribute("aria-busy", String(found === null));
  if (found === null) {
    place.replaceChildren(make("p", { className: "dim" }, "Looking for the smallest changes …"));
  } else if (found.error) {
    place.replaceChildren(make("p", { className: "dim" }, found.error.message));
  } else if (found.repairs.length === 0) {
    place.replaceChildren(make("p", { className: "dim" }, "No change is known that makes this query bounded."));
  } else {
    const items = found.repairs.map((repair) => makeRepair(repair, apply));
    place.replaceChildren(make("ol", { className: "repairs" }, ...items));
    hideAfter(place, items, SHOWN_REPAIRS);
  }
}

/** Hides the items after the first ones, with a button that shows them. */
function hideAfter(place, items, count) {
  const hidden = items.slice(count);
  if (hidden.length === 0) return;
  for (const item of hidden) item.hidden = true;
  const button = make("button", { type: "button", className: "more" }, `Show ${hidden.length} more`);
  button.addEventListener("click", () => {
    for (const item of hidden) item.hidden = false;
    button.remove();
    (hidden[0].querySelector("button") ?? place).focus();
  });
  place.append(button);
}

function makeRepair(repair, apply) {
  const head = make("div", { className: "repair-head" }, make("strong", {}, repair.title));
  head.append(make("span", { className: `badge ${repair.meaning.replaceAll(" ", "-")}` }, repair.meaning));
  const item = make("li", { className: "repair" }, head);
  if (repair.assumption) item.append(make("p", {}, `If ${repair.assumption}.`));
  if (repair.changes) {
    const changes = make("div");
    changes.innerHTML = repair.changes;
    item.append(changes);
  }
  const foot = make("div", { className: "repair-foot" }, make("span", { className: "dim" }, repair.keeps));
  if (repair.edits.length > 0) {
    const button = make("button", { type: "button", className: "apply" }, "Apply");
    button.ariaLabel = `Apply: ${repair.title}`;
    button.addEventListener("click", () => apply(repair));
    foot.append(button);
  }
  item.append(foot);
  return item;
}
