import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { Database } from "../../store/database.ts";
import type { AgentSpec } from "./spec.ts";
import { storedByNames } from "./sql.ts";

export type ShadowedParts = {
  database: Database;
  log: Logger;
  code: ReadonlyMap<string, AgentSpec>;
};

/**
 * Says in the log which stored agents aren't used, because this pod has one of that name in code. They
 * can only have been made while no pod had it, so nobody was told then.
 */
export async function warnOfShadowed({ database, log, code }: ShadowedParts): Promise<void> {
  if (code.size === 0) return;
  try {
    for (const { tenant, name } of await database.read(storedByNames([...code.keys()], shownMost)))
      log.warn({ agent: name, tenant }, "a stored agent isn't used: code has one of that name");
  } catch (error) {
    log.debug({ error: messageOf(error) }, "stored agents weren't looked at");
  }
}

/** More would only fill the log: who has one of each tenant's sees what is meant. */
const shownMost = 20;
