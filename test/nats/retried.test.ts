import { expect, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { FlotillaError } from "../../src/base/errors.ts";
import { uuidv7 } from "../../src/base/ids.ts";
import { silentLogger } from "../../src/base/log.ts";
import { seededRandom } from "../../src/base/random.ts";
import { headOf, messageRecord, take } from "../../src/sessions/contract/journal-harness.ts";
import { simulateStreams } from "../../src/sessions/contract/simulated-streams.ts";
import { createStreamLog } from "../../src/sessions/log/jetstream/log.ts";
import { usualLogBytes } from "../../src/sessions/log/jetstream/streams.ts";
import { retried, retriedLog } from "./retried.ts";

const clock = systemClock;

test("what isn't answered in time is sent again until it is known, and is stored once", async () => {
  const random = seededRandom(1);
  const servers = simulateStreams({ clock, random });
  const log = retriedLog(
    createStreamLog({
      engine: servers.connect(),
      deployment: { namespace: "again", clusterId: "c1", replicas: 3, maxLogBytes: usualLogBytes },
      clock,
      random,
      ids: uuidv7(clock, random),
      log: silentLogger,
      maxRecordBytes: 1_000_000,
    }),
  );
  await log.create(1);
  servers.next = "after";
  let head = await take(log, 0);
  for (const trouble of ["before", "after", "false_wrong"] as const) {
    servers.next = trouble;
    head = headOf(await log.commit(head, messageRecord("s", head.offset)));
  }
  servers.next = "after";
  head = headOf(await log.mark(head, { archived: 2, busy: [] }));
  expect(head.offset).toBe(5);
  const [stream] = servers.names.filter((name) => servers.stored(name).length > 1);
  expect(servers.stored(stream!)).toHaveLength(5);
  const late = await log.commit({ ...head, offset: 2 }, messageRecord("s", 9));
  expect(late).toEqual({ type: "fenced" });
});

test("what can't be known later is told at once", async () => {
  let calls = 0;
  const failing = retried({
    commit: async () => {
      calls++;
      throw new FlotillaError("overloaded", "full");
    },
    name: () => "a log",
  });
  await expect(failing.commit()).rejects.toMatchObject({ code: "overloaded" });
  expect([calls, failing.name()]).toEqual([1, "a log"]);
});
