import { logOf, placeLogs } from "../../../src/sessions/log/placement.ts";
import type { ServerProcess, SessionFleet } from "./fleet.ts";
import { until } from "../until.ts";

let sessions = 0;

/**
 * A new session that one of these servers owns and keeps: its log is where it belongs, so that it isn't
 * handed over in the middle of a test.
 */
export async function sessionAt(
  fleet: SessionFleet,
  servers: readonly ServerProcess[],
  agent: string | null,
): Promise<{ session: string; owner: ServerProcess }> {
  const found = await until("a log is where it belongs", async () => {
    const owners = await fleet.owners();
    const pods = fleet.servers.map(({ podId }) => podId).toSorted();
    const desired = placeLogs(owners.length, pods);
    const logId = owners.findIndex(
      (owner, at) => owner === desired[at] && servers.some(({ podId }) => podId === owner),
    );
    if (logId < 0) return undefined;
    return { logId, owner: fleet.serverOf(owners[logId]!)!, logs: owners.length };
  });
  const session = await sessionIn(fleet, found, agent);
  return { session, owner: found.owner };
}

/** A new session in one of so many logs. */
export async function sessionIn(
  fleet: SessionFleet,
  { logId, logs }: { logId: number; logs: number },
  agent: string | null,
): Promise<string> {
  for (;;) {
    const session = `cast-${++sessions}`;
    if (logOf(session, logs) !== logId) continue;
    await fleet.open(session, agent);
    return session;
  }
}

/** What the store has of a session. */
export async function textsIn(fleet: SessionFleet, session: string): Promise<string[]> {
  const found = (await fleet.stored()).find((each) => each.session === session);
  return found?.entries.map(({ text }) => text) ?? [];
}
