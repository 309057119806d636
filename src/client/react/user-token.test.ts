import { SignJWT } from "jose";
import { expect, test } from "vitest";
import { until } from "../../base/contract/movable-clock.ts";
import { flow } from "../../flows/flow.ts";
import { task } from "../../tasks/task.ts";
import { startTestServer } from "../../server/contract/test-server.ts";
import { createClient } from "../index.ts";
import { useRun, useTask } from "./index.ts";
import { probe, usePage, withClient } from "../contract/react-page.ts";

const secret = "a secret of thirty-two characters or more";
const page = usePage();
const mail = task("mail", {}, () => "sent");
const order = flow("order", { version: 1 })
  .to("reserve", () => ({ reserved: true }))
  .end();

test("useTask and useRun show a user what their token lets them read, to its end", async () => {
  await using server = await startTestServer({
    use: [mail, order],
    server: { tokens: { secret } },
  });
  const { taskId } = await server.pod.enqueue(mail, null, { tenant: "acme" });
  const { runId } = await server.pod.runs.start(order, null, { tenant: "acme" });
  const shown = async (claims: Record<string, unknown>) => {
    const token = await new SignJWT({ sub: "ada", tenant: "acme", ...claims })
      .setProtectedHeader({ alg: "HS256" })
      .setExpirationTime("5m")
      .sign(new TextEncoder().encode(secret));
    const client = createClient({ url: server.url, token });
    const { Probe, latest } = probe(() => ({ task: useTask(taskId), run: useRun(runId) }));
    const rendered = page.render(withClient(client, Probe));
    const isOver = (status?: string) => status === "ended" || status === "gone";
    await until("both", () => isOver(latest()?.task.status) && isOver(latest()?.run.status));
    // React goes on for a moment, which the server's end outlasts.
    rendered.unmount();
    client.close();
    return latest()!;
  };
  const { task: seenTask, run: seenRun } = await shown({ verbs: ["tasks:read"] });
  expect(seenTask.value).toMatchObject({ taskId, status: "completed", result: "sent" });
  expect(seenRun.value).toMatchObject({ runId, status: "completed", output: { reserved: true } });
  const refused = { status: "gone", error: { code: "forbidden" } };
  expect(await shown({})).toMatchObject({ task: refused, run: refused });
  const absent = { status: "gone", error: { code: "not_found" } };
  const other = await shown({ tenant: "other", verbs: ["tasks:read"] });
  expect(other).toMatchObject({ task: absent, run: absent });
});
