import { describe, expect, test } from "vitest";
import { createFleet } from "../crash/harness.ts";
import { runFuzz } from "./fuzz.ts";
import { makeConversation } from "./frames.ts";
import { judged } from "./judge.ts";
import { firstPass, makeRequest } from "./requests.ts";
import { canaries, secrets } from "./world.ts";
import { allSpecs } from "../../src/server/openapi.ts";

const seconds = 30;
const seed = 20;

const known = { taskId: ["t1"], session: ["s1"], name: ["mail"] };
const callers = {
  admin: { headers: { Authorization: "Bearer a" }, sees: "all" },
  none: { headers: {}, sees: "none" },
};

describe("a server", () => {
  test("answers whatever it is sent, shows no tenant another's content, and audits every act", async () => {
    const fleet = await createFleet();
    const report = await runFuzz(fleet, { seed, seconds });
    expect(report.violations).toEqual([]);
    expect(report.requests).toBeGreaterThanOrEqual(2 * allSpecs.length);
    expect(report.entries).toBeGreaterThan(0);
  });
});

describe("requests of the fuzz", () => {
  const made = (number: number, by = seed) => makeRequest({ seed: by, number }, { known, callers });

  test("are the same for the same seed, and others for another", () => {
    for (let number = 0; number < 1_000; number++) expect(made(number)).toEqual(made(number));
    const bytes = (by: number) =>
      Array.from({ length: 300 }, (_, number) => made(number, by).bytes.toString("latin1"));
    expect(bytes(1)).not.toEqual(bytes(2));
    const talk = () => makeConversation({ seed, number: 40 }, { known, callers: ["admin"] });
    expect(talk()).toEqual(talk());
  });

  test("are of every route, first as it should be asked, by a caller that may", () => {
    const first = Array.from({ length: firstPass }, (_, number) => made(number));
    expect(first.map(({ route }) => route)).toEqual(allSpecs.map((spec) => spec.operationId));
    expect(first.filter(({ changes, caller }) => changes.length > 0 || caller !== "admin")).toEqual(
      [],
    );
  });
});

describe("the judge of the fuzz", () => {
  const request = makeRequest({ seed, number: 0 }, { known, callers });
  const cancelAt = allSpecs.findIndex(({ operationId }) => operationId === "cancelTask");
  const act = makeRequest({ seed, number: cancelAt }, { known, callers });
  const createAt = allSpecs.findIndex(({ operationId }) => operationId === "createKey");
  const making = makeRequest({ seed, number: createAt }, { known, callers });
  const quiet = { entries: [], changes: [] };
  const viewer = { headers: {}, sees: "acme", payloads: false, isMember: false } as const;
  const reader = { ...viewer, payloads: true };
  const answered = (status: number, text = "{}") =>
    ({ answers: [{ status, headers: {}, text }], end: "answered" }) as const;
  const entry = { action: "tasks.cancel", actId: act.actId! };

  test("lets pass what is as it should be", () => {
    const cases = [
      judged(request, answered(200), { caller: viewer, watched: quiet }),
      judged(request, answered(503, '{"error":{"code":"overloaded"'), {
        caller: viewer,
        watched: quiet,
      }),
      judged(request, answered(200, canaries.acme.inside), { caller: reader, watched: quiet }),
      judged(act, answered(200), { caller: viewer, watched: quiet }),
      judged(act, answered(200), {
        caller: viewer,
        watched: { entries: [entry], changes: ["task t1"] },
      }),
    ];
    expect(cases).toEqual(cases.map(() => []));
  });

  test.each([
    ["an answer of 500", request, answered(500), quiet],
    ["a store that failed", request, answered(503, '{"error":{"code":"store_busy"'), quiet],
    ["no answer", request, { answers: [], end: "late" }, quiet],
    ["a connection that was just closed", request, { answers: [], end: "closed" }, quiet],
    ["what is of another tenant", request, answered(200, canaries.umbra.label), quiet],
    ["content in place of its shape", request, answered(200, canaries.acme.inside), quiet],
    ["a secret", request, answered(200, secrets[0]), quiet],
    ["an effect without an entry", act, answered(200), { entries: [], changes: ["task t1"] }],
    ["two entries", act, answered(200), { entries: [entry, entry], changes: [] }],
    ["an entry of a refused act", act, answered(409), { entries: [entry], changes: [] }],
    [
      "an entry with another id",
      act,
      answered(200),
      { entries: [{ ...entry, actId: "x" }], changes: [] },
    ],
    ["something new without an entry", making, answered(201), quiet],
  ] as const)("sees %s", (_, asked, outcome, watched) => {
    expect(judged(asked, outcome, { caller: viewer, watched })).toHaveLength(1);
  });

  test("sees a conversation of others in what a user gets", () => {
    const user = { ...reader, isMember: true, isUser: true };
    const text = `${canaries.acme.private} ${canaries.acme.inside} ${secrets[0]}`;
    const found = judged(request, answered(200, text), { caller: user, watched: quiet });
    expect(found).toEqual(["the answer has a conversation of another user"]);
  });
});
