import process from "node:process";
import { createInterface } from "node:readline/promises";
import type { FollowHooks } from "../../../base/clock.ts";
import { FlotillaError, hasCode } from "../../../base/errors.ts";
import { printNotice } from "../../output.ts";
import { startProgressBar } from "../../progress.ts";
import type { StopSignals } from "../../signals.ts";

// As shells have it for a program that was interrupted.
const interrupted = 130;

/** Asks for confirmation on a terminal. Elsewhere it is refused, with what to do instead. */
export async function confirm({
  question,
  refusal,
}: {
  readonly question: string;
  readonly refusal: string;
}): Promise<void> {
  if (!process.stdin.isTTY) throw new FlotillaError("invalid_option", refusal);
  const ask = createInterface({ input: process.stdin, output: process.stderr });
  const answer = await ask.question(`${question} [y/N] `).finally(() => ask.close());
  if (/^y(es)?$/i.test(answer.trim())) return;
  throw new FlotillaError("cancelled", "nothing was changed");
}

/**
 * Shows the progress of what the leader does until it has ended. A signal only ends the display: then the
 * notice is printed, and nothing is returned.
 */
export async function showUntilEnded<Item>(
  follow: (options: Required<FollowHooks<Item>>) => Promise<Item>,
  {
    lineOf,
    goesOn,
    signals,
  }: {
    readonly lineOf: (item: Item) => string;
    readonly goesOn: string;
    readonly signals: StopSignals;
  },
): Promise<Item | undefined> {
  const progress = startProgressBar();
  const enough = new AbortController();
  void signals.received.then(() => enough.abort());
  try {
    return await follow({
      signal: enough.signal,
      onProgress: (each) => progress.show(lineOf(each)),
    });
  } catch (error) {
    if (!enough.signal.aborted || !hasCode(error, "cancelled")) throw error;
    printNotice(goesOn);
    process.exitCode = interrupted;
    return undefined;
  } finally {
    progress.end();
  }
}
