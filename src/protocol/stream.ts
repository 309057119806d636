import { type Chunk, parseChunk } from "./chunk.ts";
import { createLines } from "../base/lines.ts";
import type { EntryError } from "./message.ts";
import { invalidChunk } from "./limits.ts";

/** How chunks are written in a response body: as server-sent events, or one per line. */
export type BodyFormat = "sse" | "jsonl";

export type BodyItem =
  | { readonly type: "chunk"; readonly chunk: Chunk }
  /** A line that cannot be used. Later lines are read, unless it is `fatal`. */
  | { readonly type: "error"; readonly error: EntryError; readonly fatal: boolean }
  /** `[DONE]`. Nothing after it counts. */
  | { readonly type: "done" };

export type BodyReader = {
  push(bytes: Uint8Array): readonly BodyItem[];
  /** The remaining items when the body has ended. */
  end(): readonly BodyItem[];
};

export type BodyOptions = {
  readonly format: BodyFormat;
  /** The maximum size of a line, and of one event. Default 1 MiB: no chunk is larger than a message. */
  readonly maxLineBytes?: number;
};

const jsonLines = new Set([
  "application/x-ndjson",
  "application/ndjson",
  "application/jsonl",
  "application/x-jsonlines",
  "application/json-lines",
]);

/** The format that a `content-type` names; undefined if it is not supported. */
export function formatOf(contentType: string | null | undefined): BodyFormat | undefined {
  const type = (contentType ?? "").split(";")[0]?.trim().toLowerCase() ?? "";
  if (type === "text/event-stream") return "sse";
  return jsonLines.has(type) ? "jsonl" : undefined;
}

/** Reads an agent's body in pieces, wherever they are cut. */
export function createBodyReader({ format, maxLineBytes = 1024 * 1024 }: BodyOptions): BodyReader {
  const lines = createLines({ maxLineBytes, returns: format === "sse" });
  let line = 0;
  let ended = false;
  // The data of the current event, and the line where it began.
  let data: string[] = [];
  let dataLength = 0;
  let dataLine = 0;

  function read(text: string): BodyItem | undefined {
    if (format === "jsonl") return parsed(text.trim(), line);
    if (text === "") {
      const whole = data.join("\n");
      data = [];
      dataLength = 0;
      return parsed(whole, dataLine);
    }
    const colon = text.indexOf(":");
    const field = colon === -1 ? text : text.slice(0, colon);
    // Skips comments and other fields of events, such as names and ids.
    if (field !== "data") return undefined;
    const value = colon === -1 ? "" : text.slice(text[colon + 1] === " " ? colon + 2 : colon + 1);
    if (data.length === 0) dataLine = line;
    data.push(value);
    dataLength += value.length + 1;
    return dataLength > maxLineBytes ? tooLong() : undefined;
  }

  function parsed(text: string, at: number): BodyItem | undefined {
    if (text === "") return undefined;
    if (text === "[DONE]") {
      ended = true;
      return { type: "done" };
    }
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      return wrong(`line ${at} isn't JSON: ${excerpt(text)}`);
    }
    const chunk = parseChunk(value);
    if (!("type" in chunk)) return wrong(`line ${at}: ${chunk.error as string}`);
    return { type: "chunk", chunk: chunk as Chunk };
  }

  function tooLong(): BodyItem {
    ended = true;
    const message = `line ${line} is longer than ${maxLineBytes} bytes`;
    return { type: "error", error: { code: "payload_too_large", message }, fatal: true };
  }

  function readAll(batch: ReturnType<typeof lines.push>): BodyItem[] {
    const items: BodyItem[] = [];
    for (const text of batch.lines) {
      line++;
      const item = text === undefined ? tooLong() : read(text);
      if (item !== undefined) items.push(item);
      if (ended) return items;
    }
    if (batch.tooLong) {
      line++;
      items.push(tooLong());
    }
    return items;
  }

  return {
    push: (bytes) => (ended ? [] : readAll(lines.push(bytes))),
    end() {
      if (ended) return [];
      const rest = lines.end();
      // An agent may end its body without the final empty line; its last event counts all the same.
      const all = format === "sse" ? [...rest, ""] : rest;
      const items = readAll({ lines: all, tooLong: false });
      ended = true;
      return items;
    },
  };
}

function wrong(message: string): BodyItem {
  return { type: "error", error: invalidChunk(message), fatal: false };
}

function excerpt(text: string): string {
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}
