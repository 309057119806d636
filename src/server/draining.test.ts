import { expect, test } from "vitest";
import { startTestServer } from "./contract/test-server.ts";

const ask = (url: string, path: string, init: RequestInit = {}) =>
  fetch(`${url}${path}`, { ...init, headers: { "Content-Type": "application/json" } });

test("a server that stops takes what balancers still send, and ends its connections", async () => {
  let isStopping = false;
  await using server = await startTestServer({ isStopping: () => isStopping });
  const { taskId } = await server.flotilla.enqueue("nobody", {});
  expect((await ask(server.url, `/v1/tasks/${taskId}`)).headers.get("connection")).not.toBe(
    "close",
  );
  isStopping = true;
  const posts: [string, unknown][] = [
    ["/v1/tasks", { name: "nobody" }],
    ["/v1/tasks/bulk", [{ name: "nobody" }]],
    ["/v1/tasks/graph", { tasks: [{ ref: "a", name: "nobody" }] }],
    ["/v1/runs", { flow: "nobody" }],
    ["/v1/sessions", {}],
  ];
  for (const [path, body] of posts) {
    const answer = await ask(server.url, path, { method: "POST", body: JSON.stringify(body) });
    expect([path, answer.ok, answer.headers.get("connection")]).toEqual([path, true, "close"]);
  }
  const { tasks } = await server.flotilla.tasks.list();
  expect(tasks).toHaveLength(5);
  expect((await ask(server.url, "/v1/tasks")).headers.get("connection")).toBe("close");
  expect((await ask(server.url, "/health/ready")).status).toBe(503);
});
