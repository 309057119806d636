import { hasCode, messageOf } from "../../base/errors.ts";
import type { Database } from "../../store/database.ts";
import { refuseNewer, schemaState } from "../../store/migrate.ts";
import { refuseMarked } from "../../store/promotion-mark.ts";
import { type Check, failed, ok, warn } from "./check.ts";

export async function schemaCheck(database: Database): Promise<Check> {
  const state = await schemaState(database);
  refuseMarked(state.mark);
  refuseNewer(state);
  if (state.version === 0) {
    return warn(
      "schema",
      "there are no tables yet: the first pod creates them, or run `flotilla migrate`",
    );
  }
  if (state.pending.length > 0) {
    return warn(
      "schema",
      `${state.version} is older than ${state.known}: run \`flotilla migrate\``,
    );
  }
  return state.version > state.known
    ? warn("schema", `${state.version} is from a newer release that this one is compatible with`)
    : ok("schema", String(state.version));
}

export async function attempt(name: string, check: () => Promise<Check>): Promise<Check> {
  try {
    return await check();
  } catch (error) {
    const advice = hasCode(error, "internal") ? "cannot be read: " : "";
    return failed(name, advice + messageOf(error));
  }
}

/** Whether the tables that further checks read may be missing. */
export function isSchemaOutdated(schema: Check): boolean {
  return schema.verdict === "fail" || /older|no tables/.test(schema.message);
}
