import { describe, expect, test } from "vitest";
import type { RecordedChange } from "flotilla";
import { createFleet, storeKinds } from "../harness.ts";
import { until } from "../until.ts";
import type { Transition } from "../witness.ts";

const tasks = 60;
const ended = ["completed", "failed", "cancelled"];
const config = { changes: { keepMs: 3_600_000 } };

describe.each(storeKinds)("on %s, changes under kills", (on) => {
  test("are all told to a reader, in the order of each task, as the store has committed them", async () => {
    const fleet = await createFleet({ on });
    const { flotilla } = fleet;
    const first = await fleet.start({ config });
    const { cursor } = await flotilla.changes.page({ after: "now" });
    const seen: RecordedChange[] = [];
    const stop = new AbortController();
    const following = (async () => {
      for await (const change of flotilla.changes({ after: cursor, signal: stop.signal })) {
        seen.push(change);
      }
    })();
    const enqueued = await flotilla.enqueueMany(
      "work",
      Array.from({ length: tasks }, (_, at) => ({ ms: at % 20, failures: at % 3 === 0 ? 1 : 0 })),
    );
    const ids = enqueued.map(({ taskId }) => taskId);
    const second = await fleet.start({ config });
    await until("some are done", async () => seen.some(({ change }) => change === "completed"));
    await first.kill();
    // It has nothing of it in its config, and records all the same.
    await fleet.start();
    await second.kill();
    await until("all are told to be done", async () =>
      ids.every((id) => changesIn(seen, id).at(-1) === "completed"),
    );
    stop.abort();
    await following;
    const committed = await fleet.transitions();
    for (const id of ids) {
      const expected = expectedOf(committed.filter((each) => each.task === id));
      expect(changesIn(seen, id)).toEqual(["created", ...expected]);
    }
  });
});

function changesIn(seen: readonly RecordedChange[], id: string): string[] {
  return seen.filter((change) => change.id === id).map(({ change }) => change);
}

/** What is to be told of the commits that the witness has seen. */
function expectedOf(transitions: readonly Transition[]): string[] {
  let [failures, deaths] = [0, 0];
  return transitions
    .toSorted((one, other) => one.seq - other.seq)
    .flatMap((each) => {
      const isRetried = each.failures > failures || each.deaths > deaths;
      ({ failures, deaths } = each);
      if (ended.includes(each.to)) return each.from === each.to ? [] : [each.to];
      return isRetried ? ["retried"] : [];
    });
}
