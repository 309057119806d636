import { describe, expect, test } from "vitest";
import { between, seededRandom } from "../../../src/base/random.ts";
import { installWatch } from "../../fuzz/watch.ts";
import { createFleet, storeKinds } from "../harness.ts";
import { type KeyedServer, startKeyedServer } from "../keyed-server.ts";
import { pauseFor, until } from "../until.ts";
import { faultsOf, makeActs, type SentAct } from "./acts.ts";

const key = "a-key-of-an-operator-that-retries";
const rounds = 10;
// About as long as the acts of a round take.
const killWithinMs = 40;
const answerLimitMs = 30_000;

describe.each(storeKinds)("on %s, acts that are sent until they are answered", (on) => {
  test("have one entry each and are done once, however often servers are killed", async () => {
    const fleet = await createFleet({ on });
    await installWatch(fleet);
    const random = seededRandom(35);
    const start = () => startKeyedServer(fleet, { apiKeys: [{ key, name: "ops", role: "admin" }] });
    const servers: KeyedServer[] = await Promise.all([start(), start()]);
    let lost = 0;

    /** Undefined where there was no answer, or one that says nothing about the act. */
    const send = async ({ url }: KeyedServer, act: SentAct): Promise<number | undefined> => {
      try {
        const answer = await fetch(`${url}${act.path}`, {
          method: act.method,
          headers: {
            Authorization: `Bearer ${key}`,
            "Flotilla-Action": act.actId,
            ...(act.body && { "Content-Type": "application/json" }),
          },
          ...(act.body && { body: JSON.stringify(act.body) }),
          signal: AbortSignal.timeout(answerLimitMs),
        });
        await answer.text();
        return answer.status >= 500 ? undefined : answer.status;
      } catch {
        lost++;
        return undefined;
      }
    };
    const sendUntilAnswered = async (act: SentAct, first: KeyedServer): Promise<void> => {
      const other = servers.find((each) => each !== first)!;
      // An operator that clicks twice is one of the cases.
      const twice = between(random, 0, 2) === 0;
      const [status, again] = await Promise.all([send(first, act), twice && send(other, act)]);
      let answered = status ?? (again || undefined);
      await until(`an answer to ${act.actId}`, async () => {
        answered ??= await send(other, act);
        return answered !== undefined;
      });
      expect({ act: `${act.method} ${act.path}`, answered }).toSatisfy(() =>
        act.done.includes(answered!),
      );
    };

    const all: SentAct[] = [];
    for (let round = 0; round < rounds; round++) {
      const acts = await makeActs(fleet, round);
      all.push(...acts);
      const at = round % servers.length;
      const victim = servers[at]!;
      const killed = pauseFor(between(random, 0, killWithinMs)).then(() => victim.kill());
      await Promise.all([killed, ...acts.map((act) => sendUntilAnswered(act, victim))]);
      servers[at] = await start();
    }

    const faults = await Promise.all(all.map((act) => faultsOf(fleet, act)));
    expect(faults.flat()).toEqual([]);
    const [row] = await fleet.sql(
      "select count(*) as entries from flotilla_audit where actor = 'key/ops'",
    );
    expect(Number(row!["entries"])).toBe(all.length);
    // Else no server was killed while it had something to do.
    expect(lost).toBeGreaterThan(0);
  });
});
