import process from "node:process";
import { type PodEvent, assemblePod, type Pod } from "../../src/runtime/pod.ts";
import { type Config, resolveConfig } from "../../src/runtime/config.ts";
import { systemClock } from "../../src/base/clock.ts";
import { FlotillaError } from "../../src/base/errors.ts";
import { uuidv7 } from "../../src/base/ids.ts";
import { systemRandom } from "../../src/base/random.ts";
import { createVitalSigns, startHeartbeatThread } from "../../src/pods/heartbeat-thread.ts";
import type { Heartbeat } from "../../src/pods/heartbeat.ts";
import type { Database } from "../../src/store/database.ts";
import { openStore } from "../../src/store/open.ts";
import { render, type Statement } from "../../src/store/sql.ts";
import { sqliteDialect } from "../../src/store/sqlite/dialect.ts";

/** A place between the store and the pod where a fault hits. */
export type Gate =
  /** Nowhere: only the heart is to be stopped. */
  "none" | StopGate | LossGate;

/** Where everything stops for good. */
type StopGate =
  /** A claim has been committed, and its answer is on the way. */
  | "claim committed"
  /** An attempt has ended, and its finish hasn't been sent. */
  | "finish not sent"
  /** A finish has been committed, and its answer is on the way. */
  | "finish committed";

/** Where one answer is lost, and the pod goes on without knowing. */
type LossGate =
  /** The first claim that took something was committed. */
  | "claim answer lost"
  /** The first claim gets to the store only after the pod has given it up. */
  | "claim comes late"
  /** The first finish was committed. */
  | "finish answer lost";

/** A pod as `startPod` makes it, but with gates around its store and a heartbeat that can be stopped. */
export async function startGatedPod(
  config: Config,
  options: {
    gate: Gate;
    onReached: (gate: Gate) => void;
    onEvent: (event: PodEvent) => void;
  },
): Promise<{ pod: Pod; stopHeart: () => Promise<void> }> {
  const settings = resolveConfig(config);
  const { gate, onReached, onEvent } = options;
  const store = await openStore(settings.store, settings);
  const database = withGate(store, gate, onReached);
  const ids = uuidv7(systemClock, systemRandom);
  const signs = createVitalSigns();
  let heart: Heartbeat | undefined;
  const pod = await assemblePod(settings, {
    podId: ids.next(),
    database,
    clock: systemClock,
    random: systemRandom,
    ids,
    log: settings.log!,
    startHeartbeat(hooks) {
      const metadata = { pid: process.pid };
      heart = startHeartbeatThread({ ...hooks, store: settings.store, signs, metadata });
      return heart;
    },
    reportAlive: signs.reportAlive,
    abandonCallsUpTo: signs.abandonCallsUpTo,
    onEvent,
  });
  return { pod, stopHeart: async () => heart?.stop() };
}

function withGate(store: Database, gate: Gate, onReached: (gate: Gate) => void): Database {
  const stopHere = () => {
    onReached(gate);
    return new Promise<never>(() => {});
  };
  let lost = false;
  const loseAnswer = () => {
    lost = true;
    onReached(gate);
    throw new FlotillaError("unknown_outcome", "the answer was lost, as ordered");
  };
  let sendLate: (() => Promise<unknown>) | undefined;
  let landed = Promise.resolve();
  let onLanded = () => {};

  return {
    ...store,
    async write(statements, options) {
      const texts = statements.map(textOf);
      const claims = texts.some((text) => text.includes("set status = 'claimed'"));
      const finishes = texts.some((text) => /set\s+status = (done\.status|'completed')/.test(text));
      const releases = texts.some((text) => text.includes("claim_floor = excluded.claim_floor"));
      if (finishes && gate === "finish not sent") return stopHere();
      if (claims && gate === "claim comes late") {
        if (!lost) {
          landed = new Promise((resolve) => (onLanded = resolve));
          sendLate = () => store.write(statements, options);
          return loseAnswer();
        }
        // Otherwise a newer claim could leave the late one nothing to take.
        await landed;
      }
      const tables = await store.write(statements, options);
      if (releases && sendLate) {
        await sendLate();
        sendLate = undefined;
        onLanded();
      }
      const claimed = claims && tables.some((table) => table.some((row) => "payload" in row));
      if (claimed && gate === "claim committed") return stopHere();
      if (claimed && gate === "claim answer lost" && !lost) return loseAnswer();
      if (finishes && gate === "finish committed") return stopHere();
      if (finishes && gate === "finish answer lost" && !lost) return loseAnswer();
      return tables;
    },
  };
}

const dialect = sqliteDialect({ jsonbEach: false });

function textOf(statement: Statement): string {
  return render(statement, dialect).text.replaceAll(/\s+/g, " ");
}
