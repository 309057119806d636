/** One seed: pods that fight for logs on JetStream, its troubles, a time of quiet, and the verdict. */
import { createHash } from "node:crypto";
import type { Clock } from "../../../src/base/clock.ts";
import { messageOf } from "../../../src/base/errors.ts";
import { type Ids, uuidv7 } from "../../../src/base/ids.ts";
import { silentLogger } from "../../../src/base/log.ts";
import { between, fraction, seededRandom } from "../../../src/base/random.ts";
import {
  noStreamTroubles,
  simulateStreams,
  type StreamTroubles,
} from "../../../src/sessions/contract/simulated-streams.ts";
import type { StoredMessage } from "../../../src/sessions/log/jetstream/engine.ts";
import { createStreamLog } from "../../../src/sessions/log/jetstream/log.ts";
import type { Report } from "../report.ts";
import { createScheduler } from "../scheduler.ts";
import type { Violation } from "../world.ts";
import { createLedger, logStreamForm } from "./ledger.ts";
import { type Fighter, startFighter } from "./pod.ts";

const logs = 2;
const quietMs = 10_000;
/** Small enough that logs are full now and then. */
const smallBytes = 24_000;

export async function runStreamSeed(seed: number, { keepTrace = false } = {}): Promise<Report> {
  const random = seededRandom(seed);
  const scheduler = createScheduler({ keepTrace });
  const counts = new Map<string, number>();
  const violations: Violation[] = [];
  const count = (what: string): void => {
    counts.set(what, (counts.get(what) ?? 0) + 1);
    scheduler.note(what);
  };
  const violate = (invariant: string, what: string): void => {
    violations.push({ invariant, what });
    scheduler.note(`violated ${invariant}: ${what}`);
  };
  const clock: Clock = {
    now: () => 1_700_000_000_000 + Math.floor(scheduler.nowMs),
    monotonic: () => scheduler.nowMs,
    after: (delayMs, callback) => scheduler.after(delayMs, callback),
  };
  const ids: Ids = uuidv7(clock, random);
  const deployment = {
    namespace: "simulated",
    clusterId: "cluster",
    replicas: 3,
    maxLogBytes: fraction(random) < 0.2 ? smallBytes : 10_000_000,
  } as const;
  const ledger = createLedger({ deployment, violate, count, note: scheduler.note });
  const servers = simulateStreams({
    clock,
    random,
    onEvent: count,
    onStored(stream, message) {
      scheduler.note(`${stream} ${message.sequence} ${digestOf(message)}`);
      ledger.stored(stream, message);
    },
  });
  const fighters = new Map<number, Fighter>();
  let isQuiet = false;
  let made = 0;
  const fill = (place: number): void => {
    const podId = `p${++made}`;
    const fighter = startFighter({
      podId,
      clock,
      random,
      ledger,
      count,
      log: (engine) =>
        createStreamLog({
          engine,
          deployment,
          clock,
          random,
          ids,
          log: silentLogger,
          maxRecordBytes: 100_000,
        }),
      engine: servers.connect(),
      ids,
      logs,
      isQuiet: () => isQuiet,
      onThrown: (error) => violate("thrown", messageOf(error)),
    });
    fighters.set(place, fighter);
  };

  const faultsMs = between(random, 5_000, 20_000);
  const usual = streamTroublesOf(() => fraction(random));
  const start = async (): Promise<void> => {
    const first = createStreamLog({
      engine: servers.connect(),
      deployment,
      clock,
      random,
      ids,
      log: silentLogger,
      maxRecordBytes: 100_000,
    });
    await first.create(logs);
    servers.troubles = usual;
    const places = between(random, 2, 3);
    for (let place = 0; place < places; place++) fill(place);
    const strike = (): void => {
      if (isQuiet) return;
      const places = [...fighters.keys()];
      const place = places[between(random, 0, places.length - 1)]!;
      const kind = fraction(random);
      if (kind < 0.15) {
        count("fault: crash");
        fighters.get(place)!.crash();
        scheduler.after(between(random, 100, 2_000), () => fill(place));
      } else if (kind < 0.6) {
        count("fault: pause");
        fighters.get(place)!.pause(between(random, 100, 4_000));
      } else if (kind < 0.8) servers.depose();
      else {
        const names = servers.names.filter((name) => logStreamForm.test(name));
        servers.stray(names[between(random, 0, names.length - 1)]!);
      }
      scheduler.after(between(random, 300, 4_000), strike);
    };
    scheduler.after(between(random, 300, 4_000), strike);
    scheduler.after(faultsMs, () => {
      isQuiet = true;
      servers.troubles = noStreamTroubles;
      ledger.beginQuiet();
    });
  };
  await start();
  await scheduler.runUntil(() => violations.length > 0 || scheduler.nowMs > faultsMs + quietMs);
  for (const fighter of fighters.values()) fighter.crash();
  if (violations.length === 0) ledger.judge();
  return {
    seed,
    violations,
    hash: scheduler.trace.hash(),
    trace: scheduler.trace.lines,
    counts,
    virtualMs: scheduler.nowMs,
  };
}

/** Each trouble is there or not, so that seeds differ in kind. `share`: of what is usual. */
export function streamTroublesOf(draw: () => number, share = 1): StreamTroubles {
  const some = (most: number): number => (draw() < 0.5 ? 0 : draw() * most * share);
  return {
    delayMs: draw() < 0.3 ? 2 : 60,
    before: some(0.1),
    after: some(0.15),
    late: some(0.1),
    falseWrong: some(0.15),
    doubled: some(0.1),
    deposed: some(0.05),
    behind: some(0.15),
    unread: some(0.1),
    holed: some(0.3),
  };
}

function digestOf({ body, headers }: StoredMessage): string {
  const hash = createHash("sha256").update(JSON.stringify(headers)).update(body);
  return hash.digest("hex").slice(0, 8);
}
