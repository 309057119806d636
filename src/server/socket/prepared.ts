import type { Entry } from "../../protocol/message.ts";
import type { ServerFrame } from "../../protocol/frames.ts";
import type { SessionEvent } from "../../sessions/service.ts";

/** A frame as text, and alone in a message as bytes, made once for all who get it. */
export type Prepared = { readonly text: string; bytes?: Buffer };

export function prepare(frame: ServerFrame): Prepared {
  return { text: JSON.stringify(frame) };
}

/** The message that holds only this frame. */
export function aloneOf(prepared: Prepared): Buffer {
  return (prepared.bytes ??= Buffer.from(`[${prepared.text}]`));
}

export type SharedEvent = Exclude<SessionEvent, { type: "joined" | "deleted" }>;

const ofEvents = new WeakMap<SharedEvent, { session: string; prepared: Prepared }>();
const ofEntries = new WeakMap<Entry, string>();

/** What happened in a session, for whoever follows it: the same event is written out once. */
export function prepareEvent(session: string, event: SharedEvent): Prepared {
  const found = ofEvents.get(event);
  if (found?.session === session) return found.prepared;
  const prepared = { text: textOf(session, event) };
  ofEvents.set(event, { session, prepared });
  return prepared;
}

function textOf(session: string, event: SharedEvent): string {
  const id = JSON.stringify(session);
  if (event.type === "entries")
    return `{"type":"entries","session":${id},"entries":[${event.entries.map(entryText).join(",")}]}`;
  const { type, ...rest } = event;
  return JSON.stringify({ type, session, ...rest });
}

/** An entry never changes, so neither does its text. */
function entryText(entry: Entry): string {
  let text = ofEntries.get(entry);
  if (text === undefined) ofEntries.set(entry, (text = JSON.stringify(entry)));
  return text;
}
