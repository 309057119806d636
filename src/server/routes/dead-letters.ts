import type { Context, Hono } from "hono";
import { FlotillaError } from "../../base/errors.ts";
import { checkOptions } from "../../base/options.ts";
import type { DeadLetters } from "../../deadletters/client.ts";
import type { Selection } from "../../deadletters/selection.ts";
import { asNumber, asObject, jsonBody } from "../parse.ts";

export type DeadLetterRoutes = {
  /** The leader's where it is in this process, because it has its view already. */
  deadLetters: () => DeadLetters;
};

// A selection is one name or id.
const bodyBytes = 4_096;
const selecting = ["group", "taskId", "name", "all"];

/** Failed tasks, grouped by their errors; redrives; giving up. Selections are checked where they are used. */
export function deadLetterRoutes(app: Hono, { deadLetters }: DeadLetterRoutes): void {
  app.get("/v1/dlq/groups", async (c) => {
    const { limit, ...rest } = query(c, ["name", "limit"]);
    return c.json(await deadLetters().groups({ ...rest, ...limitOf(limit) }));
  });

  app.get("/v1/dlq/tasks", async (c) => {
    const { limit, ...rest } = query(c, ["group", "name", "cursor", "limit"]);
    return c.json(await deadLetters().list({ ...rest, ...limitOf(limit) }));
  });

  app.post("/v1/dlq/discard", async (c) => {
    const body = await bodyOf(c, selecting);
    return c.json(await deadLetters().discard(body as Selection));
  });

  app.post("/v1/dlq/redrives", async (c) => {
    const { maxStep, ...selection } = await bodyOf(c, [...selecting, "maxStep"]);
    const options = maxStep === undefined ? {} : { maxStep: maxStep as number };
    // What is stored now is done by the leader, bit by bit.
    return c.json(await deadLetters().redrive(selection as Selection, options), 202);
  });

  app.get("/v1/dlq/redrives", async (c) => {
    const { limit } = query(c, ["limit"]);
    return c.json({ redrives: await deadLetters().redrives(limitOf(limit)) });
  });

  app.get("/v1/dlq/redrives/:id", async (c) => {
    const redriveId = c.req.param("id");
    const redrive = await deadLetters().getRedrive(redriveId);
    if (redrive) return c.json(redrive);
    throw new FlotillaError("not_found", `there is no redrive ${redriveId.slice(0, 80)}`);
  });

  app.post("/v1/dlq/redrives/:id/cancel", async (c) =>
    c.json(await deadLetters().cancelRedrive(c.req.param("id")), 202),
  );
}

function query(c: Context, known: readonly string[]): Record<string, string> {
  const given = c.req.query();
  checkOptions("the query", given, known);
  return given;
}

function limitOf(text: string | undefined): { limit?: number } {
  return text === undefined ? {} : { limit: asNumber("limit", text) };
}

async function bodyOf(c: Context, known: readonly string[]): Promise<Record<string, unknown>> {
  const body = asObject("the body", await jsonBody(c, bodyBytes));
  checkOptions("the body", body, known);
  return body;
}
