import type { Fleet } from "../crash/fleet.ts";
import { monotonicMs } from "../crash/ledger.ts";
import { pauseFor } from "../crash/until.ts";
import { converse, makeConversation, shownConversation } from "./frames.ts";
import { judged } from "./judge.ts";
import { firstPass, makeRequest, shownRequest } from "./requests.ts";
import { openWire } from "./wire.ts";
import { openWorld } from "./world.ts";

export type FuzzOptions = {
  readonly seed: number;
  /** How long it goes on, and how many requests it makes at most. */
  readonly seconds: number;
  readonly requests?: number;
  readonly say?: (line: string) => void;
};

export type FuzzReport = {
  readonly requests: number;
  readonly conversations: number;
  /** How often each status was answered, and the routes that never answered with a success. */
  readonly statuses: Readonly<Record<string, number>>;
  readonly neverDone: readonly string[];
  /** How many entries were left. */
  readonly entries: number;
  /** Each with the request to replay. */
  readonly violations: readonly string[];
};

const refillEvery = 300;
// Both take turns, so that one isn't all that there is time for.
const requestsPerConversation = 4;
const sayEveryMs = 30_000;
// The first few say what is wrong.
const maxViolations = 10;

/** Requests and conversations until the time is over, or until enough is wrong. */
export async function runFuzz(fleet: Fleet, options: FuzzOptions): Promise<FuzzReport> {
  const { seed, seconds, requests: maxRequests = Infinity, say = () => {} } = options;
  const world = await openWorld(fleet);
  const wire = openWire(world.server.port);
  const { callers } = world;
  const violations: string[] = [];
  const statuses: Record<string, number> = {};
  const done = new Map<string, boolean>();
  let entries = 0;
  let requests = 0;
  let conversations = 0;
  const untilMs = monotonicMs() + seconds * 1_000;
  // On any machine each route is asked for at least twice.
  const isOver = () =>
    violations.length >= maxViolations ||
    !world.server.alive ||
    requests >= maxRequests ||
    (monotonicMs() > untilMs && requests >= Math.min(2 * firstPass, maxRequests));
  const violate = (what: string, shown: string) =>
    void violations.push(
      `${what}\n  ${shown}\n  npm run soak -- fuzz --seed ${seed} --requests ${requests}`,
    );

  const ask = async (): Promise<void> => {
    let saidMs = monotonicMs();
    for (; !isOver(); requests++) {
      if (requests > 0 && requests % refillEvery === 0) await world.refill();
      const request = makeRequest({ seed, number: requests }, { known: world.known, callers });
      const caller = callers[request.caller]!;
      const isAlone = !request.isWhole;
      const outcome = await wire.send({ ...request, isAlone });
      const watched = await world.watched();
      entries += watched.entries.length;
      const status = outcome.answers[request.at]?.status ?? outcome.end;
      statuses[status] = (statuses[status] ?? 0) + 1;
      const isDone = typeof status === "number" && status >= 200 && status < 300;
      done.set(request.route, isDone || done.get(request.route) === true);
      for (const what of judged(request, outcome, { caller, watched }))
        violate(what, shownRequest(request));
      if (monotonicMs() - saidMs > sayEveryMs) {
        saidMs = monotonicMs();
        say(`${requests} requests, ${conversations} conversations, ${entries} entries`);
      }
    }
  };

  const talk = async (): Promise<void> => {
    for (; !isOver(); conversations++) {
      while (conversations * requestsPerConversation > requests && !isOver()) await pauseFor(2);
      const names = Object.keys(callers);
      const conversation = makeConversation(
        { seed, number: conversations },
        { known: world.known, callers: names },
      );
      const caller = callers[conversation.caller]!;
      for (const what of await converse(conversation, { url: world.server.url, caller }))
        violate(what, shownConversation(conversation));
    }
  };

  await Promise.all([ask(), talk()]).catch((error: unknown) => {
    violations.push(`the fuzz ended early: ${String(error)}`);
  });
  wire.close();
  if (!world.server.alive) {
    const exit = await world.server.exited;
    violations.push(`the server's process ended: ${JSON.stringify(exit)}; see ${fleet.folder}`);
  }
  for (const line of world.faults().slice(0, maxViolations))
    violations.push(`the server has logged a fault of its own: ${line.slice(0, 500)}`);
  const neverDone = [...done].filter(([, isDone]) => !isDone).map(([route]) => route);
  return { requests, conversations, statuses, neverDone, entries, violations };
}
