// The SQL editor of the studio's page: CodeMirror with Spark's words, and marks for verdicts.
// `npm ci && npm run build` bundles this file and its packages into ../static/editor.js.

import {
  acceptCompletion, autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap,
} from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, redo, undo } from "@codemirror/commands";
import { SQLDialect } from "@codemirror/lang-sql";
import { bracketMatching, syntaxHighlighting, syntaxTree } from "@codemirror/language";
import { forEachDiagnostic, lintKeymap, nextDiagnostic, setDiagnostics } from "@codemirror/lint";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { EditorState, StateEffect, StateField } from "@codemirror/state";
import {
  Decoration, EditorView, drawSelection, highlightActiveLine, highlightActiveLineGutter,
  highlightSpecialChars, keymap, lineNumbers,
} from "@codemirror/view";
import { classHighlighter } from "@lezer/highlight";

// Spark's words as far as Millpond reads them.
const dialect = SQLDialect.define({
  keywords:
    "all and as asc between by case cast check create cross current day days desc distinct else end escape " +
    "except exists explode filter first following from full group having hour hours if in inner intersect " +
    "interval is join last lateral left like limit minute minutes not null nulls offset on options or order " +
    "outer over partition preceding qualify range replace right row rows second seconds select semi anti set " +
    "streaming table tblproperties temporary then unbounded union using values view when where with",
  types:
    "array bigint boolean byte date decimal double float int integer long map real short smallint string " +
    "struct timestamp tinyint varchar",
  builtin:
    "abs approx_count_distinct avg bool_and bool_or ceil coalesce collect_list collect_set concat count " +
    "count_if date_format date_trunc dense_rank first_value floor greatest lag last_value lead " +
    "least length lower max max_by median min min_by month percentile rank round row_number " +
    "session_window stddev substring sum to_date trim upper variance window year",
  identifierQuotes: "`",
  doubleQuotedStrings: true,
  backslashEscapes: true,
  caseInsensitiveIdentifiers: true,
});

// --- completion --------------------------------------------------------------------------------------

const declaration = /\bCREATE\s+(?:STREAMING\s+)?TABLE\s+`?(\w+)`?\s*\(/giu;
const constraint = /^(check|primary|foreign|unique|constraint)$/iu;
const words = [
  ...dialect.spec.keywords.split(" ").map((word) => ({ label: word.toUpperCase(), type: "keyword" })),
  ...dialect.spec.types.split(" ").map((word) => ({ label: word.toUpperCase(), type: "type" })),
  ...dialect.spec.builtin.split(" ").map((word) => ({ label: word, type: "function" })),
];

// The declared tables and the names of their columns.
function readTables(text) {
  const tables = new Map();
  for (const found of text.matchAll(declaration)) {
    const columns = [];
    let depth = 1, start = found.index + found[0].length;
    for (let at = start; at < text.length && depth > 0; at++) {
      if (text[at] === "(") depth++;
      else if (text[at] === ")") depth--;
      if (depth === 0 || (depth === 1 && text[at] === ",")) {
        const name = /^\s*`?(\w+)`?\s/u.exec(text.slice(start, at) + " ");
        if (name && !constraint.test(name[1])) columns.push(name[1]);
        start = at + 1;
      }
    }
    tables.set(found[1], columns);
  }
  return tables;
}

// The tables that a name before a dot can stand for: the table of that name or alias, or else all.
function findTables(text, name, tables) {
  const found = [...tables.keys()].filter(
    (table) => table === name || new RegExp(`\\b${table}\\s+(?:AS\\s+)?${name}\\b`, "iu").test(text),
  );
  return found.length > 0 ? found : [...tables.keys()];
}

// After a dot, columns; elsewhere tables, columns and the words of SQL.
function complete(context) {
  const inside = syntaxTree(context.state).resolveInner(context.pos, -1).name;
  if (/Comment|String/.test(inside)) return null;
  const word = context.matchBefore(/(?:\w+\.)?\w*/u);
  if (!word || (word.from === word.to && !context.explicit)) return null;
  const text = context.state.doc.toString();
  const tables = readTables(text);
  const dot = word.text.indexOf(".");
  const shown = dot < 0 ? [...tables.keys()] : findTables(text, word.text.slice(0, dot), tables);
  const columns = new Set(shown.flatMap((table) => tables.get(table)));
  const options = [...columns].map((label) => ({ label, type: "property", boost: 2 }));
  if (dot < 0) options.push(...[...tables.keys()].map((label) => ({ label, type: "class", boost: 1 })), ...words);
  return { from: word.from + dot + 1, options, validFor: /^\w*$/u };
}

// --- queries -----------------------------------------------------------------------------------------

// The queries of the last answer ({from, to, outcome}), moved along with changes of the text.
const setQueries = StateEffect.define();
const queries = StateField.define({
  create: () => [],
  update(value, transaction) {
    for (const effect of transaction.effects) if (effect.is(setQueries)) return effect.value;
    if (!transaction.docChanged) return value;
    const move = (at, side) => transaction.changes.mapPos(at, side);
    return value.map((query) => ({ ...query, from: move(query.from, 1), to: move(query.to, -1) }));
  },
  provide: (field) => EditorView.decorations.compute([field, "selection"], drawQueries),
});

// What a repair has inserted, shown until the text is changed again.
const setInserted = StateEffect.define();
const inserted = StateField.define({
  create: () => Decoration.none,
  update(value, transaction) {
    for (const effect of transaction.effects) if (effect.is(setInserted)) return effect.value;
    return transaction.docChanged ? Decoration.none : value;
  },
  provide: (field) => EditorView.decorations.from(field),
});

// A bar beside the lines of each query, in the colour of its outcome.
function drawQueries(state) {
  const current = findQuery(state);
  const bars = [];
  state.field(queries).forEach(({ from, to, outcome }, index) => {
    const style = `query query-${outcome}${index === current ? " query-current" : ""}`;
    const last = state.doc.lineAt(Math.min(Math.max(from, to), state.doc.length)).number;
    for (let n = state.doc.lineAt(Math.min(from, state.doc.length)).number; n <= last; n++) {
      bars.push(Decoration.line({ class: style }).range(state.doc.line(n).from));
    }
  });
  return Decoration.set(bars, true);
}

// The number of the query at the cursor: the one that contains it, or else the next, or else the last.
function findQuery(state) {
  const { head } = state.selection.main;
  const found = state.field(queries);
  const inside = found.findIndex(({ from, to }) => from <= head && head <= to + 1); // with its semicolon
  if (inside >= 0) return inside;
  const lineEnd = (at) => state.doc.lineAt(Math.min(at, state.doc.length)).to;
  const next = found.findIndex(({ to }) => head <= lineEnd(to));
  return next >= 0 ? next : found.length - 1;
}

// Selects the next mark, and passes its message on.
function goToNextMark(onMark) {
  return (view) => {
    if (!nextDiagnostic(view)) return false;
    const { from, to } = view.state.selection.main;
    forEachDiagnostic(view.state, (mark, start, end) => {
      if (start === from && end === to) onMark(mark.message);
    });
    return true;
  };
}

/**
 * An editor below `parent`.  `onChange(text)` is called after each change, `onQuery(number)` when the cursor
 * moves to another query, `onMark(message)` when it is sent to a mark; `keys` are further key bindings
 * ({key, run}).
 */
export function createEditor({ parent, text, nonce, labelledBy, keys, onChange, onQuery, onMark }) {
  let current = -1;

  function followQuery(state) {
    const index = findQuery(state);
    if (index === current) return;
    current = index;
    onQuery(index);
  }

  const view = new EditorView({
    parent,
    state: EditorState.create({
      doc: text,
      extensions: [
        EditorView.cspNonce.of(nonce),
        EditorView.contentAttributes.of({ "aria-labelledby": labelledBy, tabindex: "0", spellcheck: "false" }),
        EditorView.lineWrapping,
        lineNumbers(), highlightActiveLine(), highlightActiveLineGutter(), highlightSpecialChars(),
        history(), drawSelection(), bracketMatching(), closeBrackets(), highlightSelectionMatches(),
        autocompletion({ override: [complete], icons: false }),
        syntaxHighlighting(classHighlighter),
        dialect.language,
        queries,
        inserted,
        keymap.of([
          // Tab takes a completion that is open; otherwise it leaves the editor.
          { key: "Tab", run: acceptCompletion },
          { key: "F8", run: goToNextMark(onMark) },
          ...keys,
          ...closeBracketsKeymap, ...completionKeymap, ...searchKeymap, ...historyKeymap, ...lintKeymap,
          ...defaultKeymap,
        ]),
        EditorView.updateListener.of((update) => {
          if (update.docChanged) onChange(update.state.doc.toString());
          if (update.docChanged || update.selectionSet) followQuery(update.state);
        }),
      ],
    }),
  });
  const clamp = (at) => Math.max(0, Math.min(at, view.state.doc.length));

  return {
    text: () => view.state.doc.toString(),
    focus: () => view.focus(),
    undo: () => undo(view),
    redo: () => redo(view),

    /** Replaces the whole text; undo brings the old one back. */
    setText(replacement) {
      const changes = { from: 0, to: view.state.doc.length, insert: replacement };
      view.dispatch({ changes, selection: { anchor: 0 }, effects: EditorView.scrollIntoView(0) });
    },

    /** Applies changes ({from, to, insert}) as one step of undo, and shows what they insert. */
    edit(changes) {
      const set = view.state.changes(changes);
      const marks = [];
      set.iterChanges((fromA, toA, from, to) => {
        if (to > from) marks.push(Decoration.mark({ class: "inserted" }).range(from, to));
      });
      const first = set.mapPos(Math.min(...changes.map((change) => change.from)), -1);
      const effects = [setInserted.of(Decoration.set(marks)), EditorView.scrollIntoView(first, { y: "center" })];
      view.dispatch({ changes: set, selection: { anchor: first }, effects, userEvent: "input.repair" });
    },

    /**
     * Shows the queries of a text ({from, to, outcome}) and marks ({from, to, severity, message}).  If there
     * are queries, `onQuery` is called.
     */
    show(found, marks) {
      const diagnostics = marks.map((mark) => ({ ...mark, from: clamp(mark.from), to: clamp(mark.to) }));
      view.dispatch({ effects: setQueries.of(found) });
      view.dispatch(setDiagnostics(view.state, diagnostics));
      current = -1;
      followQuery(view.state);
    },

    /** Moves the cursor, and the text so that it can be seen. */
    goTo(place) {
      const at = clamp(place);
      const effects = EditorView.scrollIntoView(at, { y: "nearest", yMargin: 40 });
      view.dispatch({ selection: { anchor: at }, effects });
    },

    /** Moves the cursor to the beginning of a query. */
    goToQuery(index) {
      const query = view.state.field(queries)[index];
      if (query) this.goTo(query.from);
    },
  };
}
