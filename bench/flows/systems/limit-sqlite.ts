import { setImmediate as breathe } from "node:timers/promises";
import { connect } from "../../../src/index.ts";
import { openBare } from "../../tasks/bare.ts";
import { runWithBare } from "./limit-runs.ts";
import type { FlowSystem } from "./system.ts";

/** Bare `node:sqlite` on one thread, with `synchronous=FULL`. */
export const system: FlowSystem = {
  async open(url, _settings, entered) {
    const flotilla = connect(url);
    await flotilla.ping();
    await flotilla.close();
    const bare = openBare(url.slice("sqlite:".length));
    const commit: Parameters<typeof runWithBare>[0][number]["commit"] = async (statements) => {
      const tables = bare.commit(statements);
      // It never waits, so others must be given their turn.
      await breathe();
      return tables;
    };
    return runWithBare([{ commit }], entered);
  },
};
