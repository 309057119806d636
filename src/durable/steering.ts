import { isJsonObject } from "../base/json.ts";
import type { Step } from "../steps/model.ts";
import { type HeardMessage, hearingOf } from "../steps/steering.ts";

/** Wraps what prepares each step of a call, if anything does. */
export type Steered = (prepare: Prepare | undefined) => Prepare;

type Prepare = (options: unknown, ...rest: unknown[]) => Promise<unknown>;

/** A message as models get it, and how many others came before it. */
type Placed = { readonly at: number; readonly message: object };

/**
 * Before each step its model's messages get those that have come since the last. Versions of the AI SDK differ
 * in whether a later step keeps them, so each is put at its place again unless it is there.
 */
export function steeredBy(step: Step): Steered | undefined {
  const hear = hearingOf(step);
  if (!hear) return undefined;
  return (prepare) => {
    let heard: Placed[] = [];
    return async (options, ...rest) => {
      const { messages, stepNumber } = options as { messages?: unknown; stepNumber?: unknown };
      if (!Array.isArray(messages)) return prepare?.(options, ...rest);
      const atStep = typeof stepNumber === "number" ? stepNumber : 0;
      // A call that begins anew, such as the next of an agent that is used again.
      if (atStep === 0) heard = [];
      const placed = withHeard(messages as object[], heard);
      const at = placed.length - heard.length;
      const fresh = (await hear({ atStep })).flatMap((message) => asUser(message) ?? []);
      heard.push(...fresh.map((message) => ({ at, message })));
      const all = [...placed, ...fresh];
      const chosen = await prepare?.({ ...(options as object), messages: all }, ...rest);
      if (heard.length === 0) return chosen;
      return isJsonObject(chosen) && Array.isArray(chosen["messages"])
        ? chosen
        : { ...(chosen as object | undefined), messages: all };
    };
  };
}

function withHeard(messages: readonly object[], heard: readonly Placed[]): object[] {
  if (heard.some(({ message }) => messages.includes(message))) return [...messages];
  const placed = [...messages];
  heard.forEach(({ at, message }, before) => placed.splice(at + before, 0, message));
  return placed;
}

/** As models get a user's message. Parts that they can't get, such as data of the app, are left out. */
function asUser({ parts }: HeardMessage): object | undefined {
  const content = parts.flatMap((part): object[] => {
    const { type, text, url, mediaType, filename } = part;
    if (type === "text" && typeof text === "string") return [{ type, text }];
    if (type !== "file" || typeof url !== "string" || !URL.canParse(url)) return [];
    const name = typeof filename === "string" ? { filename } : {};
    return [{ type, mediaType, ...name, data: new URL(url) }];
  });
  return content.length === 0 ? undefined : { role: "user", content };
}
