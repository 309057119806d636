import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { createAdaptorServer } from "@hono/node-server";
import express from "express";
import { type AgentHandler, toNode } from "flotilla/agent";
import { Hono } from "hono";

export type Serving = AsyncDisposable & { readonly url: string };

/** The ways in which an agent is put behind a URL. */
export const servers: Record<string, (handler: AgentHandler) => Promise<Serving>> = {
  "plain Node": (handler) => listen(createServer(listenerOf(handler))),
  Express: (handler) => listen(createServer(express().post("/agent", toNode(handler)))),
  Hono: (handler) => {
    const app = new Hono().post("/agent", (c) => handler(c.req.raw));
    return listen(createAdaptorServer({ fetch: app.fetch }) as ReturnType<typeof createServer>);
  },
  "a route handler": (handler) => {
    const route = { POST: handler };
    const fetch = (request: Request) =>
      request.method === "POST" ? route.POST(request) : new Response(null, { status: 405 });
    return listen(createAdaptorServer({ fetch }) as ReturnType<typeof createServer>);
  },
};

function listenerOf(handler: AgentHandler): RequestListener {
  const answer = toNode(handler);
  return (request, response) => void answer(request, response);
}

async function listen(server: ReturnType<typeof createServer>): Promise<Serving> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/agent`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
