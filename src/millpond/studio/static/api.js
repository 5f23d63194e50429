// Questions to the server.  Each answer is an object; {error: {message}} if there is none.

async function post(path, body, signal) {
  try {
    const response = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      signal,
    });
    return await response.json();
  } catch (failure) {
    if (failure.name === "AbortError") throw failure;
    return { error: { message: "the studio does not answer; start millpond studio again" } };
  }
}

/**
 * Asks `path` one question at a time.  `drop()` gives up the question that is open, as the next one does: its
 * answer is null.  The server is told to stop if it still works on it after `patience` milliseconds; it would
 * have to replace the process that does.
 */
export function makeAsker(path, patience = 1000) {
  let open = null;

  function drop() {
    const dropped = open;
    open = null;
    if (dropped) setTimeout(() => dropped.abort(), patience);
  }

  async function ask(body) {
    drop();
    const mine = new AbortController();
    open = mine;
    try {
      const answer = await post(path, body, mine.signal);
      return open === mine ? answer : null;
    } catch {
      return null;
    } finally {
      if (open === mine) open = null;
    }
  }

  return { ask, drop };
}

export async function loadExamples() {
  const response = await fetch("/api/examples");
  return response.json();
}
