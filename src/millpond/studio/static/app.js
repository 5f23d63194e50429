// The page of the studio: asks for the verdict as the text changes, and shows what comes back.

import { loadExamples, makeAsker } from "./api.js";
import { createEditor } from "./editor.js";
import { readLink, writeLink } from "./permalink.js";
import { addSection, showError, showHint, showQueries, showRepairs, showVerdict } from "./results.js";

const DEBOUNCE = 200; // milliseconds without a key before the text is checked

const element = (id) => document.getElementById(id);
const [results, queryList, toast] = ["results", "queries", "toast"].map(element);
const askers = Object.fromEntries(
  ["check", "details", "repairs"].map((task) => [task, makeAsker(`/api/${task}`)]),
);

let answer = { verdicts: [] }; // to the text `checked`
let checked = null;
let current = 0; // the number of the query whose verdict is shown
let repairs = new Map(); // of the queries of `checked`, by number
let details = new Map(); // the same: sections that take longer
let timer = null;
let editor = null;

// --- checking ----------------------------------------------------------------------------------------

function onChange(text) {
  clearTimeout(timer);
  timer = setTimeout(check, DEBOUNCE, text);
  for (const asker of Object.values(askers)) asker.drop();
  results.classList.add("stale");
  toast.replaceChildren(); // what it offers to undo is no longer the last change
}

async function check(text) {
  saveLink(text);
  if (!text.trim()) {
    accept(text, { verdicts: [] });
    return;
  }
  const found = await askers.check.ask({ text });
  if (found && text === editor.text()) accept(text, found);
}

function accept(text, found) {
  answer = { verdicts: [], ...found };
  checked = text;
  repairs = new Map();
  details = new Map();
  editor.show(
    answer.verdicts.map(({ from, to, outcome }) => ({ from, to, outcome })),
    answer.error ? errorMarks(answer.error) : answer.verdicts.flatMap((verdict) => verdict.marks),
  );
  results.classList.remove("stale");
  announce(describe());
  if (answer.verdicts.length === 0) show();
}

function errorMarks({ from, to, message }) {
  return from === undefined ? [] : [{ from, to, severity: "error", message }];
}

function describe() {
  if (answer.error) return `Error: ${answer.error.message}`;
  const outcomes = answer.verdicts.map((verdict) => verdict.outcome);
  return outcomes.length === 1
    ? `The query is ${outcomes[0]}`
    : outcomes.map((outcome, index) => `Query ${index + 1}: ${outcome}`).join(", ");
}

function onQuery(index) {
  current = index;
  show();
}

function show() {
  const { verdicts, error } = answer;
  showQueries(queryList, verdicts, current, (index) => editor.goToQuery(index));
  const verdict = verdicts[current];
  if (error) {
    showError(results, error, () => {
      editor.goTo(error.from);
      editor.focus();
    });
  } else if (!verdict) {
    showHint(results);
  } else {
    showVerdict(results, verdict);
    if (checked !== editor.text()) return; // soon there is another verdict
    findDetails(current);
    if (verdict.outcome !== "bounded") findRepairs(current);
  }
}

// --- repairs and details -----------------------------------------------------------------------------

async function findRepairs(index) {
  const text = checked;
  const apply = (repair) => applyRepair(text, repair);
  if (!repairs.has(index)) showRepairs(results, null, apply);
  const found = await answerOnce(repairs, askers.repairs, index);
  if (found) showRepairs(results, found, apply);
}

async function findDetails(index) {
  const found = await answerOnce(details, askers.details, index);
  for (const section of found?.sections ?? []) addSection(results, section);
}

/** The answer about a query, asked for once; null if the page shows something else by then. */
async function answerOnce(answers, asker, index) {
  const text = checked;
  if (!answers.has(index)) {
    const found = await asker.ask({ text, query: index });
    if (!found || checked !== text) return null;
    answers.set(index, found);
  }
  return current === index && checked === text ? answers.get(index) : null;
}

function applyRepair(text, repair) {
  if (editor.text() !== text) return; // the text has changed since
  editor.edit(repair.edits.map(({ from, to, insert }) => ({ from, to, insert })));
  notify(`Applied: ${repair.title}`, "Undo", () => {
    editor.undo();
    editor.focus();
  });
  editor.focus();
}

// --- links and examples ------------------------------------------------------------------------------

async function saveLink(text) {
  const link = text ? await writeLink(text) : "";
  if (text === editor.text()) history.replaceState(null, "", link || location.pathname);
}

async function openLink() {
  const text = await readLink(location.hash);
  if (text instanceof Error) notify(text.message);
  else if (text !== null && text !== editor.text()) editor.setText(text);
}

async function copyLink() {
  await saveLink(editor.text());
  try {
    await navigator.clipboard.writeText(location.href);
    notify("The link is copied. It holds the text itself; it opens wherever a studio runs.");
  } catch {
    notify("The browser does not allow copying: copy the address of this page.");
  }
}

function fillExamples(examples) {
  const menu = element("examples");
  for (const { title, about, text } of examples) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(Object.assign(document.createElement("strong"), { textContent: title }), about);
    button.addEventListener("click", () => {
      menu.hidePopover();
      editor.setText(text);
      notify(`Loaded: ${title}`, "Undo", () => editor.undo());
      editor.focus();
    });
    menu.append(button);
  }
  menu.querySelector("button").autofocus = true;
}

// --- messages and keys -------------------------------------------------------------------------------

function announce(message) {
  const place = element("announcement");
  if (place.textContent !== message) place.textContent = message;
}

let hiding = null;
function notify(message, action = "", run = null) {
  toast.replaceChildren(message);
  if (action) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: action });
    button.addEventListener("click", () => {
      toast.replaceChildren();
      run();
    });
    toast.append(button);
  }
  clearTimeout(hiding);
  hiding = setTimeout(() => toast.replaceChildren(), action ? 10_000 : 5_000);
}

function goToResults() {
  const target = results.querySelector("button.apply") ?? results;
  target.focus();
  target.scrollIntoView({ block: "nearest" });
  return true;
}

function listenToKeys() {
  document.addEventListener("keydown", (event) => {
    const isControl = event.ctrlKey || event.metaKey;
    if (event.key === "F1") element("help").showModal();
    else if (isControl && event.key.toLowerCase() === "k") element("examples").showPopover();
    else return;
    event.preventDefault();
  });
  document.querySelector(".results-pane").addEventListener("keydown", (event) => {
    if (event.key === "Escape") editor.focus();
  });
  element("help-button").addEventListener("click", () => element("help").showModal());
  element("link-button").addEventListener("click", copyLink);
  addEventListener("hashchange", openLink);
}

// --- start -------------------------------------------------------------------------------------------

async function start() {
  const linked = await readLink(location.hash);
  const examples = await loadExamples();
  const text = typeof linked === "string" ? linked : examples[0].text;
  editor = createEditor({
    parent: element("editor"),
    text,
    nonce: document.querySelector("meta[name=style-nonce]").content,
    labelledBy: "editor-label",
    keys: [{ key: "Mod-Enter", run: goToResults }],
    onChange,
    onQuery,
    onMark: notify,
  });
  fillExamples(examples);
  listenToKeys();
  if (linked instanceof Error) notify(linked.message);
  if (matchMedia("(hover: hover)").matches) editor.focus(); // elsewhere a keyboard would cover the page
  await check(text);
}

start();
