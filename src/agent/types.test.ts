import { createServer } from "node:http";
import { convertToModelMessages, streamText, type UIMessage as SdkMessage } from "ai";
import { MockLanguageModelV4 } from "ai/test";
import type { RequestHandler } from "express";
import { Hono } from "hono";
import { expect, expectTypeOf, test } from "vitest";
import { secret } from "./contract/requests.ts";
import { type AnswerContext, createAgentHandler, toNode, type UIMessage, verify } from "./index.ts";

// What a route handler of Next.js is checked against: `NextRequest` is a `Request` with more to it.
type NextRequest = Request & { readonly nextUrl: URL; readonly cookies: object };
type RouteHandler = (
  request: NextRequest,
  context: { params: Promise<Record<string, string>> },
) => Response | Promise<Response>;

const handler = createAgentHandler({ secret, answer: () => "hello" });

test("a handler fits where servers want one", () => {
  const POST: RouteHandler = handler;
  const express: RequestHandler = toNode(handler);
  const worker: { fetch(request: Request, env: unknown): Promise<Response> } = { fetch: handler };
  const server = createServer((request, response) => void toNode(handler)(request, response));
  const app = new Hono().post("/agent", (c) => handler(c.req.raw));
  expect([POST, express, worker, server, app]).toHaveLength(5);
});

test("an agent is given messages of the type that it names", () => {
  createAgentHandler({
    secret,
    answer(context) {
      expectTypeOf(context).toEqualTypeOf<AnswerContext>();
      expectTypeOf(context.messages).toEqualTypeOf<UIMessage[]>();
      expectTypeOf(context.user).toEqualTypeOf<string | undefined>();
      return "";
    },
  });
  const typed = createAgentHandler<SdkMessage>({
    secret: [secret],
    answer: async ({ messages, signal }) =>
      streamText({
        model: new MockLanguageModelV4(),
        messages: await convertToModelMessages(messages),
        abortSignal: signal,
      }),
    onError: (_error, { messages }) => void expectTypeOf(messages).toEqualTypeOf<SdkMessage[]>(),
  });
  expect(typed).toBeTypeOf("function");
});

test("what can't be an answer doesn't compile, nor a handler without a secret", () => {
  // @ts-expect-error A number is no answer.
  createAgentHandler({ secret, answer: () => 7 });
  // @ts-expect-error The secret may be missing.
  expect(() => createAgentHandler({ secret: process.env["NO_SUCH"], answer: () => "" })).toThrow(
    /secret/,
  );
});

test("a check gives a body only where it went well", async () => {
  const result = await verify({ headers: {}, body: "" }, { secret });
  if (result.ok) expectTypeOf(result.body).toEqualTypeOf<string>();
  else expectTypeOf(result.status).toExtend<number>();
  // @ts-expect-error There is no body in a refusal.
  expect(result.body).toBeUndefined();
});
