import { createElement } from "react";
import { hydrateRoot } from "react-dom/client";
import { createClient } from "../../../src/client/index.ts";
import { Panel } from "./panel.ts";

const query = new URLSearchParams(location.search);
const given = (name: string): string => query.get(name) ?? "";
const client = createClient({ user: "ada" });

// Something else on the page knows more already than the server did that rendered it.
const session = client.session(given("session"));
await new Promise<void>((resolve) => {
  const leave = session.subscribe(() => {
    if (session.get().status !== "live") return;
    leave();
    resolve();
  });
});

hydrateRoot(
  document.getElementById("root")!,
  createElement(Panel, {
    client,
    sessionId: given("session"),
    taskId: given("task"),
    runId: given("run"),
  }),
  { onRecoverableError: (error) => console.error(`not hydrated: ${String(error)}`) },
);
