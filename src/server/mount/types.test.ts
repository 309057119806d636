import { createServer, type IncomingMessage } from "node:http";
import express, { type Request as Asked, type RequestHandler } from "express";
import { Hono } from "hono";
import { mount } from "hono/mount";
import { expect, expectTypeOf, test } from "vitest";
import { connect } from "../../runtime/connect.ts";
import { dashboard, type HostLogin } from "./index.ts";

// What a route handler of Next.js is checked against: `NextRequest` is a `Request` with more to it.
type NextRequest = Request & { readonly nextUrl: URL; readonly cookies: object };
type RouteHandler = (
  request: NextRequest,
  context: { params: Promise<{ path?: string[] }> },
) => Response | Promise<Response>;

// Nothing is opened by it.
const flotilla = connect("sqlite:never-opened.db");
const ops = dashboard(flotilla, { login: () => ({ user: "ada", role: "viewer" }) });

test("a mount fits where hosts want one", () => {
  const GET: RouteHandler = ops.next.GET;
  const handler: RequestHandler = ops.node;
  const worker: { fetch(request: Request, env: unknown): Promise<Response> } = ops;
  const server = createServer(ops.node);
  const app = new Hono().all("/ops/*", mount(ops.fetch)).all("/b/*", (c) => ops.fetch(c.req.raw));
  expect([GET, handler, worker, server, app, express().use("/ops", ops.node)]).toHaveLength(6);
});

test("a login says what it needs of its host, and the mount takes nothing less", () => {
  type User = { readonly email: string };
  const inExpress = dashboard(flotilla, {
    login: (request, req: Asked & { user?: User }) => {
      expectTypeOf(request).toEqualTypeOf<Request>();
      return req.user && { user: req.user.email, role: "operator" };
    },
  });
  expectTypeOf(inExpress.node).parameter(0).toExtend<Asked & IncomingMessage>();
  express().use("/ops", inExpress.node);
  // @ts-expect-error a server of `node:http` has no user
  const wrong: Parameters<typeof createServer>[1] = inExpress.node;
  const inHono = dashboard(flotilla, {
    login: (_, { user }: { user: User }) => ({ user: user.email, role: "viewer" }),
  });
  expectTypeOf(inHono.fetch).parameter(1).toEqualTypeOf<{ user: User }>();
  // @ts-expect-error without what the login needs
  const asked = (request: Request) => inHono.fetch(request);
  // @ts-expect-error there is no such role
  const roles: HostLogin<unknown> = () => ({ user: "ada", role: "root" });
  expect([wrong, asked, roles]).toHaveLength(3);
});
