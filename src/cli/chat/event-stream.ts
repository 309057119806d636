import { FlotillaError } from "../../base/errors.ts";

export type StreamEvent = { readonly type: string; readonly data: string };

// More than any event that a server sends.
const eventCharsMost = 64 * 1024 * 1024;

/** Server-sent events, one by one. Comments, which only keep a connection alive, are passed over. */
export async function* eventsIn(
  body: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
): AsyncGenerator<StreamEvent> {
  const decoder = new TextDecoder();
  let rest = "";
  let type = "message";
  let data: string[] = [];
  for await (const bytes of body) {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop()!;
    if (rest.length > eventCharsMost) {
      throw new FlotillaError("unsupported", "the server sends an event that never ends");
    }
    for (const line of lines) {
      const [, field, value] = /^([^:]*)(?:: ?(.*))?$/s.exec(line)!;
      if (line === "") {
        if (data.length > 0) yield { type, data: data.join("\n") };
        type = "message";
        data = [];
      } else if (field === "event") type = value ?? "";
      else if (field === "data") data.push(value ?? "");
    }
  }
}
