import { expect, test } from "vitest";
import { startTestServer } from "./contract/test-server.ts";

const ask = (url: string, path: string, init: RequestInit = {}) =>
  fetch(`${url}${path}`, { ...init, headers: { "Content-Type": "application/json" } });

test("a server that drains takes no new work, and still answers reads", async () => {
  let isStopping = false;
  await using server = await startTestServer({ isStopping: () => isStopping });
  const { taskId } = await server.flotilla.enqueue("nobody", {});
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
    expect(answer.status).toBe(503);
    expect(answer.headers.get("retry-after")).toBe("1");
    expect(await answer.json()).toMatchObject({ error: { code: "closed" } });
  }
  const { tasks } = await server.flotilla.tasks.list();
  expect(tasks.map((each) => each.taskId)).toEqual([taskId]);
  expect((await ask(server.url, `/v1/tasks/${taskId}`)).status).toBe(200);
  expect((await ask(server.url, "/v1/tasks")).status).toBe(200);
});
