import type { Clock } from "../../base/clock.ts";
import { FlotillaError, messageOf } from "../../base/errors.ts";

const answerLimitMs = 5_000;
/** Far above what a server says of itself. */
const maxPageChars = 16 * 1024 * 1024;

/** Reads what a NATS server says of itself, such as `/varz` at its monitoring address. */
export async function readMonitor(address: string, { clock }: { clock: Clock }): Promise<unknown> {
  const given = new AbortController();
  const cancel = clock.after(answerLimitMs, () => given.abort(new Error("no answer in time")));
  try {
    const answer = await fetch(address, { signal: given.signal });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    if (text.length > maxPageChars) throw new Error("the answer is too long");
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw new FlotillaError(
      "unavailable",
      `no NATS server says anything of itself at ${address} (${reasonOf(error)}): set \`http\` in the server's config, and its address in nats.monitor`,
      { cause: error },
    );
  } finally {
    cancel();
  }
}

/** What `fetch` says of a failure is in its cause. */
function reasonOf(error: unknown): string {
  const { cause } = error as { cause?: { code?: string } };
  return cause?.code ?? messageOf(error, 200);
}
