import type { ErrorCode } from "../../base/errors.ts";
import type { Part } from "../../protocol/message.ts";
import type { Answer, DecidedEntry, Decision, Effect, Facts } from "./command.ts";
import type { Header } from "./header.ts";

/** A decision in the making: each function gives the next, and none changes what it was given. */
export type Step = {
  readonly header: Header;
  readonly entries: readonly DecidedEntry[];
  readonly effects: readonly Effect[];
};

export function firstStep(header: Header): Step {
  return { header, entries: [], effects: [] };
}

export function withHeader(step: Step, change: Partial<Header>): Step {
  return { ...step, header: { ...step.header, ...change } };
}

export function withEffect(step: Step, effect: Effect): Step {
  return { ...step, effects: [...step.effects, effect] };
}

/** Puts an entry behind the last. A pod's clock may be behind another's, so what is active stays so. */
export function withEntry(
  step: Step,
  entry: Omit<DecidedEntry, "seq" | "atMs">,
  { nowMs }: Facts,
): Step {
  const { header } = step;
  const seq = header.lastSeq + 1;
  const said = entry.kind === "message" ? previewOf(entry.parts) : "";
  return {
    ...step,
    entries: [...step.entries, { ...entry, seq, atMs: nowMs }],
    header: {
      ...header,
      lastSeq: seq,
      tokens: header.tokens + entry.tokens,
      activeAtMs: Math.max(header.activeAtMs, nowMs),
      ...(said !== "" && { preview: said, previewAuthor: entry.author }),
    },
  };
}

export type Decided = Extract<Decision, { type: "decided" }>;

export function decided(step: Step, answer: Omit<Answer, "lastSeq">): Decided {
  return { type: "decided", ...step, answer: { lastSeq: step.header.lastSeq, ...answer } };
}

/** Nothing is changed: what was asked is so already, or came too late. */
export function unchanged(header: Header, answer: Omit<Answer, "lastSeq">): Decided {
  return decided(firstStep(header), answer);
}

export function refused(code: ErrorCode, message: string): Decision {
  return { type: "refused", code, message };
}

const previewChars = 80;
// Enough to find so many characters in, however many blanks are between them.
const previewScan = 1_000;

function previewOf(parts: readonly Part[]): string {
  for (const { type, text } of parts) {
    if (type !== "text" || typeof text !== "string") continue;
    const line = text.slice(0, previewScan).replace(/\s+/g, " ").trim();
    // The cut may fall into the middle of a character.
    if (line !== "") return line.slice(0, previewChars).replace(/[\uD800-\uDBFF]$/, "");
  }
  return "";
}
