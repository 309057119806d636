import type { StoredMessage, StreamEngine } from "./engine.ts";

export type OrderedRead = {
  readonly stream: string;
  readonly from: number;
  readonly to: number;
  /** What it rejects with if a server has what is before and behind a message, and no server has that one. */
  readonly lost: (missing: number, found: number) => Error;
};

/** How often a range is asked for again from the same message on. */
const askedAgain = 2;

/**
 * Messages `from` to `to`, in order. Servers send many at once, and some of them may be lost on the way, so that
 * a message that is passed over is asked for again, together with the one before it: a server that has that and
 * not this one has lost it, and one that has neither has trimmed its log, or is asked for the beginning. Only
 * then a message above the one that is next is handed over. May end before `to`: the caller counts.
 */
export async function* readInOrder(
  engine: Pick<StreamEngine, "readFrom" | "read">,
  { stream, from, to, lost }: OrderedRead,
): AsyncGenerator<StoredMessage> {
  let next = from;
  let tries = 0;
  /** In how many answers one after the other the message before it was there, and it wasn't. */
  let holes = 0;
  for (;;) {
    const first = tries === 0 ? next : Math.max(1, next - 1);
    let hasBefore = false;
    let passed: StoredMessage | undefined;
    for await (const stored of engine.readFrom(stream, { from: first, to })) {
      if (stored.sequence > next) {
        passed = stored;
        break;
      }
      if (stored.sequence < next) hasBefore = true;
      else {
        next++;
        tries = holes = 0;
        hasBefore = false;
        yield stored;
      }
    }
    if (!passed) return;
    if (hasBefore) holes++;
    if (tries++ < askedAgain) continue;
    // Its leader is asked, too.
    const found = await engine.read(stream, next);
    if (!found && holes === askedAgain) throw lost(next, passed.sequence);
    next = (found ?? passed).sequence + 1;
    tries = holes = 0;
    yield found ?? passed;
  }
}
