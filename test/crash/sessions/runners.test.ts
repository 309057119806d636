import { afterAll, beforeAll, beforeEach, describe, expect, inject, test } from "vitest";
import { openFleet } from "../fleet.ts";
import { sessionAt } from "./cast.ts";
import { sessionViolations } from "./checkers.ts";
import type { Client } from "./client.ts";
import { type ServerProcess, type SessionFleet, sessionFleetOn } from "./fleet.ts";
import { refusals } from "./nemesis.ts";
import { postgresStore } from "../stores.ts";
import { until } from "../until.ts";

const begun = (attempt: number) => `attempt ${attempt}: 0 1 2 3`;

describe("an answer whose runner isn't the owner", () => {
  let fleet: SessionFleet;
  /** Has no agents, so that others make the answers of its sessions. */
  let owner: ServerProcess;
  let ada: Client;

  /** A session of the owner, in which an answer has come to its middle. */
  const cast = async () => {
    const { session } = await sessionAt(fleet, [owner], "local");
    ada.follow(session);
    const text = `hold-${session}`;
    expect(await ada.say(session, text)).toMatchObject({ type: "ok", seq: 1 });
    /** Waits for the middle of a later attempt; one may be lost with a runner that isn't known to be gone. */
    const seesAfter = (earlier: number) =>
      until("an attempt is seen", () => {
        const { attempt = 0, text: seen } = ada.answers(session).at(-1) ?? {};
        return attempt > earlier && seen === begun(attempt) && attempt;
      }) as Promise<number>;
    await seesAfter(0);
    const runner = fleet.serverOf(fleet.calls(session)[0]!.where)!;
    const letGo = () => {
      for (const each of fleet.servers) if (each !== runner) each.open(text);
    };
    const stored = async () =>
      (await fleet.stored()).find((each) => each.session === session)!.entries.slice(1);
    return { session, text, runner, seesAfter, letGo, stored };
  };

  beforeAll(async () => {
    fleet = sessionFleetOn(await openFleet(() => postgresStore(inject("postgresUrl"))));
    owner = await fleet.startServer({ agents: false });
    ada = fleet.client("ada", { pick: () => owner.url, silentMs: Infinity });
  });
  beforeEach(async () => {
    const missing = 3 - fleet.servers.length;
    await Promise.all(Array.from({ length: missing }, () => fleet.startServer()));
    await fleet.open("first", null);
  });
  afterAll(() => fleet.close());

  test("is restarted by another when the runner is killed, and ends right", async () => {
    const { session, text, runner, seesAfter, letGo, stored } = await cast();
    await runner.kill();
    const attempt = await seesAfter(1);
    letGo();
    await until("it is stored", () => ada.entries(session).length === 2);
    const whole = `${begun(attempt)} re ${text}`;
    expect(await stored()).toMatchObject([{ text: whole, epoch: 1, outcome: "completed" }]);
    expect(ada.answers(session)).toEqual([
      { epoch: 1, attempt: 1, text: begun(1) },
      { epoch: 1, attempt, text: whole },
    ]);
    const called = fleet.calls(session).filter(({ event }) => event === "called");
    expect(called.map((call) => call.attempt)).toEqual([1, attempt]);
  });

  test("is refused from a runner that slept, whether the turn is another's now or a later one runs", async () => {
    const same = await cast();
    let later = await cast();
    while (later.runner !== same.runner) {
      for (const each of fleet.servers) each.open(later.text);
      later = await cast();
    }
    const { runner } = same;
    await runner.pauseOutsideWrites();
    const attempts = await Promise.all([same.seesAfter(1), later.seesAfter(1)]);
    later.letGo();
    await until("it is stored", () => ada.entries(later.session).length === 2);
    // The attempt has the same number as the one that is late, and only the turn is another.
    await ada.say(later.session, "hold-later");
    await until("the later turn runs", () => ada.answers(later.session).at(-1)?.epoch === 2);

    for (const { text } of [same, later]) runner.open(text);
    runner.resume();
    const refused = () => fleet.logged(refusals.answer).filter(({ pod }) => pod === runner.podId);
    await until("both were refused", () => {
      const names = new Set(refused().map((line) => line.session));
      return names.has(same.session) && names.has(later.session);
    });
    const wholes = [same, later].map(({ text }, at) => `${begun(attempts[at]!)} re ${text}`);
    expect(await same.stored()).toEqual([]);
    expect(await later.stored()).toMatchObject([{ text: wholes[1] }, { text: "hold-later" }]);

    same.letGo();
    for (const each of fleet.servers) each.open("hold-later");
    await until("both are stored", () => {
      const [one, other] = [same, later].map(({ session }) => ada.entries(session).length);
      return one === 2 && other === 4;
    });
    expect(await same.stored()).toMatchObject([{ text: wholes[0], outcome: "completed" }]);
    expect((await later.stored()).at(-1)).toMatchObject({ text: `${begun(1)} re hold-later` });
    // Nor has any client that follows seen anything of what was refused.
    expect(ada.answers(same.session).at(-1)).toMatchObject({ epoch: 1, text: wholes[0] });
  });

  test("that is stopped while its runner dies ends once, and the next message is answered", async () => {
    const { session, runner, stored } = await cast();
    const [done] = await Promise.all([ada.stop(session), runner.kill()]);
    // What was said, the stop, and the answer as far as it came.
    await until("it has ended", () => ada.entries(session).length === 3);
    // The stop may have come to its runner before the kill did.
    const ended = (await stored()).at(-1);
    expect([done, ended]).toMatchObject([true, { epoch: 1, outcome: "stopped" }]);
    const next = ada.say(session, "and-now");
    expect(await next).toMatchObject({ type: "ok", seq: 4 });
    await until("it is answered", () => ada.entries(session).length === 5);
    expect((await stored()).at(-1)).toMatchObject({ outcome: "completed" });
  });

  test("is right in the end, in all of these sessions", async () => {
    const evidence = await fleet.gather();
    expect(evidence.stored.length).toBeGreaterThanOrEqual(5);
    expect(sessionViolations(evidence)).toEqual([]);
  });
});
