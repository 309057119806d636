import { FlotillaError, hasCode, messageOf } from "../../base/errors.ts";
import { check } from "../../base/schema.ts";
import { gateOf } from "../../tasks/concurrency/limits.ts";
import type { Running } from "../../tasks/run/attempt.ts";
import type { Machine } from "../machine.ts";

/** The limit that a run falls under which was started by somebody who had only its flow's name. */
export function scopeOf(
  machine: Machine,
  { name, payload, run }: Running["claim"],
): string | undefined {
  const { queue, concurrency } = machine;
  if (queue === undefined && concurrency === undefined) return undefined;
  try {
    const input: unknown = JSON.parse(payload);
    const { tenant } = run!;
    const gate = gateOf({ name, queue, concurrency, input, concurrencyKey: undefined, tenant });
    return gate?.group ?? undefined;
  } catch {
    // What is wrong with the input is told when the run begins.
    return undefined;
  }
}

export type Input = { readonly value: unknown } | { readonly error: unknown };

/** The input of a claimed run, as its schema makes it, or why there is none. */
export async function readInput(machine: Machine, claim: Running["claim"]): Promise<Input> {
  const what = `the stored input of "${claim.name}"`;
  try {
    let stored: unknown;
    try {
      stored = JSON.parse(claim.payload);
    } catch (cause) {
      throw new FlotillaError("invalid_input", `${what} isn't JSON`, { cause });
    }
    return { value: await check(machine.input, stored, what, "invalid_input") };
  } catch (error) {
    return { error };
  }
}

/** What the store, or the check of a child, has refused of a run, as an error of the transition. */
export function refusal(error: unknown, refusals: number): FlotillaError {
  const why = refusals === 1 ? messageOf(error) : "the pod's log says why";
  const code = hasCode(
    error,
    "invalid_input",
    "invalid_option",
    "payload_too_large",
    "payload_too_deep",
  )
    ? (error as FlotillaError).code
    : "payload_not_storable";
  return new FlotillaError(code, `what is to be stored of the run was refused: ${why}`);
}
