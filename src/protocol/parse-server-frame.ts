import { FlotillaError } from "../base/errors.ts";
import type { ServerFrame } from "./frames.ts";

type Kind = "text" | "number" | "object" | "list" | "ref" | "one";

/** What each frame of a server has at least. A newer server may send more, and other frames. */
const required: { readonly [Type in ServerFrame["type"]]: Readonly<Record<string, Kind>> } = {
  hello: { protocol: "one", tenant: "text", maxFrameBytes: "number" },
  joined: {
    ref: "ref",
    session: "text",
    lastSeq: "number",
    incarnation: "text",
    state: "object",
  },
  reset: { session: "text", reason: "text" },
  entries: { session: "text", entries: "list" },
  state: { session: "text", state: "object" },
  chunks: {
    session: "text",
    epoch: "number",
    attempt: "number",
    index: "number",
    chunks: "list",
  },
  ack: { ref: "ref" },
  error: { code: "text", message: "text", details: "object" },
  inbox: { ref: "ref", sessions: "list" },
  inbox_changed: { sessions: "list" },
  inbox_removed: { sessionIds: "list" },
  left: { session: "text", reason: "text" },
  pong: { ref: "ref" },
};

export const serverFrameTypes = Object.keys(required) as readonly ServerFrame["type"][];

/** The frames of one message of a server. Those of types that aren't known are left out. */
export function parseServerFrames(text: string): ServerFrame[] {
  const frames: unknown = JSON.parse(text);
  if (!Array.isArray(frames)) throw strange("a message must be a list of frames");
  return frames.filter(isKnown);
}

function isKnown(frame: unknown): frame is ServerFrame {
  if (typeof frame !== "object" || frame === null) throw strange("a frame must be an object");
  const fields = frame as Readonly<Record<string, unknown>>;
  const type = String(fields["type"]);
  if (!Object.hasOwn(required, type)) return false;
  for (const [name, kind] of Object.entries(required[type as ServerFrame["type"]])) {
    if (!isOf(kind, fields[name])) throw strange(`${type}.${name} isn't what it must be`);
  }
  return true;
}

function isOf(kind: Kind, value: unknown): boolean {
  switch (kind) {
    case "text":
      return typeof value === "string";
    case "number":
      return Number.isSafeInteger(value);
    case "object":
      return typeof value === "object" && value !== null && !Array.isArray(value);
    case "list":
      return Array.isArray(value);
    case "ref":
      return typeof value === "string" || Number.isSafeInteger(value);
    case "one":
      return value === 1;
  }
}

function strange(message: string): FlotillaError {
  return new FlotillaError("invalid_input", `the server sent something strange: ${message}`);
}
