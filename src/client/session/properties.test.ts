import fc from "fast-check";
import { beforeAll, describe, expect, test } from "vitest";
import { movableClock } from "../../base/contract/movable-clock.ts";
import { between, seededRandom } from "../../base/random.ts";
import type { Entry } from "../../protocol/message.ts";
import { viewOf } from "../../protocol/view.ts";
import { createClient, type SessionEvent } from "../index.ts";
import { loadLazyModule } from "./view.ts";
import { calm, type Faults } from "../contract/simulated-network.ts";
import { simulateServer } from "../contract/simulated-server.ts";

const stormy: Faults = {
  closedDoor: 0.2,
  cut: 0.02,
  halfOpen: 0.01,
  doubled: 0.2,
  skipped: 0.03,
  refused: 0.15,
};
const sessions = ["a", "b"];

beforeAll(() => loadLazyModule());

describe("a client on a network that loses everything but order", () => {
  test(
    "sees entries 1…n, each once, and stores what it sends once and in order",
    { timeout: 300_000 },
    async () => {
      await fc.assert(fc.asyncProperty(fc.integer({ min: 1, max: 2 ** 31 }), run), {
        numRuns: 60,
        endOnFailure: true,
      });
    },
  );
});

async function run(seed: number): Promise<void> {
  const clock = movableClock();
  const random = seededRandom(seed);
  const server = simulateServer({ clock, random: seededRandom(seed + 1) });
  const { WebSocket, fetch } = server;
  const network = { isOnline: () => true, onChange: () => () => {} };
  const token = () => "a token";
  const ids = seededRandom(seed + 2);
  const newId = () => `x${ids.uint32()}`;
  const client = createClient({
    url: "http://sim",
    WebSocket,
    fetch,
    clock,
    network,
    token,
    newId,
    random: seededRandom(seed + 3),
  });
  const watches = sessions.map((session) => watch(session));
  for (const [at, session] of sessions.entries()) client.session(session).on(watches[at]!.take);
  const acked: { session: string; id: string; seq: number }[] = [];
  const asked = new Map<string, string[]>(sessions.map((session) => [session, []]));
  let unsettled = 0;
  let sent = 0;

  const act = (session: string): void => {
    switch (between(random, 0, 15)) {
      case 0:
        return server.end(1001);
      case 1:
        return server.fail(session);
      case 2:
        server.isUp = false;
        return server.end(1001);
      case 3:
        server.isUp = true;
        return server.turn(session);
      case 4:
        return server.endTurn(session);
      case 5: {
        const count = between(random, 0, server.log(session).length);
        // A message that is sent again may get the place in the restored log that it had before. Then only
        // the name of the log tells that what is before it is another's.
        const sendsAgain = client.session(session).get().unsent.length > 0;
        server.restore(session, count, between(random, 0, 1) === 0 || sendsAgain);
        // What was acked since the back-up was made is gone with it, as everything is.
        for (let at = acked.length - 1; at >= 0; at--) {
          if (acked[at]!.session === session && acked[at]!.seq > count) acked.splice(at, 1);
        }
        return;
      }
      case 6:
        server.expiresInMs = between(random, 0, 1) === 0 ? undefined : 20_000;
        // A token that was just got is good for a while.
        return server.end(4401, 3_000);
      case 7:
        return server.end([4408, 4429][between(random, 0, 1)]!);
      case 8:
        server.write(session, `bob ${++sent}`);
        return;
      case 9:
      case 10:
      case 11:
        server.isUp = true;
        return server.writeChunk(session);
      default: {
        const id = `ada ${++sent}`;
        unsettled++;
        asked.get(session)!.push(id);
        const restored = server.log(session);
        client
          .session(session)
          .send(id, { id })
          .then(({ seq }) => {
            if (server.log(session)[seq - 1]?.messageId === id) acked.push({ session, id, seq });
            else if (server.log(session) === restored) throw new Error(`${id} isn't stored`);
          })
          .catch((error: unknown) => server.complaints.push(String(error)))
          .finally(() => unsettled--);
      }
    }
  };

  server.faults = stormy;
  for (let round = 0; round < 80; round++) {
    act(sessions[between(random, 0, sessions.length - 1)]!);
    await clock.advance(
      between(random, 0, 4) === 0 ? between(random, 0, 30_000) : between(random, 0, 300),
    );
  }
  server.faults = calm;
  server.isUp = true;
  for (const session of sessions) server.endTurn(session);
  await clock.advance(120_000);
  // That the last one was left out is only seen by the next.
  for (const session of sessions) server.write(session, "the last");
  await clock.advance(60_000);

  expect(unsettled).toBe(0);
  expect(server.complaints).toEqual([]);
  for (const [at, session] of sessions.entries()) {
    const log = server.log(session);
    const snapshot = client.session(session).get();
    expect(watches[at]!.complaints).toEqual([]);
    expect(watches[at]!.seen).toEqual(log);
    expect(snapshot).toMatchObject({ status: "live", lastSeq: log.length, unsent: [] });
    expect(snapshot.messages).toEqual(viewOf(log));
    const stored = log.map(({ messageId }) => messageId);
    expect(new Set(stored).size).toBe(stored.length);
    const own = stored.filter((id) => id.startsWith("ada"));
    expect(own).toEqual(asked.get(session)!.filter((id) => own.includes(id)));
    const ackedHere = acked.filter((each) => each.session === session);
    expect(ackedHere.filter(({ id, seq }) => stored[seq - 1] !== id)).toEqual([]);
  }
  client.close();
}

/** A reader that relies on the promises of events, and notes each that is broken. */
function watch(session: string) {
  const complaints: string[] = [];
  let seen: Entry[] = [];
  let answer: { epoch: number; attempt: number; text: string } | undefined;
  return {
    complaints,
    get seen() {
      return seen;
    },
    take(event: SessionEvent) {
      if (event.type === "reset") seen = [];
      if (event.type === "entry") {
        if (event.entry.seq !== seen.length + 1)
          complaints.push(`${session}: ${event.entry.seq} behind ${seen.length}`);
        seen.push(event.entry);
      }
      if (event.type !== "chunks") return;
      const { epoch, attempt, fromStart, chunks } = event;
      if (fromStart) answer = { epoch, attempt, text: "" };
      else if (answer?.epoch !== epoch || answer.attempt !== attempt)
        complaints.push(`${session}: chunks of ${epoch}/${attempt} without a start`);
      for (const { delta } of chunks) if (delta) answer!.text += delta as string;
      const words = answer!.text.split(" ").filter(Boolean);
      if (words.some((word, at) => word !== `${at + 2}`))
        complaints.push(`${session}: ${answer!.text} has a gap`);
    },
  };
}
