/**
 * What simulated agents say: which turn it is, who makes it, and every message of a user that they know
 * of, whether in full or by a summary. So what is stored tells by itself what it may be compared with.
 */
import type { Entry, Part, UIMessage } from "../../../src/protocol/message.ts";

export type Spoken = {
  readonly epoch: number;
  readonly attempt: number;
  readonly podId: string;
  readonly saw: readonly string[];
};

export function wordsOf({ epoch, attempt, podId, saw }: Spoken): string {
  return `<${epoch}.${attempt} ${podId}|${saw.join()}>`;
}

const pattern = /<(\d+)\.(\d+) (\w+)\|([^>]*)>/g;

/** The last of what was said so: a message that was continued begins with what it was before. */
export function spokenIn(text: string): Spoken | undefined {
  const found = [...text.matchAll(pattern)].at(-1);
  if (!found) return undefined;
  const [, epoch, attempt, podId, saw] = found;
  return {
    epoch: Number(epoch),
    attempt: Number(attempt),
    podId: podId!,
    saw: saw === "" ? [] : saw!.split(","),
  };
}

export function spokenBy({ parts }: Pick<Entry, "parts">): Spoken | undefined {
  return spokenIn(textOf(parts));
}

/** All that a client knows that was told this. */
export function knownFrom(summary: string | undefined, messages: readonly UIMessage[]): string[] {
  const before = summary === undefined ? [] : (spokenIn(summary)?.saw ?? []);
  const told = messages.filter(({ role }) => role === "user").map(({ id }) => id);
  return [...before, ...told];
}

function textOf(parts: readonly Part[]): string {
  return parts.map(({ type, text }) => (type === "text" ? String(text) : "")).join("");
}

/** An entry as text, the same whichever way it came. */
export function exactly(entry: Entry): string {
  return JSON.stringify(entry, (_, value: unknown) =>
    typeof value === "object" && value !== null && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)))
      : value,
  );
}
