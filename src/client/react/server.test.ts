import { createElement, type ReactNode } from "react";
import { renderToString } from "react-dom/server";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../base/contract/movable-clock.ts";
import { textOf } from "../../protocol/message.ts";
import { startTestServer } from "../../server/contract/test-server.ts";
import { agent } from "../../sessions/agents/agent.ts";
import { createClient } from "../index.ts";
import {
  FlotillaProvider,
  useConnection,
  useInbox,
  usePresence,
  useRun,
  useSession,
  useTask,
} from "./index.ts";
import { recordingSockets, usePage } from "../contract/react-page.ts";

const echo = agent("echo", ({ messages }) => `you said ${textOf(messages.at(-1)!)}`);
const page = usePage();
let server: Awaited<ReturnType<typeof startTestServer>>;

beforeAll(async () => {
  server = await startTestServer({ use: [echo] });
  await server.pod.sessions.create(["echo"], { sessionId: "s", user: "ada" });
  await server.pod.sessions.open("s", { user: "ada" }).ask("hello");
});
afterAll(() => server[Symbol.asyncDispose]());

/** A page that uses all hooks that follow something. */
function Everything(): ReactNode {
  const session = useSession("s");
  const words = session.messages.map(textOf).join();
  const seen = [useInbox(), useTask("t"), useRun("r"), useConnection()].map(({ status }) => status);
  usePresence("s");
  return createElement("p", null, `${session.status}: ${words} ${seen.join()}`);
}

function counted() {
  const { Socket, opened } = recordingSockets();
  let requests = 0;
  const client = createClient({
    url: server.url,
    user: "ada",
    WebSocket: Socket,
    fetch: (url, init) => {
      requests++;
      return fetch(url, init);
    },
  });
  const handles: string[] = [];
  const watched = {
    ...client,
    session: (id: string) => {
      handles.push(id);
      return client.session(id);
    },
  };
  return { client: watched, handles, asked: () => opened.length + requests };
}
const app = (client: ReturnType<typeof counted>["client"]) =>
  createElement(FlotillaProvider, { client }, createElement(Everything));

const first = "<p>idle:  idle,idle,idle,idle</p>";

describe("a page that a server renders", () => {
  test("has what hooks give at first; nothing is connected, requested or kept", async () => {
    const { client, handles, asked } = counted();
    expect(renderToString(app(client))).toBe(first);
    expect([asked(), handles]).toEqual([0, []]);
    expect(client.connection.get()).toEqual({ status: "idle" });
  });

  test("is the same on a server for a client that knows more already", async () => {
    const { client } = counted();
    const leave = client.session("s").subscribe(() => {});
    await until("the session", () => client.session("s").get().status === "live");
    expect(renderToString(app(client))).toBe(first);
    leave();
    client.close();
  });

  test("is taken over without a fault, and goes on from there", async () => {
    const html = renderToString(app(counted().client));
    const { client } = counted();
    const { text } = page.hydrate(html, app(client));
    await until("what was said", () => text()?.startsWith("live: hello,you said hello"));
    await until("that there is no task and no run", () => text()?.includes("gone,gone"));
    expect(text()).toBe("live: hello,you said hello live,gone,gone,open");
    client.close();
  });

  test.each([
    ["useSession", () => useSession("s")],
    ["useInbox", () => useInbox()],
    ["useTask", () => useTask("t")],
    ["useRun", () => useRun("r")],
    ["useConnection", () => useConnection()],
  ])("throws what is missing, where %s has no client", (_, use) => {
    function Lost() {
      return use() && null;
    }
    expect(() => renderToString(createElement(Lost))).toThrow(
      "there is no client: put <FlotillaProvider client={client}> around this component",
    );
  });
});
