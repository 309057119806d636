import { between, type Random } from "../../../src/base/random.ts";
import { endSomeSessions } from "../server-faults.ts";
import type { ServerProcess, SessionFleet } from "./fleet.ts";
import { pauseFor, until } from "../until.ts";

/** What owners and runners are told that come too late, in the words of their logs. */
export const refusals = {
  record: "session log lost to another pod",
  beat: "session log taken over by another pod",
  answer: "late answer not stored",
} as const;

const faults = {
  kill: 2,
  terminate: 2,
  "pause shortly": 1,
  "pause an owner": 2,
  "pause a runner": 1,
} as const;
export type SessionFault = keyof typeof faults | "end backends" | "kill the store" | "fail over";

export type SessionTorment = {
  readonly fleet: SessionFleet;
  readonly random: Random;
  /** Used by no other client, one for each time that a runner is paused. */
  readonly quiet: readonly string[];
  /** Sessions in which something can be said to an owner that sleeps. */
  readonly sessions: readonly string[];
  /** The database server that the store is on, if it is the storm's own. */
  readonly store?: StoreHarm | undefined;
  readonly say?: (line: string) => void;
};

/** What can be done to a store. Each resolves when there is a server again. */
export type StoreHarm = {
  /** It is gone from one moment to the next, and comes back with what was on its disk. */
  kill(random: Random): Promise<void>;
  /** It is gone for good, and another takes its place. Once at most. */
  failOver?(random: Random): Promise<void>;
};

/** Does each harm to servers as often as it is listed, in a drawn order. Leaves as many as it found. */
export async function tormentServers(torment: SessionTorment): Promise<SessionFault[]> {
  const { fleet, random, say = () => {} } = torment;
  const wanted = fleet.servers.length;
  const alone = wanted === 1;
  const kinds: SessionFault[] = Object.entries(faults).flatMap(([kind, times]) =>
    Array<SessionFault>(times).fill(kind as SessionFault),
  );
  if (fleet.kind === "postgres") kinds.push("end backends", "end backends");
  if (torment.store) kinds.push("kill the store", "kill the store");
  if (torment.store?.failOver) kinds.push("fail over");
  const drawn = kinds.map((kind) => ({ kind, place: random.uint32() }));
  const order = drawn.toSorted((a, b) => a.place - b.place).map(({ kind }) => kind);
  const quiet = [...torment.quiet];

  for (const kind of order) {
    say(kind);
    await harm(kind);
    while (fleet.servers.length < wanted) await started(fleet);
    await pauseFor(between(random, 100, 600));
  }
  return order;

  async function harm(kind: SessionFault): Promise<void> {
    const victim = fleet.servers[between(random, 0, fleet.servers.length - 1)]!;
    switch (kind) {
      case "kill":
        await victim.kill();
        return pauseFor(between(random, 0, 500));
      case "terminate": {
        const { code } = await victim.terminate();
        if (code !== 0) throw new Error(`a server that was told to stop ended with ${code}`);
        return;
      }
      case "pause shortly":
        await victim.pauseOutsideWrites();
        await pauseFor(between(random, 50, 800));
        return victim.resume();
      case "pause an owner":
        return pauseOwner(torment, await ownerIn(torment), alone);
      case "pause a runner":
        return pauseRunner(torment, quiet.shift()!, alone);
      case "end backends":
        for (let left = between(random, 3, 6); left > 0; left--) {
          await fleet.sql(endSomeSessions(2));
          await pauseFor(between(random, 50, 250));
        }
        return;
      case "kill the store":
        return torment.store!.kill(random);
      case "fail over":
        return torment.store!.failOver!(random);
    }
  }
}

/** Some session, and the server that owns its log. */
export async function ownerIn({
  fleet,
  sessions,
  random,
}: Pick<SessionTorment, "fleet" | "sessions" | "random">) {
  return until("one of the servers owns a log", async () => {
    const session = sessions[between(random, 0, sessions.length - 1)]!;
    const server = fleet.serverOf(await fleet.ownerOf(session));
    return server && { session, server };
  });
}

/** It sleeps until others have all its logs. What it is told meanwhile it tries to store when it wakes. */
export async function pauseOwner(
  { fleet }: Pick<SessionTorment, "fleet">,
  { session, server }: { session: string; server: ServerProcess },
  alone: boolean,
): Promise<void> {
  const patient = fleet.client("fay", { pick: () => server.url, silentMs: Infinity });
  await patient.say(session);
  // Its record or its beat, whichever comes first when it wakes. A record is held back on purpose in
  // `fences.test.ts`.
  const refused = () =>
    [refusals.record, refusals.beat].flatMap((each) => fleet.logged(each)).length;
  const before = refused();
  await server.pauseOutsideWrites();
  const late = patient.say(session);
  if (alone) await started(fleet);
  await until("others have its logs", async () => !(await fleet.owners()).includes(server.podId));
  server.resume();
  await until("it was refused", () => refused() > before);
  await late;
  patient.close();
  if (alone) await server.terminate();
}

/** It is paused in the middle of an answer until another pod makes it, and finishes when it resumes. */
export async function pauseRunner(
  { fleet }: Pick<SessionTorment, "fleet">,
  session: string,
  alone: boolean,
): Promise<void> {
  const client = fleet.client("eve");
  const text = `hold-${session}`;
  await client.say(session, text);
  const { where } = await until("it is answered", () => fleet.calls(session)[0]);
  const runner = fleet.serverOf(where)!;
  await runner.pauseOutsideWrites();
  if (alone) await started(fleet);
  await until("another starts over", () =>
    fleet.calls(session).some((call) => call.where !== where),
  );
  runner.open(text);
  runner.resume();
  await until("it has come too late", () =>
    fleet.logged(refusals.answer).some(({ pod }) => pod === where),
  );
  await until("the other has finished", async () => {
    for (const each of fleet.servers) each.open(text);
    return fleet.calls(session).some((call) => call.event === "ended" && call.where !== where);
  });
  client.close();
  if (alone) await runner.terminate();
}

/** Does what a supervisor does: a server that can't start is started again. */
async function started(fleet: SessionFleet): Promise<ServerProcess> {
  for (let tries = 1; ; tries++) {
    try {
      return await fleet.startServer();
    } catch (error) {
      if (tries === 5) throw error;
    }
  }
}
