import type { throttleSpecs } from "../../../server/api/throttles.schema.ts";
import type { Answered } from "../../api.ts";
import { counted, durationText, exactCount } from "../spans.ts";
import type { Tone } from "../verdict.ts";

export type ThrottleFacts = Answered<typeof throttleSpecs.list>["throttles"][number];
export type ThrottleEventFacts = Answered<typeof throttleSpecs.events>["events"][number];
export type HolderFacts = Answered<typeof throttleSpecs.holders>;

/** A throttle and one of its keys; the empty one where it has none. */
export type ThrottleAt = { readonly name: string; readonly key: string };

/** How it stands, in one sentence. */
export function throttleSentence(throttle: ThrottleFacts): {
  readonly tone: Tone;
  readonly text: string;
} {
  const { bound, pinned, breaker, holdMs, inFlight, waiting } = throttle;
  const waits =
    waiting === 0 ? "" : `, and ${exactCount(waiting)} ${waiting === 1 ? "waits" : "wait"}`;
  if (pinned === 0) return { tone: "wrong", text: `Pinned at 0: no call begins${waits}.` };
  if (pinned !== undefined)
    return { tone: "warn", text: `Pinned at ${exactCount(pinned)}: nothing is learned${waits}.` };
  if (breaker === "open")
    return { tone: "wrong", text: `The breaker is open: no call begins for now${waits}.` };
  if (breaker === "half_open")
    return { tone: "warn", text: `The breaker is half open: a few calls are tried${waits}.` };
  if (holdMs >= 1_000)
    return {
      tone: "warn",
      text: `The downstream asks for no calls for ${durationText(holdMs)}${waits}.`,
    };
  const used = `${exactCount(inFlight)} of ${counted(bound, "permit")} in use`;
  return { tone: "good", text: waiting === 0 ? `${used}.` : `${used}${waits}.` };
}

/** The share of its permits that is in use, from 0 to 1. */
export function useOf({ inFlight, bound }: Pick<ThrottleFacts, "inFlight" | "bound">): number {
  if (inFlight === 0) return 0;
  return bound === 0 ? 1 : Math.min(1, inFlight / bound);
}

/** How many of all calls were refused, as text; undefined where there were no calls. */
export function refusedText({ outcomes }: Pick<ThrottleFacts, "outcomes">): string | undefined {
  const calls = Object.values(outcomes).reduce((sum, count) => sum + count, 0);
  if (calls === 0) return undefined;
  const share = (outcomes.throttled / calls) * 100;
  if (outcomes.throttled === 0) return "0 %";
  return share < 0.1 ? "< 0.1 %" : `${share.toFixed(share < 10 ? 1 : 0)} %`;
}

const causes: Readonly<Record<string, string>> = {
  first_use: "its first use",
  learned_up: "all of it was used, and nothing was refused",
  promised: "the downstream's headers state more",
  refused: "calls were refused, as with 429",
  errors: "too many calls timed out or failed",
  slow: "calls took longer than with fewer at once",
  lowered: "it was tried, and not kept",
  settings: "the options in code have changed",
  breaker_opened: "most calls failed, so that the breaker opened",
  breaker_half_opened: "the breaker lets a few calls try",
  breaker_closed: "calls succeed again, so that the breaker closed",
  pinned: "it was pinned",
  unpinned: "it was unpinned",
};

/** Why the bound or the breaker has changed, in words. A cause of a later version is shown as it is. */
export function causeText(cause: string): string {
  return Object.hasOwn(causes, cause) ? causes[cause]! : cause;
}

/** What became of the bound. */
export function changeText({
  before,
  bound,
}: Pick<ThrottleEventFacts, "before" | "bound">): string {
  if (before === null) return `begins at ${exactCount(bound)}`;
  if (before === bound) return `stays at ${exactCount(bound)}`;
  const verb = bound > before ? "rose" : "fell";
  return `${verb} from ${exactCount(before)} to ${exactCount(bound)}`;
}

export function changeTone({
  before,
  bound,
  cause,
}: ThrottleEventFacts): "good" | "warn" | "plain" {
  if (cause === "pinned" || cause === "unpinned" || before === null || before === bound)
    return "plain";
  return bound > before ? "good" : "warn";
}

/** The limit that a person has typed; undefined where it is none. */
export function limitIn(text: string): number | undefined {
  const digits = text.trim();
  if (!/^\d{1,6}$/.test(digits)) return undefined;
  const limit = Number(digits);
  return limit <= maxPinned ? limit : undefined;
}

/** As the server takes it. */
export const maxPinned = 100_000;
