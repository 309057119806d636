import { dayMs } from "../../base/durations.ts";
import { FlotillaError } from "../../base/errors.ts";
import { checkChoice, checkNumber, checkOptions } from "../../base/options.ts";
import type { CompactorFunction } from "./function.ts";
import { checkUrlSource, type UrlOptions } from "./sources.ts";
import type { CompactionSpec } from "./spec.ts";

/** How what was said is summed up when it gets long. */
export type CompactionOptions = {
  /** `auto` (the default) does it when it is due, `manual` only says in the session that it is. */
  when?: "auto" | "manual";
  /** What a conversation may take of the model's context. Default 50,000. */
  tokenBudget?: number;
  /** The share of that at which it is due. Default 0.7. */
  triggerRatio?: number;
  /** The longest that it may take. Default 60 seconds. */
  deadlineMs?: number;
} & (({ fn?: undefined } & UrlOptions) | { fn: CompactorFunction; url?: undefined });

const urlNames = ["url", "headers", "secret", "allowPrivate"];

export function checkCompaction(agent: string, given: CompactionOptions): CompactionSpec {
  const what = `${agent}: compaction`;
  checkOptions(what, given, [
    "when",
    "tokenBudget",
    "triggerRatio",
    "deadlineMs",
    ...(given?.fn === undefined ? urlNames : []),
    "fn",
  ]);
  const { when = "auto", tokenBudget = 50_000, triggerRatio = 0.7, deadlineMs = 60_000 } = given;
  checkChoice(`${what}.when`, when, ["auto", "manual"]);
  checkNumber(`${what}.tokenBudget`, tokenBudget, { min: 1, max: 1e9 });
  checkNumber(`${what}.triggerRatio`, triggerRatio, { min: 0.01, max: 1, whole: false });
  checkNumber(`${what}.deadlineMs`, deadlineMs, { min: 1, max: dayMs });
  return { when, tokenBudget, triggerRatio, deadlineMs, source: sourceOf(what, given) };
}

function sourceOf(what: string, given: CompactionOptions): CompactionSpec["source"] {
  if (given.fn === undefined) {
    if (given.url === undefined) {
      throw new FlotillaError("invalid_option", `${what} needs a \`url\` or a \`fn\``);
    }
    return { type: "url", ...checkUrlSource(what, given) };
  }
  if (typeof given.fn !== "function") {
    throw new FlotillaError("invalid_option", `${what}.fn must be a function`);
  }
  return { type: "function", run: given.fn };
}
