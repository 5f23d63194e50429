// The text in the fragment of the page's address, which browsers do not send: deflated, then base64url.

const PREFIX = "#sql=";
const MAX_LENGTH = 64 * 1024;

async function pipe(bytes, stream) {
  return new Response(new Blob([bytes]).stream().pipeThrough(stream));
}

export async function writeLink(text) {
  const deflated = await pipe(new TextEncoder().encode(text), new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await deflated.arrayBuffer());
  const binary = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return PREFIX + btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** The text of a fragment; null if it has none, an Error if it cannot be read. */
export async function readLink(fragment) {
  if (!fragment.startsWith(PREFIX)) return null;
  try {
    const binary = atob(fragment.slice(PREFIX.length).replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(binary, (character) => character.charCodeAt(0));
    const inflated = (await pipe(bytes, new DecompressionStream("deflate-raw"))).body.getReader();
    const decoder = new TextDecoder("utf-8", { fatal: true });
    let text = "";
    for (let part = await inflated.read(); !part.done; part = await inflated.read()) {
      text += decoder.decode(part.value, { stream: true });
      // A short link may inflate to gigabytes.
      if (text.length > MAX_LENGTH) throw new Error("too long");
    }
    return text + decoder.decode();
  } catch {
    return new Error("this link cannot be read: a part of it is missing or changed");
  }
}
