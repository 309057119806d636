import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import type { Verb } from "../protocol/verbs.ts";
import { createRedactor } from "../redaction/redactor.ts";
import { sensitive } from "../redaction/sensitive.ts";
import { flow } from "../flows/flow.ts";
import { task } from "../tasks/task.ts";
import { machinesOf } from "../runtime/flows.ts";
import { handlersByName } from "../runtime/handlers.ts";
import { contents } from "./api/schema.ts";
import { runSpecs } from "./api/runs.schema.ts";
import { entrySchema } from "./api/schema.ts";
import { sessionSchema } from "./api/conversation/session.schema.ts";
import { taskSchema, taskSpecs } from "./api/tasks.schema.ts";
import type { Caller } from "./auth/caller.ts";
import { allSpecs } from "./openapi.ts";
import { createSerializer } from "./serializer.ts";

const callerWith = (...verbs: string[]): Caller => ({
  kind: "server",
  tenant: "acme",
  verbs: new Set(verbs as Verb[]),
});
const viewer = { caller: callerWith("fleet:read") };
const auditor = { caller: callerWith("fleet:read", "payloads:read") };
const admin = { caller: callerWith("admin") };
const owner = { caller: callerWith("tasks:read", "sessions:read") };
const serializer = createSerializer();

const completed = {
  taskId: "t",
  name: "pay",
  key: "order-1",
  status: "completed",
  claimToken: 7,
  payload: { card: "4111", password: "hunter2", more: [1, 2] },
  progress: null,
  result: "paid by Bearer abc123def456",
};
const failed = {
  ...completed,
  status: "failed",
  error: { code: "handler_failed", message: "no paper", stack: "Error: no paper\n  at a.ts" },
};
const entry = {
  seq: 1,
  kind: "message",
  messageId: "m",
  tokens: 12,
  parts: [
    { type: "text", text: "my key is sk-4f9a8b7c6d5e4f3a2b1c" },
    { type: "tool-look", toolCallId: "c", state: "output-available", output: { token: "x" } },
  ],
  metadata: { usage: { input: 1, output: 2, cached: 0 }, tokens: 3 },
};

describe("what a task shows", () => {
  test("to all that may see content is that, without secrets", () => {
    for (const reader of [admin, auditor, owner]) {
      expect(serializer.shown(taskSchema, completed, reader)).toEqual({
        ...completed,
        payload: { card: "4111", password: "[redacted]", more: [1, 2] },
        result: "paid by Bearer [redacted]",
      });
    }
  });

  test("to a caller with fleet:read and without payloads:read is shapes", () => {
    expect(serializer.shown(taskSchema, completed, viewer)).toEqual({
      ...completed,
      payload: "object, 3 keys, 49 bytes",
      result: "text, 27 characters",
    });
    expect(serializer.shown(taskSchema, failed, viewer)).toMatchObject({
      error: { code: "handler_failed", message: "text, 8 characters", stack: expect.any(String) },
    });
  });

  test.each([
    [{ a: 1, b: 2, c: 3 }, "object, 3 keys, 19 bytes"],
    [{}, "object, 0 keys, 2 bytes"],
    [["ü"], "array, 1 item, 6 bytes"],
    [Array.from({ length: 1_000 }, () => 0), "array, 1,000 items, 2,001 bytes"],
    ["x", "text, 1 character"],
    ["", "text, 0 characters"],
    [12, "number"],
    [true, "boolean"],
    [null, null],
  ])("as the shape of %j is %j", (payload, shape) => {
    const shown = serializer.shown(taskSchema, { ...completed, payload }, viewer);
    expect(shown).toMatchObject({ payload: shape });
  });

  test("of events keeps what is ours, and of content nothing", () => {
    const detail = {
      code: "handler_failed",
      message: "no paper",
      retryAtMs: 7,
      error: { code: "x", message: "secret" },
      set: { card: "4111" },
    };
    const events = [{ seq: 1, type: "retry", detail }];
    const { answers } = taskSpecs.events;
    expect(serializer.shown(answers[200], { events, next: null }, viewer)).toMatchObject({
      events: [
        {
          seq: 1,
          type: "retry",
          detail: {
            code: "handler_failed",
            message: "text, 8 characters",
            retryAtMs: 7,
            error: { code: "x", message: "text, 6 characters" },
            set: "object, 1 key, 15 bytes",
          },
        },
      ],
    });
  });

  test("is left alone where it has nothing to hide", () => {
    const plain = { ...completed, payload: { a: 1 }, result: "paid" };
    expect(serializer.shown(taskSchema, plain, admin)).toBe(plain);
  });
});

describe("what a session shows", () => {
  const session = { users: ["ada"], metadata: { password: "x" }, preview: "Bearer abc123def456" };
  const asUser = (user: string, ...verbs: string[]) => ({
    caller: { ...callerWith(...verbs), user },
  });

  test("to its members is what it is, and to others without secrets, or shapes", () => {
    expect(serializer.shown(sessionSchema, session, asUser("ada", "admin"))).toBe(session);
    expect(serializer.shown(sessionSchema, session, asUser("eve", "admin"))).toEqual({
      users: ["ada"],
      metadata: { password: "[redacted]" },
      preview: "Bearer [redacted]",
    });
    expect(serializer.shown(sessionSchema, session, viewer)).toEqual({
      users: ["ada"],
      metadata: "object, 1 key, 16 bytes",
      preview: "text, 19 characters",
    });
  });

  test("of an entry is redacted, or shapes around what clients need", () => {
    expect(serializer.shown(entrySchema, entry, { ...admin, isOwn: true })).toBe(entry);
    const [text, tool] = entry.parts;
    expect(serializer.shown(entrySchema, entry, admin)).toEqual({
      ...entry,
      parts: [
        { ...text, text: "my key is [redacted]" },
        { ...tool, output: { token: "[redacted]" } },
      ],
    });
    expect(serializer.shown(entrySchema, entry, viewer)).toEqual({
      ...entry,
      parts: [
        { type: "text", text: "text, 33 characters" },
        {
          type: "tool-look",
          toolCallId: "c",
          state: "output-available",
          output: "object, 1 key, 13 bytes",
        },
      ],
      metadata: expect.stringMatching(/^object, 2 keys/),
    });
  });

  test("while an answer is made is its chunks, lines of it, or none", () => {
    const chunks = ["text-start", "text-delta", "text-end"].map((type) => ({
      type,
      id: "t",
      ...(type === "text-delta" && { delta: "Bearer abc123def456" }),
    }));
    const event = { type: "chunks", epoch: 1, attempt: 1, index: 0, chunks } as const;
    expect(serializer.feed({ ...admin, isOwn: true })(event)).toBe(event);
    expect(serializer.feed(viewer)(event)).toBeUndefined();
    expect(serializer.feed(admin)(event)).toMatchObject({
      chunks: [{}, { delta: "Bearer [redacted]" }, {}],
    });
    const state = { type: "state", state: { state: "idle" } } as const;
    expect(serializer.feed(viewer)(state)).toBe(state);
  });
});

describe("what schemas mark as sensitive", () => {
  const card = z.object({ number: sensitive(z.string()), kind: z.string() });
  const pay = task("pay", { input: z.object({ card }), output: sensitive(z.string()) }, () => "x");
  const other = task("other", {}, () => "x");
  const order = flow("order", { version: 1, input: z.object({ card }) })
    .signal("approve", { schema: z.object({ pin: sensitive(z.string()), by: z.string() }) })
    .end();
  const use = [pay, other, order];
  const parts = { contracts: handlersByName(use), machines: machinesOf(use) };
  const marked = createSerializer(parts);
  const payload = { card: { number: "4111", kind: "visa" } };
  const hiddenCard = { card: { number: "[redacted]", kind: "visa" } };

  test("is hidden in the inputs and results of that task, and of no other", () => {
    const given = { ...completed, payload, result: "paid" };
    expect(marked.shown(taskSchema, given, admin)).toMatchObject({
      payload: hiddenCard,
      result: "[redacted]",
    });
    expect(marked.shown(taskSchema, { ...given, name: "other" }, admin)).toMatchObject({
      payload,
      result: "paid",
    });
  });

  test("is hidden in the input, the state and the history of a flow's runs", () => {
    const approve = { pin: "1234", by: "ada" };
    const run = { flow: "order", input: payload, state: { approve }, output: { approve } };
    const answer = {
      run,
      links: { startedBy: null, started: [], hasMore: false, dependents: [], copies: [] },
    };
    const hidden = { approve: { pin: "[redacted]", by: "ada" } };
    expect(marked.shown(runSpecs.get.answers[200], answer, admin)).toMatchObject({
      run: { input: hiddenCard, state: hidden, output: hidden },
    });
    const history = [{ seq: 1, type: "complete", detail: { version: 1, set: { approve } } }];
    expect(
      marked.shown(runSpecs.history.answers[200], { history, next: null }, admin),
    ).toMatchObject({ history: [{ detail: { version: 1, set: hidden } }] });
  });

  test("is shown where the config says that everything is", () => {
    const open = createSerializer({ ...parts, redactor: createRedactor(false) });
    const given = { ...completed, payload };
    expect(open.shown(taskSchema, given, admin)).toBe(given);
    expect(open.shown(taskSchema, given, viewer)).toMatchObject({
      payload: expect.stringMatching(/^object, 1 key/),
    });
  });
});

describe("answers", () => {
  /** JSON of any form that holds nothing of users, by the path of the route and the field. */
  const ours: Record<string, string> = {
    "/v1/openapi.json *": "is made of the routes",
    "/v1/tasks/bulk outcomes.details": "is of an error, whose details have passed already",
  };

  test("have no field of any form that isn't marked as content or as chosen by users", () => {
    const unmarked = allSpecs.flatMap(({ path, answers }) =>
      Object.values(answers).flatMap((schema) =>
        openFields(schema, []).map((field) => `${path} ${field.join(".")}`),
      ),
    );
    expect([...new Set(unmarked)].toSorted()).toEqual(Object.keys(ours).toSorted());
  });

  test("of any form are shown or hidden, and never make it throw", () => {
    const { caller } = admin;
    const readers = [viewer, admin, owner, { caller: { ...caller, user: "ada" } }];
    const schemas = allSpecs.flatMap(({ answers }) => Object.values(answers));
    const shaped = fc.dictionary(
      fc.constantFrom(
        "tasks",
        "task",
        "run",
        "payload",
        "error",
        "parts",
        "detail",
        "users",
        "name",
      ),
      fc.oneof(fc.jsonValue(), fc.array(fc.dictionary(fc.string(), fc.jsonValue()))),
    );
    fc.assert(
      fc.property(fc.oneof(shaped, fc.jsonValue()), (value) => {
        for (const schema of [...schemas, taskSchema, entrySchema, sessionSchema]) {
          for (const reader of readers)
            JSON.stringify(serializer.shown(schema, value, reader) ?? null);
        }
      }),
      { numRuns: 50 },
    );
  });

  /** Fields that take any value, unless they are marked. */
  function openFields(schema: z.ZodType, at: readonly string[]): (readonly string[])[] {
    if (contents.has(schema)) return [];
    if (schema instanceof z.ZodUnknown || schema instanceof z.ZodAny) return [at];
    if (schema instanceof z.ZodObject) {
      return Object.entries(schema.shape).flatMap(([name, field]) =>
        openFields(field as z.ZodType, [...at, name]),
      );
    }
    if (schema instanceof z.ZodArray) return openFields(schema.element as z.ZodType, at);
    if (schema instanceof z.ZodRecord) {
      const value = schema.valueType as z.ZodType;
      return openFields(value, value instanceof z.ZodUnknown && at.length > 0 ? at : [...at, "*"]);
    }
    if (schema instanceof z.ZodUnion)
      return (schema.options as z.ZodType[]).flatMap((option) => openFields(option, at));
    const isWrapper =
      schema instanceof z.ZodOptional ||
      schema instanceof z.ZodNullable ||
      schema instanceof z.ZodReadonly;
    return isWrapper ? openFields(schema.unwrap() as z.ZodType, at) : [];
  }
});
