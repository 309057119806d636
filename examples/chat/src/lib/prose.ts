/** A text in pieces: what it is made of, for whoever shows it. Nothing in it is ever read as markup. */
export type Block =
  | { readonly type: "code"; readonly language: string; readonly text: string }
  | { readonly type: "text"; readonly spans: readonly Span[] };

export type Span =
  | { readonly type: "plain" | "code"; readonly text: string }
  | { readonly type: "link"; readonly text: string };

/** Finds fenced code, `code` in a line, and addresses. A fence that is still open goes on to the end. */
export function blocksOf(text: string): Block[] {
  const blocks: Block[] = [];
  let plain: string[] = [];
  let fence: { mark: string; language: string; lines: string[] } | undefined;
  const flush = () => {
    const isSaid = (line: string) => line !== "";
    const said = plain.slice(plain.findIndex(isSaid), plain.findLastIndex(isSaid) + 1);
    if (said.length > 0) blocks.push({ type: "text", spans: spansOf(said.join("\n")) });
    plain = [];
  };
  const close = () => {
    if (!fence) return;
    blocks.push({ type: "code", language: fence.language, text: fence.lines.join("\n") });
    fence = undefined;
  };
  for (const line of text.split("\n")) {
    const found = fenceIn(line);
    if (fence) {
      if (found?.language === "" && found.mark.startsWith(fence.mark)) close();
      else fence.lines.push(line);
    } else if (found) {
      flush();
      fence = { ...found, lines: [] };
    } else plain.push(line);
  }
  close();
  flush();
  return blocks;
}

/** The mark and the language in a line that is a fence. */
function fenceIn(line: string): { mark: string; language: string } | undefined {
  const [begins, mark] = /^ {0,3}(```+|~~~+)/.exec(line) ?? [];
  if (begins === undefined) return undefined;
  // Taken off first: an expression with white space on both sides tries every way to share it out.
  const language = line.slice(begins.length).trim();
  return /^[\w+#.-]{0,20}$/.test(language) ? { mark: mark!, language } : undefined;
}

// Only these two lead anywhere. What follows a sentence's end isn't part of an address.
const special = /`([^`\n]+)`|https?:\/\/[^\s<>"'`]*[^\s<>"'`.,;:!?)\]}]/g;

function spansOf(text: string): Span[] {
  const spans: Span[] = [];
  let at = 0;
  for (const found of text.matchAll(special)) {
    if (found.index > at) spans.push({ type: "plain", text: text.slice(at, found.index) });
    const [whole, code] = found;
    spans.push(code === undefined ? link(whole) : { type: "code", text: code });
    at = found.index + whole.length;
  }
  if (at < text.length) spans.push({ type: "plain", text: text.slice(at) });
  return spans;
}

function link(text: string): Span {
  return { type: URL.canParse(text) ? "link" : "plain", text };
}
