import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test } from "vitest";
import { silentLogger } from "../../base/log.ts";
import { movableClock, until } from "../../base/contract/movable-clock.ts";
import type { SessionService } from "../../sessions/service.ts";
import type { Caller } from "../auth/caller.ts";
import { createMembers } from "../auth/members.ts";
import { dial } from "../contract/test-server.ts";
import { createSerializer } from "../serializer.ts";
import { createSockets } from "./sockets.ts";

const server = createServer();
afterEach(() => server.close());

test("a token whose keys come after its connection has gone leaves no timer behind", async () => {
  const clock = movableClock();
  const caller: Caller = {
    kind: "user",
    tenant: "acme",
    user: "ada",
    verbs: new Set(),
    expiresAtMs: clock.now() + 60_000,
  };
  const keys = Promise.withResolvers<void>();
  let asked = 0;
  const sessions = {} as SessionService;
  const sockets = createSockets({
    sessions,
    members: createMembers(sessions, clock),
    serializer: createSerializer(),
    hub: { watch: () => () => {} },
    authenticator: {
      tickets: undefined as never,
      ready: Promise.resolve(),
      refusalOf: () => undefined,
      watch: () => () => {},
      use: () => {},
      signIn: () => Promise.resolve(undefined),
      bindingOf: () => undefined,
      isOpen: false,
      async caller() {
        if (++asked > 1) await keys.promise;
        return caller;
      },
    },
    origins: [],
    maxFrameBytes: 10_000,
    bufferBytes: 100_000,
    clock,
    log: silentLogger,
  });
  server.on("upgrade", sockets.upgrade);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const client = await dial(`ws://127.0.0.1:${port}/v1/socket`);
  client.send({ type: "token", ref: 1, token: "a.b.c" });
  await until("the token to be looked at", () => asked === 2);
  client.socket.terminate();
  await until("the connection to go", () => sockets.count === 0);
  keys.resolve();
  await clock.advance(0);
  expect(clock.timers).toBe(0);
  await sockets.close();
});
