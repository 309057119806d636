import process from "node:process";
import type { PodEvent } from "../../src/runtime/assemble.ts";
import { assemblePod, type Pod } from "../../src/runtime/assemble.ts";
import { type Config, resolveConfig } from "../../src/runtime/config.ts";
import { systemClock } from "../../src/base/clock.ts";
import { uuidv7 } from "../../src/base/ids.ts";
import { systemRandom } from "../../src/base/random.ts";
import { createPulse, startHeartbeatThread } from "../../src/pods/heartbeat-thread.ts";
import type { Heartbeat } from "../../src/pods/heartbeat.ts";
import type { Database } from "../../src/store/database.ts";
import { openStore } from "../../src/store/open.ts";
import { render, type Statement } from "../../src/store/sql.ts";
import { sqliteDialect } from "../../src/store/sqlite/dialect.ts";

/** A place between the store and the pod where everything stops, so that a fault hits right there. */
export type Gate =
  /** Nowhere: only the heart is to be stopped. */
  | "none"
  /** A claim has been committed, and its answer is on the way. */
  | "claim committed"
  /** An attempt has ended, and its finish hasn't been sent. */
  | "finish not sent"
  /** A finish has been committed, and its answer is on the way. */
  | "finish committed";

/** A pod as `startPod` makes it, but with gates around its store and a heart that can be stopped. */
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
  const pulse = createPulse();
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
      heart = startHeartbeatThread({ ...hooks, store: settings.store, pulse, metadata });
      return heart;
    },
    breathe: pulse.breathe,
    raiseFloor: pulse.raiseFloor,
    onEvent,
  });
  return { pod, stopHeart: async () => heart?.stop() };
}

function withGate(store: Database, gate: Gate, onReached: (gate: Gate) => void): Database {
  const stopHere = () => {
    onReached(gate);
    return new Promise<never>(() => {});
  };
  return {
    ...store,
    async write(statements) {
      const claims = statements.some((each) => textOf(each).includes("set status = 'claimed'"));
      const finishes = statements.some((each) => textOf(each).includes("set status = done.status"));
      if (finishes && gate === "finish not sent") return stopHere();
      const tables = await store.write(statements);
      const claimed = claims && tables.some((table) => table.some((row) => "payload" in row));
      if (claimed && gate === "claim committed") return stopHere();
      if (finishes && gate === "finish committed") return stopHere();
      return tables;
    },
  };
}

const dialect = sqliteDialect({ jsonbEach: false });

function textOf(statement: Statement): string {
  return render(statement, dialect).text.replaceAll(/\s+/g, " ");
}
