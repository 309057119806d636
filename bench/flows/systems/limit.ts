import { connect } from "../../../src/index.ts";
import { sql } from "../../../src/store/sql.ts";
import { openBare } from "../../systems/limit.ts";
import { runWithBare } from "./limit-runs.ts";
import type { FlowSystem } from "./system.ts";

type LimitSettings = { connections?: number };

/** Bare `pg`: our rows in our tables, every commit one round trip. */
export const system: FlowSystem = {
  async open(url, { connections = 2 }: LimitSettings, entered) {
    const flotilla = connect(url);
    await flotilla.ping();
    await flotilla.close();
    const opened = await Promise.all(Array.from({ length: connections }, () => openBare(url)));
    // The tables are empty when statements are planned, and would be read from end to end ever after.
    for (const bare of opened) {
      await bare.commit([sql`set enable_seqscan = off`, sql`set enable_hashjoin = off`]);
    }
    return runWithBare(opened, entered);
  },
};
