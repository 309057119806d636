import { createLines } from "../../../base/lines.ts";
import { parseExact } from "../exact-json.ts";

/** One server-sent event: its name, and what it says, with all its digits. */
export type ReceivedEvent = { readonly type: string; readonly value: object };

// A page of entries is one event, and an entry may hold megabytes.
const maxLineBytes = 64 * 1024 ** 2;

/** Reads server-sent events, wherever the network cuts them. Comments keep a connection open and say nothing. */
export function createEventReader(): { push(bytes: Uint8Array): ReceivedEvent[] } {
  const lines = createLines({ maxLineBytes, returns: true });
  let type = "";
  let data: string[] = [];
  return {
    push(bytes) {
      const events: ReceivedEvent[] = [];
      for (const line of lines.push(bytes).lines) {
        if (line === "") {
          const value = data.length > 0 && valueIn(data.join("\n"));
          if (value) events.push({ type: type || "message", value });
          type = "";
          data = [];
        } else if (line !== undefined) {
          const [, field, value = ""] = /^([^:]*)(?:: ?([^]*))?$/.exec(line) ?? [];
          if (field === "event") type = value;
          else if (field === "data") data.push(value);
        }
      }
      return events;
    },
  };
}

/** What an event says; undefined of one that isn't an object of JSON, which no server of ours sends. */
function valueIn(data: string): object | undefined {
  try {
    const value = parseExact(data);
    return typeof value === "object" && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}
