/** One seed: pods whose logs are on JetStream, a database behind them that fails, a time of quiet, and the verdict. */
import { messageOf } from "../../../src/base/errors.ts";
import type { Clock } from "../../../src/base/clock.ts";
import { type Ids, uuidv7 } from "../../../src/base/ids.ts";
import { silentLogger } from "../../../src/base/log.ts";
import { between, fraction, seededRandom } from "../../../src/base/random.ts";
import { createMemoryBus } from "../../../src/bus/memory-bus.ts";
import {
  noStreamTroubles,
  simulateStreams,
} from "../../../src/sessions/contract/simulated-streams.ts";
import { createStreamLog } from "../../../src/sessions/log/jetstream/log.ts";
import { migrate } from "../../../src/store/migrate.ts";
import type { Report } from "../report.ts";
import { createScheduler } from "../scheduler.ts";
import { spareDatabase } from "../spare-stores.ts";
import { streamTroublesOf } from "../streams/run.ts";
import type { Violation } from "../world.ts";
import { createLedger } from "./ledger.ts";
import { type ArchivePod, startArchivePod } from "./pod.ts";
import { simulateArchive } from "./store.ts";
import { placeOnStreams } from "../../../src/sessions/log/place.ts";

const logs = 2;
const quietMs = 14_000;
const endingMs = 8_000;
/** So small that a log is trimmed while it is watched. */
const smallBytes = 40_000;

export async function runArchiveSeed(seed: number, { keepTrace = false } = {}): Promise<Report> {
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
  const isSmall = fraction(random) < 0.4;
  const deployment = {
    namespace: "simulated",
    clusterId: "cluster",
    replicas: 3,
    maxLogBytes: isSmall ? smallBytes : 10_000_000,
  } as const;
  const rows = spareDatabase({ now: () => clock.now(), note: () => {} });
  await migrate(rows);
  await placeOnStreams(rows);
  const archive = simulateArchive(rows, { clock, random, count, logs });
  const ledger = createLedger({ deployment, violate, count, note: scheduler.note });
  const servers = simulateStreams({
    clock,
    random,
    onEvent: count,
    onStored: (stream, message) => ledger.stored(stream, message),
  });
  const bus = createMemoryBus();
  const streamOn = (engine: ReturnType<typeof servers.connect>) =>
    createStreamLog({
      engine,
      deployment,
      clock,
      random,
      ids,
      log: silentLogger,
      maxRecordBytes: 20_000,
    });
  const pods = new Map<number, ArchivePod>();
  let isQuiet = false;
  let made = 0;
  const fill = (place: number): void => {
    const podId = `p${++made}`;
    const pod = startArchivePod({
      podId,
      clock,
      random,
      ids,
      logs,
      ledger,
      count,
      database: archive.connect(),
      stream: streamOn,
      engine: servers.connect(),
      bus: bus.connect(podId, { clock }),
      isQuiet: () => isQuiet,
      isEnding: () => scheduler.nowMs > faultsMs + quietMs,
      onThrown: (error) => violate("thrown", messageOf(error)),
    });
    pods.set(place, pod);
  };

  const faultsMs = between(random, 6_000, 20_000);
  await streamOn(servers.connect()).create(logs);
  const troubles = streamTroublesOf(() => fraction(random), 0.5);
  /** In such a seed servers lose what they had acked, and no pod dies with what it has of it. */
  const goesBack = fraction(random) < 0.25;
  // What arrives long after it was sent would fit into what was lost.
  servers.troubles = goesBack ? { ...troubles, late: 0, doubled: 0 } : troubles;
  archive.begin();
  const places = between(random, 2, 3);
  for (let place = 0; place < places; place++) fill(place);
  /** The servers lose the last messages of a log that a pod has. */
  const setBack = (): void => {
    const logId = between(random, 0, logs - 1);
    const messages = between(random, 1, 8);
    const stream = ledger.servedStream(logId);
    if (stream === undefined || ledger.isBack(logId)) return;
    if (servers.stored(stream).length <= messages) return;
    servers.setBack(stream, messages);
    ledger.wentBack(stream);
  };
  /** There is no room for a new stream for a while. */
  const fillStorage = (): void => {
    count("fault: no new stream");
    servers.refusal = { type: "refused", code: 10_047, why: "no storage is left" };
    scheduler.after(between(random, 200, 6_000), () => (servers.refusal = undefined));
  };
  const strike = (): void => {
    if (isQuiet) return;
    const place = between(random, 0, places - 1);
    const kind = fraction(random);
    if (goesBack) {
      if (kind < 0.3) archive.away(between(random, 200, 5_000));
      else if (kind < 0.45) servers.depose();
      else if (kind < 0.6) fillStorage();
      else setBack();
    } else if (kind < 0.25) {
      count("fault: crash");
      const pod = pods.get(place)!;
      pod.crash();
      scheduler.after(between(random, 100, 2_000), () => {
        // All pods may have been replaced since.
        if (pods.get(place) === pod) fill(place);
      });
    } else if (kind < 0.5) {
      count("fault: pause");
      pods.get(place)!.pause(between(random, 100, 4_000));
    } else if (kind < 0.7) archive.away(between(random, 200, 5_000));
    else if (kind < 0.85 && !isSmall) {
      // A backup is restored while no pod runs.
      for (const pod of pods.values()) pod.crash();
      void archive.setBack().then(() => {
        for (const each of pods.keys()) fill(each);
      });
    } else servers.depose();
    scheduler.after(between(random, 300, 3_000), strike);
  };
  scheduler.after(between(random, 300, 3_000), strike);
  scheduler.after(faultsMs, () => {
    isQuiet = true;
    servers.troubles = noStreamTroubles;
    servers.refusal = undefined;
    archive.end();
    ledger.beginQuiet();
  });
  const isOver = () => violations.length > 0 || scheduler.nowMs > faultsMs + quietMs + endingMs;
  await scheduler.runUntil(isOver);
  if (violations.length === 0) await ledger.judge(rows);
  for (const pod of pods.values()) pod.crash();
  await rows.close();
  return {
    seed,
    violations,
    hash: scheduler.trace.hash(),
    trace: scheduler.trace.lines,
    counts,
    virtualMs: scheduler.nowMs,
  };
}
